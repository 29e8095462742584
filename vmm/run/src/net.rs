//! The network of Linux guests: `--net user…` or `--net tap=NAME…`.

use std::path::Path;
use std::sync::Arc;

use causeway_init::Network;
use causeway_terminal::{Code, Failure};
use causeway_vmm::virtio::OutsideSource;

use crate::device_process::Processes;
use tap::{OnTap, TapNetwork};
use user::{FORWARDS_MAX, Passt, UserNetwork};

mod tap;
mod user;

/// What `--net` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Net {
    /// As a program of this user has it.
    User(UserNetwork),
    /// On a tap device of this host.
    Tap(TapNetwork),
}

/// Why a value of `--net` is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// It is another kind of network.
    #[error(
        "write user or tap=NAME, with keys after commas, such as user,forward=8080:80 or \
         tap=tap0,address=192.168.7.2/24"
    )]
    Kind,
    /// A key does not exist.
    #[error("unknown key `{word}`: the keys are {keys}")]
    Key {
        /// What was written.
        word: String,
        /// The keys that there are.
        keys: &'static str,
    },
    /// A key has another kind of value.
    #[error(
        "{0} is not valid: write IPv4 addresses, such as address=192.168.7.2/24, \
         gateway=192.168.7.1, nameserver=192.168.7.1, and mac=02:00:00:12:34:56"
    )]
    Value(String),
    /// A gateway without an address could not be reached.
    #[error("gateway= needs address=: the guest must be in the gateway's network")]
    Gateway,
    /// A port is not forwarded like that.
    #[error(
        "{0} does not name two ports of 1 to 65535: write HOST:GUEST, or ADDRESS/HOST:GUEST to \
         listen elsewhere than on 127.0.0.1"
    )]
    Forward(String),
    /// Too many ports are forwarded.
    #[error("cannot forward {0} ports: {FORWARDS_MAX} at most")]
    Many(usize),
    /// A port of the host is named twice.
    #[error("port {0} of this host is named twice")]
    Twice(u16),
}

impl Net {
    /// Reads the value of `--net`.
    ///
    /// # Errors
    /// A usage failure if it is not valid, or if several VMs would need the same port or tap
    /// device.
    pub fn parse(text: &str, vms: u32) -> Result<Self, Failure> {
        let net = Self::read(text).map_err(|e| Failure::usage_from("--net", text, e))?;
        let shared = match &net {
            Self::User(network) if network.has_forwards() => "the same ports of this host",
            Self::Tap(_) => "the same tap device",
            Self::User(_) => return Ok(net),
        };
        match vms {
            1 => Ok(net),
            _ => Err(Failure::usage(format!(
                "--net {text} cannot be used with --vms {vms}: each VM would need {shared}; use \
                 user without forward=, or several runs"
            ))),
        }
    }

    fn read(text: &str) -> Result<Self, NetError> {
        let mut words = text.split(',');
        match words.next().and_then(|kind| kind.split_once('=')) {
            Some(("tap", name)) if !name.is_empty() => TapNetwork::read(name, words).map(Self::Tap),
            None if text.split(',').next() == Some("user") => {
                UserNetwork::read(text, words).map(Self::User)
            }
            _ => Err(NetError::Kind),
        }
    }

    /// Returns the addresses that the guest gets.
    pub const fn addresses(&self) -> Network {
        match self {
            Self::User(_) => UserNetwork::addresses(),
            Self::Tap(network) => network.addresses(),
        }
    }

    /// Returns what serves the network, by the passt `named` or the one of this host.
    ///
    /// # Errors
    /// A usage failure if this host has no passt and one is needed, or if one is named that is not.
    pub fn source(self, named: Option<&Path>) -> Result<Arc<dyn OutsideSource>, Failure> {
        match self {
            Self::Tap(_) if named.is_some() => Err(Failure::usage(
                "--passt is for --net user only: leave it out",
            )),
            Self::Tap(network) => Ok(Arc::new(OnTap::of(network))),
            Self::User(network) => {
                let passt = Passt::new(network, named)
                    .map_err(|e| Failure::new(Code::Usage, "cannot give the guest a network", e))?;
                Ok(Arc::new(Processes::of(passt)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_value_and_the_way_out() {
        for (text, part) in [
            ("", "write user"),
            ("bridge", "write user"),
            ("user=x", "write user"),
            ("tap", "write user"),
            ("tap=", "write user"),
            ("user,", "unknown key ``"),
            ("user,forwards=1:2", "unknown key `forwards=1:2`"),
            ("user,loopback=yes", "unknown key `loopback=yes`"),
            ("user,forward=80", "80 does not name two ports"),
            ("user,forward=0:80", "0:80 does not"),
            ("user,forward=80:65536", "80:65536 does not"),
            ("user,forward=host/80:80", "host/80:80 does not"),
            ("user,forward=80:1,forward=80:2", "port 80 of this host"),
            ("tap=t,loopback", "unknown key `loopback`"),
            ("tap=t,address=10.0.0.1", "address=10.0.0.1 is not valid"),
            (
                "tap=t,gateway=10.0.0.0/8",
                "gateway=10.0.0.0/8 is not valid",
            ),
            ("tap=t,gateway=10.0.0.1", "gateway= needs address="),
            ("tap=t,nameserver=name", "nameserver=name is not valid"),
            (
                "tap=t,mac=01:00:00:00:00:01",
                "mac=01:00:00:00:00:01 is not valid",
            ),
        ] {
            let failure = Net::parse(text, 1).unwrap_err().text();
            assert!(failure.contains(part), "{text}: {failure}");
        }
        let many: String = (1..=65).map(|port| format!(",forward={port}:1")).collect();
        assert_eq!(Net::read(&format!("user{many}")), Err(NetError::Many(65)));
        // The same port of another protocol, or at another address, is another port.
        assert!(Net::read("user,forward=80:1,forward-udp=80:1").is_ok());
        assert!(Net::read("user,forward=80:1,forward=127.0.0.2/80:1").is_ok());
    }

    #[test]
    fn several_guests_cannot_have_the_same_ports_or_tap_device() {
        for text in ["user,forward=1:1", "tap=tap0"] {
            let failure = Net::parse(text, 2).unwrap_err().text();
            assert!(failure.contains("without forward="), "{failure}");
        }
        assert!(Net::parse("user,loopback", 2).is_ok());
    }

    #[test]
    fn a_guest_on_a_tap_device_has_the_addresses_that_were_given() {
        let text = "tap=t,address=10.1.0.2/16,gateway=10.1.0.1,nameserver=9.9.9.9,\
                    mac=02:00:00:00:00:09";
        let addresses = Net::read(text).unwrap().addresses();
        assert_eq!(addresses.mac.to_string(), "02:00:00:00:00:09");
        assert_eq!(addresses.address, Some(([10, 1, 0, 2].into(), 16)));
        assert_eq!(addresses.gateway, Some([10, 1, 0, 1].into()));
        assert_eq!(addresses.nameserver, Some([9, 9, 9, 9].into()));
        let none = Net::read("tap=t").unwrap().addresses();
        assert_eq!(
            (none.address, none.gateway, none.nameserver),
            (None, None, None)
        );
    }
}
