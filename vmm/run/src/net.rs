//! The network of Linux guests: `--net user[,forward=HOST:GUEST]...`, by `passt`.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_init::{Mac, Network};
use causeway_terminal::Failure;
use causeway_vmm::virtio::vhost_user::{Description, DeviceProcess};

use crate::device_process::{Program, Service, ServiceError, Start};

static PROGRAM: Program = Program {
    name: "passt",
    folders: &["/usr/bin", "/usr/sbin"],
    option: "--passt",
    serves: "--net user",
    install: "Debian 13, Ubuntu 25.04 and Fedora: apt or dnf install passt; it must be of 2024-11 \
              or later",
    chatty: true,
};

/// The guest's hardware address. Each VM has a network of its own, so all have the same.
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// The guest's address, and the number of its network's bits: as users of QEMU know them.
const ADDRESS: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 0, 2, 15), 24);
/// Where the guest's packets go. With `loopback`, also this host's own loopback address.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Whom the guest asks for names: the first name server of this host answers.
const NAMESERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// Longest packet in bytes, without its Ethernet header: what passt has by default.
const MTU: u16 = 65520;
/// Maximum number of ports that are forwarded.
const FORWARDS_MAX: usize = 64;

/// What `--net` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserNetwork {
    /// The value itself, for messages.
    text: String,
    tcp: Vec<Forward>,
    udp: Vec<Forward>,
    /// The guest reaches what listens on this host's loopback address.
    loopback: bool,
}

/// A port of this host by which others reach a port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forward {
    address: IpAddr,
    host: u16,
    guest: u16,
}

/// Why a value of `--net` is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// It is another kind of network.
    #[error("write user, or user with keys after commas, such as user,forward=8080:80")]
    Kind,
    /// A key does not exist.
    #[error("{0} is none of its keys: forward=HOST:GUEST, forward-udp=HOST:GUEST, loopback")]
    Key(String),
    /// A port is not forwarded like that.
    #[error(
        "{0} does not name two ports of 1 to 65535: write HOST:GUEST, or ADDRESS/HOST:GUEST to \
         listen elsewhere than on 127.0.0.1"
    )]
    Forward(String),
    /// Too many ports are forwarded.
    #[error("{0} ports are too many to forward: name at most {FORWARDS_MAX}")]
    Many(usize),
    /// A port of the host is named twice.
    #[error("port {0} of this host is named twice")]
    Twice(u16),
}

impl UserNetwork {
    /// Reads the value of `--net`.
    ///
    /// # Errors
    /// A usage failure if it is not valid, or if several VMs would get the same ports.
    pub fn parse(text: &str, vms: u32) -> Result<Self, Failure> {
        let network = Self::read(text).map_err(|e| Failure::usage_from("--net", text, e))?;
        if vms > 1 && network.forwards().next().is_some() {
            return Err(Failure::usage(format!(
                "--net {text} cannot be used with --vms {vms}: each VM would need the same ports \
                 of this host; leave out forward="
            )));
        }
        Ok(network)
    }

    fn read(text: &str) -> Result<Self, NetError> {
        let mut words = text.split(',');
        if words.next() != Some("user") {
            return Err(NetError::Kind);
        }
        let mut network = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        for word in words {
            match word.split_once('=') {
                Some(("forward", ports)) => network.tcp.push(forward(ports)?),
                Some(("forward-udp", ports)) => network.udp.push(forward(ports)?),
                None if word == "loopback" => network.loopback = true,
                _ => return Err(NetError::Key(word.to_owned())),
            }
        }
        network.check()
    }

    fn check(self) -> Result<Self, NetError> {
        let count = self.forwards().count();
        if count > FORWARDS_MAX {
            return Err(NetError::Many(count));
        }
        for ports in [&self.tcp, &self.udp] {
            for (index, one) in ports.iter().enumerate() {
                let is_same = |it: &Forward| (it.address, it.host) == (one.address, one.host);
                if ports[..index].iter().any(is_same) {
                    return Err(NetError::Twice(one.host));
                }
            }
        }
        Ok(self)
    }

    fn forwards(&self) -> impl Iterator<Item = &Forward> {
        self.tcp.iter().chain(&self.udp)
    }

    /// Returns the addresses that the guest gets.
    pub const fn addresses() -> Network {
        Network {
            mac: MAC,
            address: Some(ADDRESS),
            gateway: Some(GATEWAY),
            nameserver: Some(NAMESERVER),
        }
    }

    /// Returns the words with which passt is started.
    fn words(&self) -> Vec<String> {
        let (address, bits) = ADDRESS;
        let loopback = match self.loopback {
            true => GATEWAY.to_string(),
            false => String::from("none"),
        };
        let mut words =
            Vec::from(["--vhost-user", "--foreground", "--quiet", "--fd", "0"].map(String::from));
        let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
        add("--address", address.to_string());
        add("--netmask", bits.to_string());
        add("--gateway", GATEWAY.to_string());
        add("--dns-forward", NAMESERVER.to_string());
        add("--map-host-loopback", loopback);
        add("--mtu", MTU.to_string());
        for (option, ports) in [("--tcp-ports", &self.tcp), ("--udp-ports", &self.udp)] {
            if ports.is_empty() {
                add(option, String::from("none"));
            }
            for it in ports {
                add(option, format!("{}/{}:{}", it.address, it.host, it.guest));
            }
        }
        words
    }
}

