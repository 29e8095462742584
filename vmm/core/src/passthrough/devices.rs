//! The devices of a VM, from the first reset to the last.
//!
//! Guest memory is mapped for DMA when the devices are open, before the guest runs, at its
//! guest-physical addresses. In the end virtual CPUs stop first, then each device is stopped and
//! reset, then the last of them is closed and memory is unmapped, and only then may it go. The
//! aperture is not mapped: what a device reads or writes there faults in the IOMMU.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use causeway_host_vfio::{Address, Container, Device, DeviceEvent, DmaError, VfioDeviceFd, Watch};
use causeway_protocol::Access;

use super::function::PassthroughFunction;
use super::report::DeviceReport;
use super::slots::SlotNumbers;
use super::source::{DeviceSource, PassThroughError};
use crate::bus::MmioBus;
use crate::error_chain::chain;
use crate::hypervisor::MemorySlots;
use crate::interrupts::InterruptController;
use crate::memory::GuestRam;
use crate::pci::{BarAllocator, Devices};

/// Most events of a device that are kept for the report.
const EVENTS_MAX: usize = 16;

/// The parts of a VM that its devices use.
pub struct Surroundings<'a> {
    /// Where BARs are decoded.
    pub bus: &'a Arc<MmioBus>,
    /// Where there is room for BARs of 32 bits.
    pub low: &'a mut BarAllocator,
    /// Where there is room for BARs of 64 bits.
    pub high: &'a mut BarAllocator,
    /// One past the highest guest-physical address.
    pub address_end: u64,
    /// Guest memory, which devices reach.
    pub ram: &'a GuestRam,
    /// Interrupts.
    pub controller: &'a Arc<InterruptController>,
    /// Memory slots.
    pub slots: &'a Arc<dyn MemorySlots>,
    /// Numbers of slots that are left.
    pub numbers: &'a mut SlotNumbers,
}

/// A device, and what is known of it.
struct Passed {
    address: Address,
    function: Arc<PassthroughFunction>,
    watch: Option<Watch>,
    events: Vec<String>,
}

/// The host's devices that are passed through to one VM. A drop returns them to the host; the VM's
/// virtual CPUs must have stopped before.
#[derive(Default)]
pub struct PassthroughDevices {
    devices: Vec<Passed>,
    reports: Vec<DeviceReport>,
    /// Outlives the devices.
    container: Option<Arc<Container>>,
}

debug_by_name!(PassthroughDevices, Surroundings<'_>);

impl PassthroughDevices {
    /// Opens the devices of `source`, gives them the guest's memory, and puts them on bus 0, at the
    /// first places that are free in `bus`.
    ///
    /// # Errors
    /// [`PassThroughError`]: the errors of [`DeviceSource::open`], `Dma` if the devices cannot have
    /// guest memory, `Room`, `Bus`, `Map` or `Decode` if a device does not fit into the guest,
    /// `Interrupts` if no interrupts are left. The devices are given back.
    pub fn new(
        source: &dyn DeviceSource,
        bus: &mut Devices,
        kvm: &dyn Fn() -> io::Result<VfioDeviceFd>,
        mut at: Surroundings<'_>,
    ) -> Result<Self, PassThroughError> {
        let (container, devices) = source.open(kvm)?;
        let mut passed = Self {
            devices: Vec::with_capacity(devices.len()),
            reports: Vec::new(),
            container: Some(Arc::clone(&container)),
        };
        if !devices.is_empty() {
            map_memory(&container, at.ram)?;
        }
        for (index, device) in devices.into_iter().enumerate() {
            let address = device.address();
            let number = free(bus, address)?;
            let watch = watch(&device);
            let function = PassthroughFunction::new(device, number as u8, index, &mut at)?;
            let function = Arc::new(function);
            bus[number] = Some(Arc::clone(&function) as _);
            passed.devices.push(Passed {
                address,
                function,
                watch,
                events: Vec::new(),
            });
        }
        Ok(passed)
    }

    /// Returns descriptors that are readable when an event of a device has come, with the device's
    /// index.
    pub fn watched(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let watches = self.devices.iter().map(|device| device.watch.as_ref());
        let indexed = watches.enumerate();
        indexed.filter_map(|(index, watch)| Some((index, watch?.as_fd())))
    }

    /// Returns the events of a device since the last call, and its address.
    pub fn take_events(&mut self, index: usize) -> Option<(Address, Vec<DeviceEvent>)> {
        let device = self.devices.get_mut(index)?;
        let events = device.watch.as_ref()?.take();
        let room = EVENTS_MAX.saturating_sub(device.events.len());
        let kept = events.iter().take(room);
        device.events.extend(kept.map(DeviceEvent::to_string));
        Some((device.address, events))
    }

    /// Gives the devices back, and guest memory with them. No virtual CPU may run any more.
    pub fn release(&mut self) {
        let Some(container) = self.container.take() else {
            return;
        };
        let (held_by, dma) = (container.kind().to_string(), container.statistics());
        for device in std::mem::take(&mut self.devices) {
            // First, since it holds the device, too.
            drop(device.watch);
            let report = device.function.release();
            self.reports.extend(report.map(|report| DeviceReport {
                held_by: held_by.clone(),
                dma_bytes: dma.bytes,
                events: device.events,
                ..report
            }));
        }
        // Mapped still only if a device could not be closed, or there is none.
        if let Err(e) = container.unmap_all_dma() {
            log::error!("{}", chain(&e));
        }
    }

    /// Returns the reports on the devices, once they are given back.
    pub fn reports(&self) -> &[DeviceReport] {
        &self.reports
    }
}

impl Drop for PassthroughDevices {
    fn drop(&mut self) {
        self.release();
    }
}

/// Lets the container's devices reach all guest memory, at its guest-physical addresses.
fn map_memory(container: &Container, ram: &GuestRam) -> Result<(), DmaError> {
    ram.regions().try_for_each(|region| {
        let bytes = region.bytes();
        container.map_dma(region.base(), region.memory(), 0, bytes, Access::ReadWrite)
    })
}

/// Returns the first place of the bus that is free.
fn free(bus: &Devices, address: Address) -> Result<usize, PassThroughError> {
    let free = bus.iter().position(Option::is_none);
    free.ok_or(PassThroughError::Bus { address })
}

/// Watches a device. Without it, nobody learns that the host wants it back.
fn watch(device: &Device) -> Option<Watch> {
    let watch = device.watch();
    watch.map_err(|e| log::warn!("{}", chain(&e))).ok()
}
