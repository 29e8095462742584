//! Devices of a machine with an IOMMU, which are there to be handed out, and where they are.
//!
//! Each is alone behind a root port, so that it is alone in its IOMMU group and can be reset
//! through its slot; but [`SHARED`] and [`NEIGHBOUR`], which are functions of one device on the
//! root bus, in one group and without a reset.

use std::os::fd::RawFd;

use crate::machine::Machine;

/// A device of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostDevice {
    /// Its address on the bus, as Linux writes it.
    pub address: &'static str,
    /// Vendor and device ID.
    pub ids: (u16, u16),
    /// What QEMU calls it, with its properties.
    model: &'static str,
    /// Device number on the root bus, of itself or of its port, and function number.
    slot: (u8, u8),
}

/// Vendor and device ID of QEMU's educational device.
const EDU_IDS: (u16, u16) = (0x1234, 0x11e8);
/// Vendor and device ID of virtio's random numbers (Virtio 1.2, 5.4: 0x1040 and device type 4).
const RANDOM_IDS: (u16, u16) = (0x1af4, 0x1044);
/// Vendor and device ID of QEMU's memory device.
const MEMORY_IDS: (u16, u16) = (0x1af4, 0x1110);

/// QEMU's educational device: registers, DMA, INTx and MSI. Its DMA reaches all memory.
pub const EDU: HostDevice = HostDevice {
    address: "0000:01:00.0",
    ids: EDU_IDS,
    model: "edu,dma_mask=0xffffffffff",
    slot: (0x10, 0),
};
/// Another one.
pub const OTHER_EDU: HostDevice = HostDevice {
    address: "0000:02:00.0",
    slot: (0x11, 0),
    ..EDU
};
/// Memory behind BAR 2: [`MEMORY_BYTES`] bytes.
pub const MEMORY: HostDevice = HostDevice {
    address: "0000:03:00.0",
    ids: MEMORY_IDS,
    model: "ivshmem-plain,memdev=memory",
    slot: (0x12, 0),
};
/// Random numbers, by virtio.
pub const RANDOM: HostDevice = HostDevice {
    address: "0000:04:00.0",
    ids: RANDOM_IDS,
    model: "virtio-rng-pci,iommu_platform=on,disable-legacy=on",
    slot: (0x13, 0),
};
/// An educational device that shares its group with [`NEIGHBOUR`].
pub const SHARED: HostDevice = HostDevice {
    address: "0000:00:14.0",
    model: "edu,multifunction=on",
    slot: (0x14, 0),
    ..EDU
};
/// What shares its group with [`SHARED`].
pub const NEIGHBOUR: HostDevice = HostDevice {
    address: "0000:00:14.1",
    slot: (0x14, 1),
    ..RANDOM
};

/// Doorbells: [`DOORBELL_VECTORS`] MSI-X vectors, each raised by a store to a register of the
/// device's own.
pub const DOORBELL: HostDevice = HostDevice {
    address: "0000:05:00.0",
    ids: MEMORY_IDS,
    model: "ivshmem-doorbell,vectors=4,chardev=doorbell",
    slot: (0x15, 0),
};

/// Vectors of [`DOORBELL`].
pub const DOORBELL_VECTORS: usize = 4;
/// Bytes of [`MEMORY`]'s memory.
pub const MEMORY_BYTES: u64 = 64 << 20;

const BEHIND_PORTS: [HostDevice; 5] = [EDU, OTHER_EDU, MEMORY, RANDOM, DOORBELL];
const ON_THE_ROOT_BUS: [HostDevice; 2] = [SHARED, NEIGHBOUR];

/// What the kernel is told beside what it is told without an IOMMU. It tries whether the timer
/// interrupts, for some ticks, and panics where interrupts are remapped and it does not: as when
/// the host is too busy to emulate so many ticks in time.
pub(crate) const KERNEL_WORDS: &str = " intel_iommu=on no_timer_check";

/// Arguments of the emulator, with their values; `doorbell` is [`DOORBELL`]'s connection. Firmware
/// numbers the buses behind ports in the order of the ports.
pub(crate) fn arguments(doorbell: RawFd) -> Vec<(&'static str, String)> {
    let memory = format!("memory-backend-memfd,id=memory,size={MEMORY_BYTES},share=on");
    let mut words = vec![
        // Before all that it is to hold.
        (
            "-device",
            "intel-iommu,intremap=on,caching-mode=on".to_owned(),
        ),
        ("-object", memory),
        ("-chardev", format!("socket,id=doorbell,fd={doorbell}")),
    ];
    for device in BEHIND_PORTS {
        let slot = device.slot.0;
        let port = format!("pcie-root-port,id=port{slot},bus=pcie.0,addr={slot:#x},chassis={slot}");
        words.push(("-device", port));
        words.push(("-device", format!("{},bus=port{slot}", device.model)));
    }
    for device in ON_THE_ROOT_BUS {
        let (slot, function) = device.slot;
        let place = format!("bus=pcie.0,addr={slot:#x}.{function}");
        words.push(("-device", format!("{},{place}", device.model)));
    }
    words
}

impl HostDevice {
    /// A file of it in sysfs.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        format!("/sys/bus/pci/devices/{}/{name}", self.address)
    }

    /// The driver that it is bound to.
    ///
    /// # Panics
    /// If the machine has no such device.
    #[track_caller]
    #[must_use]
    pub fn driver(&self, machine: &Machine) -> Option<String> {
        let text = self.read(machine, "uevent");
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("DRIVER=").map(str::to_owned))
    }

    /// Has a driver take it, if it has not done so already.
    ///
    /// # Panics
    /// If the machine fails, or the driver does not want it.
    #[track_caller]
    pub fn bind(&self, machine: &Machine, driver: &str) {
        if self.driver(machine).as_deref() == Some(driver) {
            return;
        }
        self.unbind(machine);
        self.write(machine, "driver_override", driver);
        machine.write("/sys/bus/pci/drivers_probe", 0o200, self.address.as_bytes());
        assert_eq!(self.driver(machine).as_deref(), Some(driver), "{self:?}");
    }

    /// Has no driver have it.
    ///
    /// # Panics
    /// If the machine fails.
    #[track_caller]
    pub fn unbind(&self, machine: &Machine) {
        if self.driver(machine).is_some() {
            self.write(machine, "driver/unbind", self.address);
        }
    }

    /// Asserts that it is where it should be.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn assert_present(&self, machine: &Machine) {
        let (vendor, device) = self.ids;
        let ids = ["vendor", "device"].map(|name| self.read(machine, name));
        let wanted = [vendor, device].map(|id| format!("{id:#06x}\n"));
        assert_eq!(ids, wanted, "{self:?}");
    }

    #[track_caller]
    fn read(&self, machine: &Machine, name: &str) -> String {
        let bytes = machine.read(&self.file(name));
        let bytes = bytes.unwrap_or_else(|error| panic!("{self:?}: {error}"));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[track_caller]
    fn write(&self, machine: &Machine, name: &str, text: &str) {
        machine.write(&self.file(name), 0o644, text.as_bytes());
    }
}

/// All devices that are there to be handed out.
pub fn all() -> impl Iterator<Item = HostDevice> {
    BEHIND_PORTS.into_iter().chain(ON_THE_ROOT_BUS)
}
