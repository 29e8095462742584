//! Command buffers: submission is a few stores, and no exit while the device is awake.

use causeway_protocol::Access;
use causeway_protocol::message::{
    self, MemoryKind, Opcode, Operation, PREVIOUS, Status, operation,
};
use causeway_protocol::packet::{self, LaunchOptions, LaunchShape, UNIT_BYTES};
use causeway_protocol::ring;

use crate::control::{Batch, Ticket};
use crate::device::Device;
use crate::error::{CommandBufferError, Refusal, SubmitError, WaitError};
use crate::fence::{Fence, Patience};
use crate::memory::{Allocation, CpuMapping, PAGE_BYTES};
use crate::module::Parameters;
use crate::object::Object;
use crate::packets::{self, packet_methods};
use crate::producer::{Producer, Unit};
use crate::recording::Recording;
use crate::space::AddressSpace;
use crate::window::RingWindow;

/// A queue of packets that the device executes in order.
///
/// Methods such as [`Self::launch`] and [`Self::copy`] each write one packet into the ring.
/// [`Self::submit`] makes all packets written so far visible to the device: write several, then
/// submit once. Only one CPU may use a command buffer at a time.
#[derive(Debug)]
pub struct CommandBuffer<'d> {
    object: Object<'d, operation::DestroyCommandBuffer>,
    doorbell: u32,
    rung: u64,
    producer: Producer<RingWindow>,
    /// Whether to wait for room no longer.
    gives_up: Option<GivesUp>,
    /// The ring's memory; dropped, hence freed, after the command buffer is destroyed.
    memory: Allocation<'d>,
}

/// A function that says whether a full ring makes no room any more, and what it gets.
#[derive(Debug)]
struct GivesUp {
    asked: fn(usize) -> bool,
    argument: usize,
}

impl<'d> CommandBuffer<'d> {
    /// Allocates host memory and creates in it a command buffer with a ring of `units` units (a
    /// power of two from 256 to 2^20). One exit.
    ///
    /// # Errors
    /// [`CommandBufferError`] if `units` is out of range or not a power of two, a limit of the
    /// session is reached, or no memory is left.
    pub fn new(space: &AddressSpace<'d>, units: u64) -> Result<Self, CommandBufferError> {
        Self::with_priority(space, units, 0)
    }

