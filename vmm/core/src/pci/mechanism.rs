//! Configuration mechanism #1 (PCI Local Bus Specification 3.0, 3.2.2.3.2): an address port and a
//! data port.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Devices;
use crate::bus::{BusDevice, Refusal, Response};

/// First of the I/O ports through which a guest accesses PCI configuration space (configuration
/// mechanism #1).
pub const CONFIG_PORTS: u16 = 0xcf8;
/// Number of I/O ports through which a guest accesses PCI configuration space (configuration
/// mechanism #1).
pub const CONFIG_PORTS_BYTES: u64 = 8;

/// Offset of the data port from the address port.
const DATA: u64 = 4;
/// Address bit 31: accesses to the data port go to configuration space.
const ENABLE: u32 = 1 << 31;
/// Address bits that stick: enable, bus, device, function, register.
const ADDRESS_WRITABLE: u32 = ENABLE | 0x00ff_fffc;

/// PCI bus 0 of a guest, as a device on the bus of I/O ports. Through an address port and a data
/// port, the guest reaches the configuration space of each PCI function.
///
/// All virtual CPUs share one address register, as on real hardware, so guest software must not use
/// the two ports from several CPUs at once.
pub struct PciBus {
    address: AtomicU32,
    devices: Devices,
}

debug_by_name!(PciBus);

impl PciBus {
    /// Returns PCI bus 0 with the functions `devices`, whose index is the device number.
    pub fn new(devices: Devices) -> Self {
        Self {
            address: AtomicU32::new(0),
            devices,
        }
    }

    /// Returns the device that the address selects, if there is one, and the register.
    fn selected(&self, offset: u64) -> Option<(&dyn super::ConfigAccess, u8)> {
        let address = self.address.load(Ordering::Acquire);
        let [register, function, bus, _] = address.to_le_bytes();
        let (device, function) = (function >> 3, function & 7);
        if address & ENABLE == 0 || bus != 0 || function != 0 {
            return None;
        }
        let device = self.devices[usize::from(device)].as_deref()?;
        Some((device, register + (offset - DATA) as u8))
    }
}

impl BusDevice for PciBus {
    fn name(&self) -> &'static str {
        "pci"
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        if offset >= DATA {
            match self.selected(offset) {
                Some((device, register)) => device.read_config(register, into),
                None => into.fill(0xff), // What a guest expects of a device that is not there.
            }
            return Response::ok("config_data");
        }
        let Ok(word) = <&mut [u8; 4]>::try_from(into) else {
            return Response::refused(Refusal::BadSize);
        };
        if offset != 0 {
            return Response::refused(Refusal::Misaligned);
        }
        *word = self.address.load(Ordering::Acquire).to_le_bytes();
        Response::ok("config_address")
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        if offset >= DATA {
            if let Some((device, register)) = self.selected(offset) {
                device.write_config(register, from);
            }
            return Response::ok("config_data");
        }
        let Ok(word) = <[u8; 4]>::try_from(from) else {
            return Response::refused(Refusal::BadSize);
        };
        if offset != 0 {
            return Response::refused(Refusal::Misaligned);
        }
        let address = u32::from_le_bytes(word) & ADDRESS_WRITABLE;
        self.address.store(address, Ordering::Release);
        Response::ok("config_address")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{Port, PortBus};
    use crate::pci::host_bridge;
    use std::sync::Arc;

    fn ports() -> PortBus {
        let mut devices = Devices::default();
        devices[0] = Some(host_bridge());
        let ports = PortBus::new(Arc::default());
        ports
            .insert(
                Port(CONFIG_PORTS),
                CONFIG_PORTS_BYTES,
                Arc::new(PciBus::new(devices)),
            )
            .unwrap();
        ports
    }

    fn select(ports: &PortBus, address: u32) {
        let hit = ports.write(Port(0xcf8), &address.to_le_bytes());
        assert_eq!((hit.register, hit.result), ("config_address", Ok(())));
    }

    fn read<const N: usize>(ports: &PortBus, port: u16) -> [u8; N] {
        let mut bytes = [0; N];
        assert_eq!(ports.read(Port(port), &mut bytes).result, Ok(()));
        bytes
    }

    #[test]
    fn the_bridge_is_found_by_dwords_words_and_bytes() {
        let ports = ports();
        select(&ports, ENABLE);
        let ids = u32::from_le_bytes(read(&ports, 0xcfc));
        assert_eq!(ids as u16, causeway_protocol::pci::VENDOR_ID);
        assert_eq!(u16::from_le_bytes(read(&ports, 0xcfe)), 0x0100);
        select(&ports, ENABLE | 8);
        assert_eq!(read::<1>(&ports, 0xcff), [6], "class code");
    }

    #[test]
    fn what_is_not_there_reads_all_ones() {
        let ports = ports();
        for address in [0, ENABLE | 1 << 11, ENABLE | 1 << 8, ENABLE | 1 << 16] {
            select(&ports, address);
            assert_eq!(read::<4>(&ports, 0xcfc), [0xff; 4], "{address:#x}");
        }
    }

    #[test]
    fn the_address_port_takes_dwords_only_and_keeps_reserved_bits_zero() {
        let ports = ports();
        select(&ports, 0xffff_ffff);
        assert_eq!(u32::from_le_bytes(read(&ports, 0xcf8)), 0x80ff_fffc);
        for port in 0xcf8..0xcfc {
            let refused = ports.write(Port(port), &[0]).result;
            assert_eq!(refused, Err(Refusal::BadSize));
        }
        let crossing = ports.read(Port(0xcfa), &mut [0; 4]).result;
        assert_eq!(crossing, Err(Refusal::Misaligned));
        assert_eq!(u32::from_le_bytes(read(&ports, 0xcf8)), 0x80ff_fffc);
    }

    #[test]
    fn an_access_past_the_data_port_is_refused() {
        let ports = ports();
        select(&ports, ENABLE | 0xfc);
        let refused = ports.read(Port(0xcfe), &mut [0; 4]).result;
        assert_eq!(refused, Err(Refusal::CrossesEdge));
    }
}
