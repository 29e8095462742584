//! A network as a program of this user has it: `--net user[,forward=HOST:GUEST]...`, by `passt`.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_init::{Mac, Network};
use causeway_vmm::virtio::Description;
use causeway_vmm::virtio::vhost_user::DeviceProcess;

use super::NetError;
use crate::device_process::{End, Program, Service, ServiceError, Start};

static PROGRAM: Program = Program {
    name: "passt",
    folders: &["/usr/bin", "/usr/sbin"],
    option: "--passt",
    serves: "--net user",
    install: "Debian 13, Ubuntu 25.04 and Fedora: apt or dnf install passt; it must be of 2024-11 \
              or later",
    last_line_says_why: true,
    end: End::Connection,
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
pub const FORWARDS_MAX: usize = 64;

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

impl UserNetwork {
    /// Reads the value `text` of `--net`, whose words behind the kind are `words`.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn read<'a>(text: &str, words: impl Iterator<Item = &'a str>) -> Result<Self, NetError> {
        let mut network = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        for word in words {
            match word.split_once('=') {
                Some(("forward", ports)) => network.tcp.push(forward(ports)?),
                Some(("forward-udp", ports)) => network.udp.push(forward(ports)?),
                None if word == "loopback" => network.loopback = true,
                _ => {
                    return Err(NetError::Key {
                        word: word.to_owned(),
                        keys: "forward=HOST:GUEST, forward-udp=HOST:GUEST, loopback",
                    });
                }
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

    /// Returns whether ports of the host lead to the guest.
    pub fn has_forwards(&self) -> bool {
        self.forwards().next().is_some()
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
            program: self.program.clone(),
            command,
            input: input.into(),
            stream,
            what: format!(
                "--net {} (it must be of 2024-11 or later)",
                self.network.text
            ),
            echo: String::new(),
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
        let words = |text: &str| {
            let network = UserNetwork::read(text, text.split(',').skip(1));
            network.unwrap().words()
        };
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
}