    /// Creates a command buffer as [`Self::new`] does, whose work has a priority: a number from
    /// [`Device::greatest_priority`], the most urgent, to 0. The device brings other numbers into
    /// this range. If the device has no priorities, all command buffers have the same.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_priority(
        space: &AddressSpace<'d>,
        units: u64,
        priority: i32,
    ) -> Result<Self, CommandBufferError> {
        let device = space.device();
        let failed = |refusal| CommandBufferError { units, refusal };
        if !units.is_power_of_two() || !(ring::UNITS_MIN..=ring::UNITS_MAX).contains(&units) {
            let opcode = Opcode::CreateCommandBuffer;
            return Err(failed(Refusal::new(opcode, Status::BadMemory, 0)));
        }
        let length = ring::ring_bytes(units);
        let (allocated, mapped, created) = request(space, length, priority);
        let memory = Allocation::from_reply(device, &allocated.map_err(failed)?);
        let (mapped, created) = (mapped.map_err(failed)?, created.map_err(failed)?);
        let mapping = CpuMapping::at(device, mapped.address, length).map_err(failed)?;
        touch(&mapping);
        let Some(ring) = RingWindow::new(*mapping.window()) else {
            unreachable!("the mapping has the size of a ring and begins on a page");
        };
        Ok(Self {
            object: Object::new(device, created.handle),
            doorbell: created.doorbell,
            rung: 0,
            producer: Producer::new(ring),
            gives_up: None,
            memory,
        })
    }

    /// Sets a function that is asked from time to time while the ring is full: if it returns true,
    /// the ring makes no room any more. For a caller that knows of other faults than those of this
    /// command buffer, such as those of one that this one waits for. The function gets `argument`.
    pub fn give_up_if(&mut self, asked: fn(usize) -> bool, argument: usize) {
        self.gives_up = Some(GivesUp { asked, argument });
    }

    /// Returns the handle that messages use for this command buffer.
    #[must_use]
    pub const fn handle(&self) -> u32 {
        self.object.handle
    }

    /// Returns the number of the command buffer's doorbell in BAR 4.
    #[must_use]
    pub const fn doorbell(&self) -> u32 {
        self.doorbell
    }

    /// Returns how many times the guest has rung the doorbell of this command buffer.
    #[must_use]
    pub const fn doorbells_rung(&self) -> u64 {
        self.rung
    }

    /// Returns the size of the ring in units.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.producer.capacity()
    }

    /// Returns the position after the last packet written: the number of units that were written
    /// since the command buffer was created.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.producer.position()
    }

    /// If a fault has stopped this command buffer, returns the status of the fault and the position
    /// of the packet that caused it, in units. Otherwise returns `None`.
    #[must_use]
    pub fn fault(&self) -> Option<(Status, u64)> {
        self.producer.fault()
    }

    /// Returns the allocation that contains the ring.
    #[must_use]
    pub fn memory(&self) -> &Allocation<'d> {
        &self.memory
    }

    /// Writes a packet that launches the kernel for which `parameters` was created, with the grid,
    /// block and shared memory in `shape`. Waits while the ring is full.
    ///
    /// # Errors
    /// [`SubmitError::ParameterMissing`] if a parameter of the kernel is not set;
    /// [`SubmitError::Stopped`] if the ring is full and a fault has stopped the command buffer,
    /// or the device is lost.
    #[inline]
    pub fn launch<const UNITS: usize>(
        &mut self,
        shape: LaunchShape,
        parameters: &Parameters<'_, UNITS>,
    ) -> Result<(), SubmitError> {
        let (head, tail_units) = packets::launch(shape, parameters)
            .map_err(|index| SubmitError::ParameterMissing { index })?;
        loop {
            let ring = || ring_doorbell(self.object.device, self.doorbell, &mut self.rung);
            let unit = |index| parameters.unit(index);
            match self.producer.push_long(&head, tail_units, unit, ring) {
                Err(SubmitError::Full) => self.check_device()?,
                written => return written,
            }
        }
    }

    /// Writes a packet that launches the kernel with the handle `kernel`, with the grid, block and
    /// shared memory in `shape`. `block` is the whole parameter block, whose size must be the
    /// kernel's ([`crate::Kernel::parameter_bytes`]): a launch with another size ends the command
    /// buffer. Waits while the ring is full.
    ///
    /// # Errors
    /// [`SubmitError::Stopped`] if the ring is full and a fault has stopped the command buffer,
    /// or the device is lost.
    #[inline]
    pub fn launch_packed(
        &mut self,
        kernel: u32,
        shape: LaunchShape,
        block: &[u8],
    ) -> Result<(), SubmitError> {
        self.launch_with(kernel, shape, LaunchOptions::PLAIN, block)
    }

    /// Writes a packet that launches a kernel as [`Self::launch_packed`] does, with `options`.
    /// Those that are not zero need the feature
    /// [`LAUNCH_OPTIONS`](causeway_protocol::registers::features::LAUNCH_OPTIONS). A launch whose
    /// blocks the device cannot run so ends the command buffer.
    ///
    /// # Errors
    /// [`SubmitError::Stopped`] if the ring is full and a fault has stopped the command buffer,
    /// or the device is lost; [`SubmitError::TooLong`] if the ring is too small for the packet.
    #[inline]
    pub fn launch_with(
        &mut self,
        kernel: u32,
        shape: LaunchShape,
        options: LaunchOptions,
        block: &[u8],
    ) -> Result<(), SubmitError> {
        let bytes = block.len() as u32;
        let (head, tail_units) = packets::launch_packed(kernel, (shape, options), bytes);
        loop {
            let ring = || ring_doorbell(self.object.device, self.doorbell, &mut self.rung);
            let unit = |index| packets::unit_of(block, index);
            match self.producer.push_long(&head, tail_units, unit, ring) {
                Err(SubmitError::Full) => self.check_device()?,
                written => return written,
            }
        }
    }

    packet_methods!(SubmitError);

    /// Writes a packet that makes the device wait until `fence` has reached `value` before it
    /// executes the packets that follow.
    ///
    /// # Errors
    /// [`SubmitError::Stopped`] if the ring is full and a fault has stopped the command buffer,
    /// or the device is lost.
    #[inline]
    pub fn acquire(&mut self, fence: &Fence<'d>, value: u64) -> Result<(), SubmitError> {
        let opcode = packet::Opcode::FenceAcquire;
        self.push(packets::fence(opcode, fence.address(), value))
    }

    /// Writes a packet that replays a recording, which must belong to this command buffer's address
    /// space.
    ///
    /// # Errors
    /// [`SubmitError::Stopped`] if the ring is full and a fault has stopped the command buffer,
    /// or the device is lost.
    #[inline]
    pub fn replay(&mut self, recording: &Recording<'_>) -> Result<(), SubmitError> {
        self.push(packets::replay(recording.handle()))
    }

    /// Writes one unit (64 bytes) of packet data unchanged, for packets that have no method of
    /// their own. Waits while the ring is full.
    ///
    /// # Errors
    /// [`SubmitError::Stopped`] if the ring is full and a fault has stopped the command buffer,
    /// or the device is lost.
    #[inline]
    pub fn push(&mut self, unit: Unit) -> Result<(), SubmitError> {
        loop {
            let ring = || ring_doorbell(self.object.device, self.doorbell, &mut self.rung);
            match self.producer.push_unit(&unit, ring) {
                Err(SubmitError::Full) => self.check_device()?,
                written => return written,
            }
        }
    }

    /// Fails if the device is lost, so that it never makes room: a host that has ended cannot write
    /// so into the ring. One exit. Fails also if the caller gives up.
    #[cold]
    fn check_device(&self) -> Result<(), SubmitError> {
        let gives_up = self
            .gives_up
            .as_ref()
            .is_some_and(|it| (it.asked)(it.argument));
        match gives_up || self.object.device.is_lost() {
            false => Ok(()),
            true => Err(SubmitError::Stopped {
                status: Status::DeviceLost,
                position: self.producer.position(),
            }),
        }
    }

    /// Makes all packets that were written so far visible to the device, and rings the doorbell if
    /// the device's consumer sleeps.
    #[inline]
    pub fn submit(&mut self) {
        if self.producer.publish() {
            ring_doorbell(self.object.device, self.doorbell, &mut self.rung);
        }
    }

    /// Waits until `fence` has reached `value`, which a [`Self::release`] packet of this command
    /// buffer stores to it.
    ///
    /// # Errors
    /// [`WaitError::Stopped`] if a fault stops the command buffer first; [`WaitError::TimedOut`] if
    /// the time-out in `patience` ends first; [`WaitError::Refused`] if the device refuses to wait.
    pub fn wait(&self, fence: &Fence<'d>, value: u64, patience: Patience) -> Result<(), WaitError> {
        fence.wait_watching(value, patience, || self.producer.fault())
    }

    /// Destroys the command buffer and frees its memory. The device drops the packets that it has
    /// not executed. Two exits.
    ///
    /// # Errors
    /// [`CommandBufferError`] if the session is lost.
    pub fn destroy(self) -> Result<(), CommandBufferError> {
        let units = self.capacity();
        let ended = self.object.end();
        ended.map_err(|refusal| CommandBufferError { units, refusal })
    }
}

