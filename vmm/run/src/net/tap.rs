//! An interface on a tap device of this host, by its kernel: `--net tap=NAME[,KEY=VALUE]...`.

use std::net::Ipv4Addr;

use causeway_init::{Mac, Network, address_of};
use causeway_vmm::virtio::Device;
use causeway_vmm::virtio::vhost_kernel::{KernelDevice, Tap};
use causeway_vmm::virtio::{OutsideError, OutsideSource};
use parking_lot::Mutex;

use super::NetError;

/// First byte of hardware addresses that follow from the tap device's name: locally administered.
const MAC_BEGIN: u8 = 0x02;

/// What `--net` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapNetwork {
    name: String,
    addresses: Network,
}

impl TapNetwork {
    /// Reads the words behind `tap=NAME`.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn read<'a>(name: &str, words: impl Iterator<Item = &'a str>) -> Result<Self, NetError> {
        let mut addresses = Network {
            mac: mac_of(name),
            address: None,
            gateway: None,
            nameserver: None,
        };
        for word in words {
            let wrong = || NetError::Value(word.to_owned());
            match word.split_once('=') {
                Some(("address", text)) => {
                    addresses.address = Some(address_of(text).ok_or_else(wrong)?);
                }
                Some(("gateway", text)) => addresses.gateway = Some(plain(text).ok_or_else(wrong)?),
                Some(("nameserver", text)) => {
                    addresses.nameserver = Some(plain(text).ok_or_else(wrong)?);
                }
                Some(("mac", text)) => addresses.mac = mac(text).ok_or_else(wrong)?,
                _ => {
                    return Err(NetError::Key {
                        word: word.to_owned(),
                        keys: "address=ADDRESS/BITS, gateway=ADDRESS, nameserver=ADDRESS, mac=MAC",
                    });
                }
            }
        }
        if addresses.gateway.is_some() && addresses.address.is_none() {
            return Err(NetError::Gateway);
        }
        Ok(Self {
            name: name.to_owned(),
            addresses,
        })
    }

    /// Returns the addresses that the guest gets.
    pub const fn addresses(&self) -> Network {
        self.addresses
    }
}

fn plain(text: &str) -> Option<Ipv4Addr> {
    text.parse().ok()
}

/// Reads a hardware address of one interface: not of a group.
fn mac(text: &str) -> Option<Mac> {
    let mac: Mac = text.parse().ok()?;
    (mac.0[0] & 1 == 0 && mac.0 != [0; 6]).then_some(mac)
}

/// Returns a hardware address that guests on other tap devices of this host do not have, as far as
/// 40 bits tell names apart (FNV-1a).
fn mac_of(name: &str) -> Mac {
    let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, fold);
    let [_, _, _, a, b, c, d, e] = hash.to_be_bytes();
    Mac([MAC_BEGIN, a, b, c, d, e])
}

/// The interface of a VM.
#[derive(Debug)]
pub struct OnTap {
    network: TapNetwork,
    ready: Mutex<Option<KernelDevice>>,
}

/// Why the guest has no interface.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve --net tap={name}; that needs the kernel's module vhost_net (modprobe vhost_net), \
     and the right to open its device"
)]
struct ServeError {
    name: String,
    source: OutsideError,
}

impl OnTap {
    /// Opens nothing yet.
    pub const fn of(network: TapNetwork) -> Self {
        Self {
            network,
            ready: Mutex::new(None),
        }
    }
}

impl OutsideSource for OnTap {
    fn prepare(&self, _: u32) -> Result<(), OutsideError> {
        let name = &self.network.name;
        let tap = Tap::open(name).map_err(|e| OutsideError::Start(Box::new(e)))?;
        let device = KernelDevice::net(tap, self.network.addresses.mac.0).map_err(|source| {
            let name = name.clone();
            OutsideError::Start(Box::new(ServeError { name, source }))
        });
        *self.ready.lock() = Some(device?);
        Ok(())
    }

    fn connect(&self) -> Result<Device, OutsideError> {
        let ready = self.ready.lock().take();
        let device = ready.ok_or_else(|| OutsideError::Ended(String::from("vhost-net")))?;
        Ok(Device::Kernel(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_addresses_of_their_own_that_stay() {
        let addresses = ["tap0", "tap1", "vm", ""].map(|name| mac_of(name).0);
        for (at, one) in addresses.iter().enumerate() {
            assert!(!addresses[..at].contains(one), "{one:?}");
            assert_eq!(one[0] & 3, 2, "one interface's, given out by nobody");
        }
        assert_eq!(mac_of("tap0"), mac_of("tap0"));
    }
}
