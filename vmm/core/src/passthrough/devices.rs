//! The devices that are passed through to a VM, from their first reset to their last.
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

/// The parts of a VM that the VMM needs to connect passed-through devices to its guest.
pub struct Surroundings<'a> {
    /// The bus on which the guest accesses the devices' BARs.
    pub bus: &'a Arc<MmioBus>,
    /// Free guest-physical addresses for BARs with 32-bit addresses.
    pub low: &'a mut BarAllocator,
    /// Free guest-physical addresses for BARs with 64-bit addresses.
    pub high: &'a mut BarAllocator,
    /// End of the guest-physical addresses: one more than the highest address.
    pub address_end: u64,
    /// The guest's RAM, to which the devices get access by DMA.
    pub ram: &'a GuestRam,
    /// The VM's interrupt controller, which provides the devices' interrupts.
    pub controller: &'a Arc<InterruptController>,
    /// The hypervisor interface that adds and deletes memory slots, for the devices' BARs.
    pub slots: &'a Arc<dyn MemorySlots>,
    /// Numbers of memory slots that are still free for the devices.
    pub numbers: &'a mut SlotNumbers,
}

/// A device, and what is known of it.
struct Passed {
    address: Address,
    function: Arc<PassthroughFunction>,
    watch: Option<Watch>,
    events: Vec<String>,
}

/// The host's devices that are passed through to one VM. Dropping this value returns the devices to
/// the host; before that, the VM's virtual CPUs must have stopped.
#[derive(Default)]
pub struct PassthroughDevices {
    devices: Vec<Passed>,
    reports: Vec<DeviceReport>,
    /// Outlives the devices.
    container: Option<Arc<Container>>,
}

debug_by_name!(PassthroughDevices, Surroundings<'_>);

impl PassthroughDevices {
    /// Opens the devices of `source`, lets them access guest RAM by DMA, and gives them the first
    /// free device numbers of the guest's PCI bus `bus`. `kvm` creates KVM's VFIO device, which has
    /// to be told of each device.
    ///
    /// # Errors
    /// [`PassThroughError`]: the errors of [`DeviceSource::open`], `Dma` if guest RAM cannot be
    /// mapped for DMA, `Room`, `Bus`, `Map` or `Decode` if a device does not fit into the guest,
    /// `Interrupts` if no interrupts are left. All devices are returned to the host then.
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

    /// Returns, for each device that can report events, its index among the VM's devices and a
    /// descriptor that becomes readable when the device has an event.
    pub fn watched(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let watches = self.devices.iter().map(|device| device.watch.as_ref());
        let indexed = watches.enumerate();
        indexed.filter_map(|(index, watch)| Some((index, watch?.as_fd())))
    }

    /// Returns the events that device number `index` has reported since the last call, and the
    /// device's PCI address on the host. Returns `None` if there is no such device, or it cannot
    /// report events.
    pub fn take_events(&mut self, index: usize) -> Option<(Address, Vec<DeviceEvent>)> {
        let device = self.devices.get_mut(index)?;
        let events = device.watch.as_ref()?.take();
        let room = EVENTS_MAX.saturating_sub(device.events.len());
        let kept = events.iter().take(room);
        device.events.extend(kept.map(DeviceEvent::to_string));
        Some((device.address, events))
    }

    /// Returns the devices to the host and ends their DMA access to guest RAM. The caller must have
    /// stopped all virtual CPUs.
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

    /// Returns the reports on the devices, one for each. There are none before [`Self::release`].
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

/// Returns the first free device number of the bus.
fn free(bus: &Devices, address: Address) -> Result<usize, PassThroughError> {
    let free = bus.iter().position(Option::is_none);
    free.ok_or(PassThroughError::Bus { address })
}

/// Watches a device for events, such as the host's request to return it.
fn watch(device: &Device) -> Option<Watch> {
    let watch = device.watch();
    watch.map_err(|e| log::warn!("{}", chain(&e))).ok()
}