#[cold]
fn ring_doorbell(device: &Device<'_>, doorbell: u32, rung: &mut u64) {
    *rung += 1;
    device.transport().ring_doorbell(doorbell);
}

/// Touches every page of a fresh ring, so that submission meets no first-touch faults. It holds
/// zeroes already.
fn touch(mapping: &CpuMapping<'_>) {
    for offset in (ring::HEADER_BYTES..mapping.window().bytes() as u64).step_by(PAGE_BYTES as usize)
    {
        // In range by construction.
        let _ = mapping.store_u64(offset as usize, 0);
    }
}

type Reply<O> = Result<<O as Operation>::Reply, Refusal>;
type Created = Reply<operation::CreateCommandBuffer>;

/// Allocates, maps and creates in one batch.
fn request(
    space: &AddressSpace<'_>,
    length: u64,
    priority: i32,
) -> (
    Reply<operation::Allocate>,
    Reply<operation::MapCpu>,
    Created,
) {
    let mut batch = space.device().batch();
    let allocate = batch.push::<operation::Allocate>(&message::Allocate {
        size: length,
        kind: MemoryKind::Host as u32,
        flags: 0,
    });
    let map = batch.push::<operation::MapCpu>(&message::MapCpu {
        allocation: PREVIOUS,
        access: Access::ReadWrite.wire(),
        offset: 0,
        length,
    });
    let create = create(&mut batch, space, length, priority);
    let replies = batch.execute();
    let (allocated, mapped) = (replies.require(allocate), replies.require(map));
    let created = match create {
        Create::Plain(ticket) => replies.require(ticket),
        Create::Priority(ticket) => replies.require(ticket),
    };
    (allocated, mapped, created)
}

/// The message that creates a command buffer.
enum Create {
    Plain(Ticket<operation::CreateCommandBuffer>),
    Priority(Ticket<operation::CreatePriorityCommandBuffer>),
}

/// Adds the message that creates a command buffer in the memory that was allocated before. A device
/// without priorities does not know the other message.
fn create(batch: &mut Batch<'_>, space: &AddressSpace<'_>, length: u64, priority: i32) -> Create {
    let (allocation, offset) = (PREVIOUS, 0);
    let space_handle = space.handle();
    if priority == 0 || space.device().greatest_priority() == 0 {
        let request = message::CreateCommandBuffer {
            space: space_handle,
            allocation,
            offset,
            length,
        };
        return Create::Plain(batch.push::<operation::CreateCommandBuffer>(&request));
    }
    let request = message::CreatePriorityCommandBuffer {
        space: space_handle,
        allocation,
        offset,
        length,
        priority,
        reserved: 0,
    };
    Create::Priority(batch.push::<operation::CreatePriorityCommandBuffer>(&request))
}

const _: () = assert!(size_of::<Unit>() == UNIT_BYTES);
