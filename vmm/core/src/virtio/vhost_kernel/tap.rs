//! Tap devices of the host: network interfaces whose packets are read and written by a descriptor
//! (`Documentation/networking/tuntap.rst` of the kernel).
#![allow(unsafe_code)] // Operations on the descriptor have no safe form.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::ioctl::{self, IntegerSetter, Setter, Updater, opcode};

/// Where descriptors of tap devices come from.
const DEVICE: &str = "/dev/net/tun";
/// `TUNSETIFF`, `TUNSETOFFLOAD` and `TUNSETVNETHDRSZ` (include/uapi/linux/if_tun.h, which gives the
/// first one the size of an `int`, too).
const SET_INTERFACE: ioctl::Opcode = opcode::write::<i32>(b'T', 202);
const SET_OFFLOADS: ioctl::Opcode = opcode::write::<u32>(b'T', 208);
const SET_HEADER_BYTES: ioctl::Opcode = opcode::write::<i32>(b'T', 216);
/// `IFF_TAP`, `IFF_NO_PI` and `IFF_VNET_HDR`: Ethernet frames behind the header of virtio.
const FLAGS: u16 = 0x0002 | 0x1000 | 0x4000;
/// Bytes of that header in devices of version 1 (Virtual I/O Device Version 1.2, 5.1.6).
const HEADER_BYTES: i32 = 12;
/// Longest name of an interface in bytes (`IFNAMSIZ` - 1).
const NAME_BYTES_MAX: usize = 15;
/// Longest packet in bytes, without its Ethernet header, of a device that does not say.
const MTU: u16 = 1500;
/// Bytes of `struct ifreq` behind the name and the flags.
const REST_BYTES: usize = 22;

/// An open tap device, whose packets nobody else gets.
#[derive(Debug)]
pub struct Tap {
    file: File,
    mtu: u16,
}

/// Why a tap device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The host has no such interface.
    #[error(
        "this host has no tap device {0}: `sudo ip tuntap add dev {0} mode tap user $USER` makes \
         one"
    )]
    Missing(String),
    /// The kernel refuses it.
    #[error(
        "cannot use the tap device {name}: it must be in mode tap, belong to this user and not be \
         in use by another VM, and /dev/net/tun must be there"
    )]
    Refused {
        /// Name of the interface.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// `struct ifreq` (include/uapi/linux/if.h), as far as tap devices use it.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES_MAX + 1],
    flags: u16,
    rest: [u8; REST_BYTES],
}

impl Tap {
    /// Opens the tap device `name` of this host, which must exist.
    ///
    /// # Errors
    /// [`TapError`].
    pub fn open(name: &str) -> Result<Self, TapError> {
        // The kernel would make what does not exist, if it may.
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains('/');
        let folder = Path::new("/sys/class/net").join(name);
        if !is_name || !folder.join("tun_flags").exists() {
            return Err(TapError::Missing(name.to_owned()));
        }
        let mtu = std::fs::read_to_string(folder.join("mtu")).unwrap_or_default();
        let mtu = mtu.trim().parse().unwrap_or(MTU);
        Self::attach(name, mtu).map_err(|source| TapError::Refused {
            name: name.to_owned(),
            source,
        })
    }

    fn attach(name: &str, mtu: u16) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        let mut request = Request {
            name: [0; NAME_BYTES_MAX + 1],
            flags: FLAGS,
            rest: [0; REST_BYTES],
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: the kernel copies a `struct ifreq`, which `Request` is in size and layout, and
        // writes back no more than that.
        unsafe { ioctl::ioctl(&file, Updater::<SET_INTERFACE, Request>::new(&mut request))? };
        // SAFETY: the kernel reads one integer behind the pointer.
        unsafe { ioctl::ioctl(&file, Setter::<SET_HEADER_BYTES, i32>::new(HEADER_BYTES))? };
        Ok(Self { file, mtu })
    }

    /// Returns the longest packet in bytes, without its Ethernet header.
    pub(super) fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Tells the kernel which work on packets it may leave to their reader, as bits `TUN_F_…`.
    pub(super) fn set_offloads(&self, bits: usize) -> io::Result<()> {
        // SAFETY: the kernel takes the argument as a number, not as an address: callers pass bits
        // that it knows, or get an error.
        unsafe { ioctl::ioctl(&self.file, IntegerSetter::<SET_OFFLOADS>::new_usize(bits))? };
        Ok(())
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_tap_device_is_refused_with_the_way_out() {
        assert_eq!(size_of::<Request>(), 40, "as the kernel's");
        for name in ["", "lo", "no-such-tap", "../lo", "much-too-long-a-name"] {
            let error = Tap::open(name).unwrap_err();
            assert!(matches!(error, TapError::Missing(_)), "{name}: {error}");
            assert!(error.to_string().contains("sudo ip tuntap add"), "{error}");
        }
    }
}
