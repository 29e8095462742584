//! From a decoded packet to work for the back end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_protocol::message::Status;

use super::packet::{Acquire, CopyOfArray, Packet};
use crate::arbiter::{Taken, Turns};
use crate::backend::{
    Array, ArrayCopy, Fault, Kernel, Launch, Progress, Pulse, Queue, Usage, Work,
};
use crate::bell::Bell;
use crate::busy::{Burst, UnderWay};
use crate::fence::FenceSignal;
use crate::lease::LeaseUser;
use crate::quota::{Account, Charge, Resource};
use crate::shared_space::SharedSpace;
use crate::statistics::Counters;
use crate::watchdog::PieceNumber;

/// How long a fence acquire spins before it sleeps.
const ACQUIRE_SPIN: Duration = Duration::from_micros(20);
/// How often a consumer that waits for a lease of the device looks whether its own work is done,
/// and whether it is to end.
const LEASE_LOOK_BUSY: Duration = Duration::from_micros(50);
const LEASE_LOOK: Duration = Duration::from_millis(5);
/// Sleeps of a fence acquire are one long wait in pieces; only the session's end or the fence ends
/// it.
const ACQUIRE_PIECE: Duration = Duration::from_secs(3600);

/// Why a packet was not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The consumer is to end.
    Asked,
    /// The packet, or the work it asked for, is at fault.
    Fault(Fault),
}

impl Stop {
    pub fn fault(status: Status, text: String) -> Self {
        Self::Fault(Fault::new(status, text))
    }

    /// Returns the status by which the guest learns why the packet was not executed.
    pub fn status(&self) -> Status {
        match self {
            Self::Asked => Status::DeviceLost,
            Self::Fault(fault) => fault.status,
        }
    }
}

/// Executes the packets of one command buffer.
pub(super) struct Executor {
    pub queue: Box<dyn Queue>,
    pub space: Arc<SharedSpace>,
    pub signal: Arc<FenceSignal>,
    pub bell: Arc<Bell>,
    /// What the queue has under way.
    pub burst: Burst,
    /// The device's time, on a queue that does not run behind.
    pub turns: Turns,
    /// The session's lease of the device.
    pub lease: LeaseUser,
    /// What the watchdog sees of the work, on such a queue.
    pub piece: Arc<PieceNumber>,
    /// What somebody else sees who watches, on a queue that runs behind.
    pub pulse: Arc<Pulse>,
    /// What the session may use.
    pub account: Arc<Account>,
    pub counters: Arc<Counters>,
}

impl Drop for Executor {
    fn drop(&mut self) {
        if self.queue.runs_behind() && !self.queue.close() {
            self.burst.leak();
        }
        self.counters.cross(self.queue.take_crossed());
    }
}

impl Executor {
    pub fn execute(&mut self, packet: Packet<'_>) -> Result<(), Stop> {
        match packet {
            Packet::Nop => Ok(()),
            Packet::Launch(launch, parameters) => {
                let kernel = self.space.launchable(launch.kernel)?;
                let checked = Launch::new(&kernel, launch.shape, parameters)
                    .and_then(|checked| checked.with_options(launch.options));
                self.submit(Work::Launch(checked.map_err(Stop::Fault)?))
            }
            Packet::Memory(work) => {
                self.submit(Work::Memory(work))?;
                if work.is_release() {
                    self.signal.notify();
                }
                Ok(())
            }
            Packet::Array(copy) => {
                let array = self.space.array(copy.array)?;
                self.submit(Work::Array(array_copy(&array, &copy)?))
            }
            Packet::Acquire(acquire) => self.acquire(&acquire),
            Packet::Replay { recording } => self.replay(recording),
        }
    }

    /// Returns whether somebody waits to see how far the queue is, even while the ring has packets.
    pub fn has_watcher(&self) -> bool {
        self.lease.is_stopping() || (self.queue.runs_behind() && self.pulse.is_wanted())
    }

    /// Returns whether the queue has finished the submitted work. If it has, wakes the threads that
    /// wait for fences, because a GPU that writes a fence wakes no thread of the host.
    pub fn progress(&mut self) -> Result<Progress, Fault> {
        let progress = self.queue.poll()?;
        self.counters.cross(self.queue.take_crossed());
        if progress == Progress::Busy && self.lease.is_stopping() && self.queue.is_near_end()? {
            self.lease.near_end();
        }
        if progress == Progress::Idle {
            self.burst.end();
            self.signal.notify();
            if !self.lease.rest() {
                return Ok(Progress::Busy);
            }
        }
        Ok(progress)
    }

