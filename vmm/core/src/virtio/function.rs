//! The PCI function of a virtio device (Virtual I/O Device Version 1.2, 4.1).

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::configuration::Configuration;
use super::device::QUEUES_MAX;
use super::executor::Device;
use super::interrupts::{Interrupts, vectors};
use super::registers::{
    BAR, BAR_BYTES, CAPABILITY_VENDOR, CAPABILITY_WINDOW, COMMON_BYTES, NOTIFY_STRIDE, Structure,
};
use super::thread::Shared;
use super::transport::Transport;
use crate::bus::{BusDevice, MmioBus};
use crate::device::{DoorbellPlaces, Doorbells};
use crate::hypervisor::IoEvents;
use crate::interrupts::{InterruptController, pci_line};
use crate::memory::GuestRam;
use crate::pci::{
    BarAllocator, COMMAND_MEMORY, ConfigAccess, ConfigSpace, DecodeError, Decoders, Identity,
    MemoryBar, MsixCapability,
};
use parking_lot::Mutex;

/// Vendor ID of virtio's PCI functions (4.1.2).
const VENDOR_ID: u16 = 0x1af4;
/// Device ID of the function of a virtio device with ID 0, without the interfaces from before
/// version 1.
const DEVICE_ID_BASE: u16 = 0x1040;
/// INTA#.
const PIN: u8 = 1;

const REGISTERS: MemoryBar = MemoryBar {
    index: BAR,
    bytes: BAR_BYTES,
    wide: false,
    prefetchable: false,
};

