//! Where PCI devices are in the tree of bridges that sysfs shows.

use std::fs;

/// The names of a device's root and of the bridges down to the device, and its own, such as
/// `pci0000:00`, `0000:00:01.0`, `0000:01:00.0`.
#[derive(Debug, PartialEq, Eq)]
pub struct Path(Vec<String>);

/// Returns the path of the PCI device with this address; `None` if sysfs does not show it.
pub fn path(address: &str) -> Option<Path> {
    let folder = fs::canonicalize(format!("/sys/bus/pci/devices/{address}")).ok()?;
    Path::parse(folder.to_str()?)
}

impl Path {
    fn parse(folder: &str) -> Option<Self> {
        let names = folder.split('/').map(str::to_owned);
        let names: Vec<String> = names.skip_while(|name| !name.starts_with("pci")).collect();
        (names.len() > 1).then_some(Self(names))
    }

    /// Returns where the way to another device turns around, in words.
    pub fn meets(&self, other: &Self) -> String {
        let shared = self
            .0
            .iter()
            .zip(&other.0)
            .take_while(|(one, other)| one == other);
        let shared: Vec<&String> = shared.map(|(one, _)| one).collect();
        match shared[..] {
            [] => String::from("behind different PCI roots"),
            [root] => format!("behind one PCI root ({root})"),
            [.., bridge] => format!("behind one PCI bridge ({bridge})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_meet_at_a_bridge_at_a_root_or_not_at_all() {
        let path = |folder| Path::parse(folder).unwrap();
        let one = path("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0");
        for (other, meet) in [
            (
                "/sys/devices/pci0000:00/0000:00:01.0/0000:01:01.0/0000:03:00.0",
                "behind one PCI bridge (0000:00:01.0)",
            ),
            (
                "/sys/devices/pci0000:00/0000:00:02.0/0000:04:00.0",
                "behind one PCI root (pci0000:00)",
            ),
            (
                "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0",
                "behind different PCI roots",
            ),
        ] {
            assert_eq!(one.meets(&path(other)), meet);
        }
        assert_eq!(Path::parse("/sys/devices/virtual/net/lo"), None);
    }
}