    /// Makes the queue begin all work submitted so far, without waiting for its end.
    pub fn flush(&mut self) -> Result<(), Stop> {
        let flushed = self.queue.flush();
        if !self.queue.runs_behind() {
            self.rest();
        }
        flushed.map_err(Stop::Fault)
    }

    /// Gives `work` to the queue. On one that does not run behind, the work's time counts until the
    /// next work or [`Self::flush`], because a look at the clock for each would cost a short kernel
    /// more than its launch.
    fn submit(&mut self, work: Work<'_>) -> Result<(), Stop> {
        let kind = kind_of(&work);
        match kind {
            UnderWay::Nothing | UnderWay::Words if self.lease.begin_small() => {}
            UnderWay::Nothing | UnderWay::Words => self.await_lease()?,
            UnderWay::Memory | UnderWay::Kernels => self.await_device()?,
        }
        if self.queue.runs_behind() {
            return self.submit_behind(kind, work).map_err(Stop::Fault);
        }
        if kind > UnderWay::Words && self.turns.is_due() {
            self.take_turn()?;
        }
        self.burst.go_on(kind);
        let _charge = self.charge(&work)?;
        self.piece.begin();
        let submitted = self.queue.submit(work);
        self.piece.end();
        submitted.map_err(Stop::Fault)
    }

    fn submit_behind(&mut self, kind: UnderWay, work: Work<'_>) -> Result<(), Fault> {
        self.burst.begin(kind);
        self.queue.submit(work)?;
        if kind == UnderWay::Memory {
            self.counters.cross(self.queue.take_crossed());
        }
        if kind > UnderWay::Words && self.lease.is_metered() && !self.lease.is_hurried() {
            while !self.queue.has_room(false)? && !self.bell.stopped() {
                std::thread::sleep(LEASE_LOOK_BUSY);
            }
        }
        Ok(())
    }

    /// Waits until the session has the device. If others with little work want it again and again,
    /// also waits until little of this command buffer's work is left, so that it can be given back
    /// at once.
    fn await_device(&mut self) -> Result<(), Stop> {
        loop {
            if !self.lease.begin() {
                self.await_lease()?;
            }
            let may_wait = self.queue.runs_behind() && self.lease.is_hurried();
            if !may_wait || self.queue.has_room(true).map_err(Stop::Fault)? {
                return Ok(());
            }
            if self.bell.stopped() {
                return Err(Stop::Asked);
            }
            self.lease.wait_for_end(LEASE_LOOK_BUSY);
        }
    }

    /// Waits until the session has a lease of the device.
    fn await_lease(&mut self) -> Result<(), Stop> {
        let begun = Instant::now();
        if !self.queue.runs_behind() {
            self.rest();
        }
        while !self.lease.begin() {
            if self.bell.stopped() {
                return Err(Stop::Asked);
            }
            // Others wait for the end of what is under way.
            let is_busy =
                self.lease.is_busy() && self.progress().map_err(Stop::Fault)? == Progress::Busy;
            self.lease.wait(match is_busy {
                true => LEASE_LOOK_BUSY,
                false => LEASE_LOOK,
            });
        }
        self.counters.wait_for_turn(begun.elapsed());
        Ok(())
    }

    /// Charges the session for the host's memory that `work` takes while it is executed.
    fn charge(&self, work: &Work<'_>) -> Result<Option<Charge>, Stop> {
        let bytes = match work {
            Work::Launch(launch) => launch.host_bytes(),
            // A recording is charged for as long as it exists.
            Work::Memory(_) | Work::Array(_) | Work::Replay { .. } => 0,
        };
        if bytes == 0 {
            return Ok(None);
        }
        let charged = self.account.charge(Resource::MemoryBytes, bytes);
        charged.map(Some).map_err(|refusal| {
            let limit = self.account.limit(Resource::MemoryBytes);
            let text = format!(
                "a launch takes {bytes} bytes beside the memory that the session has, more than \
                 are left of its {limit}"
            );
            Stop::fault(refusal.status, text)
        })
    }

