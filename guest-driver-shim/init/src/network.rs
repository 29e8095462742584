//! A network interface of the guest, with addresses that the host chose.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Addresses of a guest's network interface. The guest needs no DHCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Hardware address, by which the guest finds the interface.
    pub mac: Mac,
    /// The guest's address, and how many of its bits are those of its network, 1 to 32; `None` if
    /// the interface has no address of its own.
    pub address: Option<(Ipv4Addr, u8)>,
    /// Where packets for other networks go.
    pub gateway: Option<Ipv4Addr>,
    /// What answers questions for names.
    pub nameserver: Option<Ipv4Addr>,
}

/// A hardware address: `02:00:00:12:34:56`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

/// The text is not a hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write six pairs of hexadecimal digits, such as 02:00:00:12:34:56")]
pub struct MacError;

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let parse = |pair: &str| {
            let is_pair = pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_pair.then(|| u8::from_str_radix(pair, 16).ok())?
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(parse).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(MacError)
    }
}

/// Reads an address with the number of its network's bits: `10.0.2.15/24`.
#[must_use]
pub fn address_of(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let bits = bits.parse().ok().filter(|bits| (1..=32).contains(bits))?;
    Some((address.parse().ok()?, bits))
}

/// Stands for an address that an interface does not have.
const NONE: &str = "-";

impl Network {
    /// Returns `MAC,ADDRESS/BITS,GATEWAY,NAMESERVER`.
    pub(crate) fn render(&self) -> OsString {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let address = self.address.map(|(it, bits)| format!("{it}/{bits}"));
        let plain = |address: Option<Ipv4Addr>| or_none(address.map(|it| it.to_string()));
        let words = [
            self.mac.to_string(),
            or_none(address),
            plain(self.gateway),
            plain(self.nameserver),
        ];
        words.join(",").into()
    }

    pub(crate) fn parse(text: &OsStr) -> Option<Self> {
        let words: Vec<&str> = text.to_str()?.split(',').collect();
        let [mac, address, gateway, nameserver] = words[..] else {
            return None;
        };
        Some(Self {
            mac: mac.parse().ok()?,
            address: optional(address, address_of)?,
            gateway: optional(gateway, |text| text.parse().ok())?,
            nameserver: optional(nameserver, |text| text.parse().ok())?,
        })
    }
}

/// Returns `Some(None)` for what is absent, and `None` for what is not valid.
fn optional<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    match text {
        NONE => Some(None),
        text => parse(text).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_come_back_as_they_were() {
        let full = Network {
            mac: Mac([2, 0, 0, 0x12, 0xab, 6]),
            address: Some((Ipv4Addr::new(10, 0, 2, 15), 24)),
            gateway: Some(Ipv4Addr::new(10, 0, 2, 2)),
            nameserver: Some(Ipv4Addr::new(10, 0, 2, 3)),
        };
        let bare = Network {
            address: None,
            gateway: None,
            nameserver: None,
            ..full
        };
        for network in [full, bare] {
            assert_eq!(Network::parse(&network.render()), Some(network));
        }
    }

    #[test]
    fn odd_texts_are_no_networks() {
        for bad in [
            "",
            "02:00:00:00:00:01",
            "02:00:00:00:00,-,-,-",
            "02:00:00:00:00:01:02,-,-,-",
            "02:00:00:00:00:+1,-,-,-",
            "02:00:00:00:00:01,10.0.2.15,-,-",
            "02:00:00:00:00:01,10.0.2.15/0,-,-",
            "02:00:00:00:00:01,10.0.2.15/33,-,-",
            "02:00:00:00:00:01,-,10.0.2,-",
            "02:00:00:00:00:01,-,-,-,-",
        ] {
            assert_eq!(Network::parse(OsStr::new(bad)), None, "{bad}");
        }
    }
}
