//! The virtio devices of a VM that boots an operating system.

use std::sync::Arc;

use super::error::VmError;
use super::processors::Processors;
use crate::bus::MmioBus;
use crate::hypervisor::IoEvents;
use crate::linux::{Disk, Linux};
use crate::pci::{BarAllocator, Devices};
use crate::virtio::OutsideError;
use crate::virtio::{Block, Device, Entropy, Surroundings, VirtioError, VirtioFunction};

/// Device number of the source of random numbers on PCI bus 0; disks follow it in their order, then
/// devices that are served outside of this process.
const ENTROPY_DEVICE: u8 = 2;
/// What threads of devices are called that are served outside of this process.
const OUTSIDE: &str = "outside";
/// Width of the stores that notify a virtio device.
const NOTIFICATION_BYTES: u32 = 2;

/// Puts the virtio devices of `linux` and a source of random numbers on PCI bus 0 of the VM called
/// `name`. Does nothing without an interrupt controller.
pub(super) fn add(
    devices: &mut Devices,
    processors: &Processors,
    bus: &Arc<MmioBus>,
    bars: &mut BarAllocator,
    linux: &Linux,
    name: &str,
) -> Result<(), VmError> {
    let Some(controller) = &processors.interrupts else {
        return Ok(());
    };
    let events = processors.hypervisor.clone();
    let events: Arc<dyn IoEvents> = Arc::new(events.with_events_of(NOTIFICATION_BYTES));
    for (number, source) in (ENTROPY_DEVICE..).zip(sources(linux)) {
        let (kind, device) = source?;
        let surroundings = Surroundings {
            bus,
            bars,
            address_end: processors.layout.address_end,
            ram: &processors.ram,
            controller,
            events: &events,
        };
        // Linux shows 15 bytes of a thread's name.
        let thread = format!("{name:.7}/{kind}{number}");
        let place = devices
            .get_mut(usize::from(number))
            .ok_or(VirtioError::Room)?;
        *place = Some(Arc::new(VirtioFunction::new(
            number,
            &thread,
            device,
            surroundings,
        )?));
    }
    Ok(())
}

/// Returns each device with what its thread is called.
fn sources(
    linux: &Linux,
) -> impl Iterator<Item = Result<(&'static str, Device), OutsideError>> + '_ {
    let entropy = Device::Here(Box::new(Entropy));
    let disks = linux.disks.iter().map(|disk| match disk {
        Disk::Image(image) => Ok(("disk", here(Block::new(Arc::clone(image))))),
        Disk::Process(source) => Ok((OUTSIDE, source.connect()?)),
    });
    let slots = linux.slots.iter();
    let slots = slots.map(|slot| Ok(("disk", here(Block::of_slot(Arc::clone(slot))))));
    let processes = linux.processes.iter().map(|source| {
        let device = source.connect()?;
        Ok((OUTSIDE, device))
    });
    let entropy = std::iter::once(Ok(("rng", entropy)));
    entropy.chain(disks).chain(slots).chain(processes)
}

fn here(disk: Block) -> Device {
    Device::Here(Box::new(disk))
}