    /// Waits until the session may use the device.
    fn take_turn(&mut self) -> Result<(), Stop> {
        self.burst.end();
        let usage = self.take_usage();
        match self.turns.take(usage, || self.bell.stopped()) {
            Taken::AtOnce => {}
            Taken::After(waited) => self.counters.wait_for_turn(waited),
            Taken::Never => return Err(Stop::Asked),
        }
        self.queue.limit_units(self.turns.granted_units());
        Ok(())
    }

    /// Notes that all work is done.
    pub fn rest(&mut self) {
        self.lease.end();
        self.end_turn();
    }

    /// Notes that the consumer submits nothing more. What is under way still counts for the lease,
    /// until this is dropped: after its queue, which waits for the end.
    pub fn end_turn(&mut self) {
        self.burst.end();
        let usage = self.take_usage();
        self.turns.end(usage);
        self.queue.limit_units(self.turns.granted_units());
    }

    fn take_usage(&mut self) -> Usage {
        self.counters.cross(self.queue.take_crossed());
        let usage = self.queue.take_usage();
        if usage.busy_ns != 0 {
            self.counters.use_device(self.turns.device_ns(usage));
        }
        usage
    }

    fn replay(&mut self, handle: u32) -> Result<(), Stop> {
        let recording = self.space.recordings.get(handle);
        let recording = recording.ok_or_else(|| stale("recording", handle))?;
        self.submit(Work::Replay {
            recording: &recording,
        })?;
        // It may have released fences.
        self.signal.notify();
        Ok(())
    }

    /// Waits until a fence meets a condition. Others may store to it without a notification.
    fn acquire(&mut self, acquire: &Acquire) -> Result<(), Stop> {
        // On a queue that runs behind, what came before may be what releases the fence.
        self.queue.finish().map_err(Stop::Fault)?;
        // Then it may have been left with work.
        if self.bell.stopped() {
            return Err(Stop::Asked);
        }
        self.rest();
        let look = || self.look(acquire);
        let begun = Instant::now();
        while begun.elapsed() < ACQUIRE_SPIN {
            if let Some(outcome) = look() {
                return outcome;
            }
            std::hint::spin_loop();
        }
        loop {
            let deadline = Instant::now() + ACQUIRE_PIECE;
            if let Some(outcome) = self.signal.wait_until(deadline, look) {
                return outcome;
            }
        }
    }

    /// Returns how a fence acquire ends; `None` if it goes on.
    fn look(&self, acquire: &Acquire) -> Option<Result<(), Stop>> {
        let stopped = || self.bell.stopped();
        let fetch = |address| self.space.backend.fetch_u64(address, &stopped);
        let is_over = match stopped() {
            true => None,
            false => acquire.is_over(fetch),
        };
        match is_over {
            Some(is_over) => is_over.then_some(Ok(())),
            None if stopped() => Some(Err(Stop::Asked)),
            None => {
                let text = format!("a fence acquire cannot read {:#x}", acquire.address);
                Some(Err(Stop::fault(Status::MemoryFault, text)))
            }
        }
    }
}

/// Returns what the GPU has under way after `work`.
fn kind_of(work: &Work<'_>) -> UnderWay {
    match work {
        Work::Launch(_) | Work::Replay { .. } => UnderWay::Kernels,
        Work::Array(_) => UnderWay::Memory,
        Work::Memory(work) if work.moved_bytes() != 0 => UnderWay::Memory,
        Work::Memory(_) => UnderWay::Words,
    }
}

impl SharedSpace {
    /// Returns the kernel behind the kernel handle of a packet.
    pub(super) fn launchable(&self, handle: u32) -> Result<Arc<dyn Kernel>, Stop> {
        let kernel = self.kernels.get(handle);
        kernel.ok_or_else(|| stale("kernel", handle))
    }

    /// Returns the array behind the array handle of a packet.
    pub(super) fn array(&self, handle: u32) -> Result<Arc<dyn Array>, Stop> {
        let array = self.arrays.get(handle);
        array.ok_or_else(|| stale("array", handle))
    }
}

/// Returns the copy that a packet asks for.
pub(super) fn array_copy<'a>(
    array: &'a Arc<dyn Array>,
    copy: &CopyOfArray,
) -> Result<ArrayCopy<'a>, Stop> {
    ArrayCopy::new(array, copy.part, copy.is_into_array).map_err(Stop::Fault)
}

/// The stop for a handle that names no object of the address space.
fn stale(what: &str, handle: u32) -> Stop {
    let text = format!("no {what} with handle {handle:#x} in the address space");
    Stop::fault(Status::BadHandle, text)
}