/// Why a virtio device cannot be added to a VM.
#[derive(Debug, thiserror::Error)]
pub enum VirtioError {
    /// No address is free for the device's BAR, or no device number on the PCI bus.
    #[error("no PCI address is free for another virtio device: give the VM fewer disks")]
    Room,
    /// The host refuses a descriptor, a thread or an interrupt.
    #[error("cannot create a file descriptor, thread or interrupt for a virtio device")]
    Host(#[from] io::Error),
    /// Guest memory cannot be mapped for the device.
    #[error("cannot map guest memory into this process for a virtio device")]
    Memory(#[from] vm_memory::mmap::FromRangesError),
    /// The bus refuses the addresses of the BAR.
    #[error("cannot give a virtio device its guest-physical addresses")]
    Decode(#[from] DecodeError),
}

/// The parts of a VM that the VMM needs to connect a virtio device to its guest.
pub struct Surroundings<'a> {
    /// The bus on which the guest accesses the function's BAR.
    pub bus: &'a Arc<MmioBus>,
    /// Free guest-physical addresses, from which the function's BAR gets its own.
    pub bars: &'a mut BarAllocator,
    /// End of the guest-physical addresses: one more than the highest address.
    pub address_end: u64,
    /// The guest's RAM.
    pub ram: &'a Arc<GuestRam>,
    /// The VM's interrupt controller, which provides the function's interrupts.
    pub controller: &'a Arc<InterruptController>,
    /// The hypervisor interface with which the queues' events are registered: a 16-bit store by the
    /// guest (a notification) signals a queue's event.
    pub events: &'a Arc<dyn IoEvents>,
}

struct State {
    space: ConfigSpace,
    decoders: Decoders,
}

/// A virtio device as a PCI function of a guest.
pub struct VirtioFunction {
    transport: Arc<Transport>,
    shared: Arc<Shared>,
    /// Offset of the MSI-X capability.
    msix: usize,
    /// Offset of the capability through which the BAR can be reached.
    window: usize,
    state: Mutex<State>,
}

debug_by_name!(VirtioFunction, Surroundings<'_>);

impl VirtioFunction {
    /// Returns `device` as a PCI function that has device number `number` on the guest's bus 0. Its
    /// BAR has an address already, as firmware would leave it. A thread called `thread`
    /// executes the device's requests, or has another process execute them.
    ///
    /// # Errors
    /// [`VirtioError::Room`] if no address is free for the BAR, `Host` if the host refuses a
    /// thread, descriptor or interrupt, `Memory` if guest memory cannot be mapped, `Decode` if the
    /// bus refuses the BAR.
    ///
    /// # Panics
    /// If the device has no queue, or more than [`QUEUES_MAX`].
    pub fn new(
        number: u8,
        thread: &str,
        device: Device,
        at: Surroundings<'_>,
    ) -> Result<Self, VirtioError> {
        let (kind, configuration_bytes) = (device.kind(), device.configuration().len());
        let queues = device.queues();
        assert!((1..=QUEUES_MAX).contains(&queues), "{queues} queues");
        let bar = at.bars.place(BAR_BYTES).ok_or(VirtioError::Room)?;
        let line = pci_line(number, PIN);
        let shared = Arc::new(Shared {
            interrupts: Interrupts::new(at.controller, at.controller.line(line)?, queues)?,
            configuration: Configuration::new(device.configuration()),
            needs_reset: AtomicBool::new(false),
            ram: at.ram.view()?,
        });
        let places = DoorbellPlaces {
            first: Structure::Notify.offset(),
            stride: NOTIFY_STRIDE.into(),
            count: queues.into(),
        };
        let notifications = Arc::new(Doorbells::at(places, Arc::clone(at.events)));
        let (doorbells, state) = (Arc::clone(&notifications), Arc::clone(&shared));
        let transport = Arc::new(Transport::new(thread, device, doorbells, state)?);
        let mut space = ConfigSpace::new(Identity {
            vendor: VENDOR_ID,
            device: DEVICE_ID_BASE + kind.id,
            revision: 1,
            class: kind.class.0,
            subclass: kind.class.1,
        });
        space.add_bar(REGISTERS, bar);
        space.set_interrupt_pin(PIN, line as u8);
        let msix = space.add_msix(MsixCapability {
            vectors: vectors(queues),
            bar: BAR as u8,
            table: Structure::MsixTable.offset() as u32,
            pending: Structure::MsixPending.offset() as u32,
        });
        let window = add_capabilities(&mut space, queues, configuration_bytes as u32);
        space.set_command(COMMAND_MEMORY);
        let mut decoders = Decoders::new(Arc::clone(at.bus), at.address_end);
        let follow = Box::new(move |base| notifications.relocate(base));
        decoders.add(REGISTERS, Arc::clone(&transport) as _, follow);
        decoders.settle_first(&space)?;
        Ok(Self {
            transport,
            shared,
            msix,
            window,
            state: Mutex::new(State { space, decoders }),
        })
    }

    /// Returns the offset in the BAR that the window selects, and the width; `None` if registers
    /// have no such width or alignment.
    fn window(&self, space: &ConfigSpace) -> Option<(u64, usize)> {
        let [bar, offset, bytes] = [4, 8, 12].map(|at| space.u32(self.window + at));
        let good = bar as u8 == BAR as u8 && matches!(bytes, 1 | 2 | 4);
        (good && offset.is_multiple_of(bytes)).then_some((offset.into(), bytes as usize))
    }

    /// Returns whether an access to configuration space is one to the window's data.
    fn is_window_data(&self, offset: u8) -> bool {
        usize::from(offset) == self.window + WINDOW_DATA
    }
}

/// Offset of the window's data in its capability: behind what every capability of virtio has.
const WINDOW_DATA: usize = 16;

/// Adds virtio's capabilities, and returns the offset of the window.
fn add_capabilities(space: &mut ConfigSpace, queues: u16, device_bytes: u32) -> usize {
    let stride = NOTIFY_STRIDE.to_le_bytes();
    // Type (`cfg_type`) and length of each structure, and what follows in its capability.
    let structures: [(Structure, u8, u32, &[u8]); 4] = [
        (Structure::Common, 1, COMMON_BYTES, &[]),
        (
            Structure::Notify,
            2,
            NOTIFY_STRIDE * u32::from(queues),
            &stride,
        ),
        (Structure::InterruptStatus, 3, 4, &[]),
        (Structure::Device, 4, device_bytes, &[]),
    ];
    for (structure, kind, length, more) in structures {
        // A structure of no length would be a broken one.
        if length != 0 {
            add_capability(space, kind, structure.offset() as u32, length, more);
        }
    }
    let window = add_capability(space, CAPABILITY_WINDOW, 0, 0, &[0; 4]);
    space.set_writable_u16(window + 4, 0x00ff);
    for half in (window + 8..window + 16).step_by(2) {
        space.set_writable_u16(half, 0xffff);
    }
    window
}

/// Adds a capability of virtio (4.1.4): length, type, BAR, ID, padding, offset, length of the
/// structure, and `more`. Returns its offset.
fn add_capability(
    space: &mut ConfigSpace,
    kind: u8,
    offset: u32,
    length: u32,
    more: &[u8],
) -> usize {
    let head = [16 + more.len() as u8, kind, BAR as u8, 0, 0, 0];
    let (offset, length) = (offset.to_le_bytes(), length.to_le_bytes());
    let body = [&head[..], &offset, &length, more].concat();
    space.add_capability(CAPABILITY_VENDOR, &body)
}

impl ConfigAccess for VirtioFunction {
    fn read_config(&self, offset: u8, into: &mut [u8]) {
        let mut state = self.state.lock();
        if self.is_window_data(offset)
            && let Some((at, bytes)) = self.window(&state.space)
            && let Some(into) = into.get_mut(..bytes)
            && self.transport.read(at, into).result.is_ok()
        {
            return;
        }
        let pending = self.shared.interrupts.is_pending();
        state.space.set_interrupt_pending(pending);
        state.space.read(offset, into);
    }

    fn write_config(&self, offset: u8, from: &[u8]) {
        let mut state = self.state.lock();
        if self.is_window_data(offset)
            && let Some((at, bytes)) = self.window(&state.space)
            && let Some(from) = from.get(..bytes)
        {
            // What the registers refuse has no effect, as on the bus.
            let _ = self.transport.write(at, from);
            return;
        }
        let State { space, decoders } = &mut *state;
        space.write(offset, from);
        decoders.settle(space);
        let control = space.msix_control(self.msix);
        let pin_enabled = space.is_interrupt_pin_enabled();
        self.shared.interrupts.configure(control, pin_enabled);
    }
}

#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod tests;