/// Reads `[ADDRESS/]HOST:GUEST`.
fn forward(text: &str) -> Result<Forward, NetError> {
    let wrong = || NetError::Forward(text.to_owned());
    let (address, ports) = match text.split_once('/') {
        Some((address, ports)) => (address.parse().map_err(|_| wrong())?, ports),
        None => (Ipv4Addr::LOCALHOST.into(), text),
    };
    let port = |text: &str| text.parse().ok().filter(|port| *port != 0);
    let (host, guest) = ports.split_once(':').ok_or_else(wrong)?;
    Ok(Forward {
        address,
        host: port(host).ok_or_else(wrong)?,
        guest: port(guest).ok_or_else(wrong)?,
    })
}

/// Gives each VM of a run a network of its own.
#[derive(Debug)]
pub struct Passt {
    program: PathBuf,
    network: UserNetwork,
}

impl Passt {
    /// Returns what will serve `network`, by the command `named` or the one of this host.
    ///
    /// # Errors
    /// [`ServiceError::Missing`] if this host has no such command.
    pub fn new(network: UserNetwork, named: Option<&Path>) -> Result<Self, ServiceError> {
        let program = PROGRAM.find(named)?;
        Ok(Self { program, network })
    }
}

impl Service for Passt {
    fn start(&self) -> Result<DeviceProcess, ServiceError> {
        let made = UnixStream::pair().map_err(|source| ServiceError::Socket {
            program: self.program.clone(),
            source,
        });
        let (stream, input) = made?;
        let mut command = Command::new(&self.program);
        command.args(self.network.words());
        let start = Start {
            kind: &PROGRAM,
            command,
            input: input.into(),
            stream,
            what: format!("--net {}", self.network.text),
        };
        start.serving(Description::of_network(self.name(), MAC.0, MTU))
    }

    fn name(&self) -> String {
        format!("{} of --net", PROGRAM.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_forwarded_from_the_loopback_address_unless_another_is_named() {
        let words = |text: &str| UserNetwork::read(text).unwrap().words();
        let after = |words: &[String], option: &str| -> Vec<String> {
            let pairs = words.windows(2).filter(|pair| pair[0] == option);
            pairs.map(|pair| pair[1].clone()).collect()
        };
        let plain = words("user");
        for option in ["--tcp-ports", "--udp-ports", "--map-host-loopback"] {
            assert_eq!(after(&plain, option), ["none"], "{option}");
        }
        let some = words("user,forward=8080:80,forward=0.0.0.0/443:8443,forward-udp=::1/53:5353");
        assert_eq!(
            after(&some, "--tcp-ports"),
            ["127.0.0.1/8080:80", "0.0.0.0/443:8443"]
        );
        assert_eq!(after(&some, "--udp-ports"), ["::1/53:5353"]);
        assert_eq!(
            after(&words("user,loopback"), "--map-host-loopback"),
            ["10.0.2.2"]
        );
    }

    #[test]
    fn refusals_name_the_value_and_the_way_out() {
        for (text, part) in [
            ("", "write user"),
            ("bridge", "write user"),
            ("user,", "is none of its keys"),
            ("user,forwards=1:2", "forwards=1:2 is none"),
            ("user,loopback=yes", "loopback=yes is none"),
            ("user,forward=80", "80 does not name two ports"),
            ("user,forward=0:80", "0:80 does not"),
            ("user,forward=80:65536", "80:65536 does not"),
            ("user,forward=host/80:80", "host/80:80 does not"),
            ("user,forward=80:1,forward=80:2", "port 80 of this host"),
        ] {
            let failure = UserNetwork::parse(text, 1).unwrap_err().text();
            assert!(failure.contains(part), "{text}: {failure}");
        }
        let many = "user".to_owned()
            + &(1..=65)
                .map(|n| format!(",forward={n}:1"))
                .collect::<String>();
        assert_eq!(UserNetwork::read(&many), Err(NetError::Many(65)));
        // The same port of another protocol, or at another address, is another port.
        assert!(UserNetwork::read("user,forward=80:1,forward-udp=80:1").is_ok());
        assert!(UserNetwork::read("user,forward=80:1,forward=127.0.0.2/80:1").is_ok());
    }

    #[test]
    fn several_guests_cannot_have_the_same_ports() {
        let failure = UserNetwork::parse("user,forward=1:1", 2)
            .unwrap_err()
            .text();
        assert!(failure.contains("leave out forward="), "{failure}");
        assert!(UserNetwork::parse("user,loopback", 2).is_ok());
    }
}
