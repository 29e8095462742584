//! The virtio devices of a VM that boots an operating system.

use std::sync::Arc;

use super::error::VmError;
use super::processors::Processors;
use crate::bus::MmioBus;
use crate::hypervisor::IoEvents;
use crate::pci::{BarAllocator, Devices};
use crate::virtio::{
    Block, DiskImage, Entropy, Surroundings, VirtioDevice, VirtioError, VirtioFunction,
};

/// Device number of the source of random numbers on PCI bus 0; disks follow it in their order.
const ENTROPY_DEVICE: u8 = 2;
/// Width of the stores that notify a virtio device.
const NOTIFICATION_BYTES: u32 = 2;

/// Puts a source of random numbers and `disks` on PCI bus 0 of the VM called `name`. Does nothing
/// without an interrupt controller.
pub(super) fn add(
    devices: &mut Devices,
    processors: &Processors,
    bus: &Arc<MmioBus>,
    bars: &mut BarAllocator,
    disks: &[Arc<DiskImage>],
    name: &str,
) -> Result<(), VmError> {
    let Some(controller) = &processors.interrupts else {
        return Ok(());
    };
    let events = processors.hypervisor.clone();
    let events: Arc<dyn IoEvents> = Arc::new(events.with_events_of(NOTIFICATION_BYTES));
    let entropy: (&str, Box<dyn VirtioDevice>) = ("rng", Box::new(Entropy));
    let disks = disks
        .iter()
        .map(|disk| ("disk", Box::new(Block::new(Arc::clone(disk))) as _));
    for (number, (kind, device)) in (ENTROPY_DEVICE..).zip([entropy].into_iter().chain(disks)) {
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
