//! Command buffers: ring memory, a doorbell, and the thread that consumes.

mod consumer;
mod execute;
mod idle;
mod packet;
mod recording;
mod ring;
mod rings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_protocol::message::Status;
use causeway_protocol::registers::doorbells::COUNT;
use parking_lot::Mutex;

use crate::arbiter::{Member, Turns};
use crate::backend::Memory;
use crate::bell::Bell;
use crate::busy::Burst;
use crate::fence::FenceSignal;
use crate::generation::Generation;
use crate::host::{Host, RingPlace};
use crate::lease::{Lease, LeaseUser};
use crate::quota::{Account, Charge};
use crate::refusal::{Refusal, warn_at_first};
use crate::shared_space::SharedSpace;
use crate::statistics::Counters;
use crate::watchdog::{PieceNumber, Watchdog};
use consumer::Consumer;
use execute::Executor;
use ring::Ring;

pub(crate) use recording::compile;
pub(crate) use rings::Rings;

/// What the command buffers of one session share.
pub(crate) struct CommandBuffers {
    /// Number of the session, shown in logs.
    pub id: u64,
    /// Name of the session, shown in logs and in names of threads.
    pub name: String,
    pub counters: Arc<Counters>,
    pub signal: Arc<FenceSignal>,
    pub doorbells: Arc<Doorbells>,
    pub rings: Rings,
    /// Gives the session its turns on the device.
    pub member: Arc<Member>,
    /// The device, where the session has it in turn with sessions of other processes.
    pub lease: Arc<Lease>,
    pub account: Arc<Account>,
    /// Ends work that takes too long, or shows it to those who do.
    pub watchdog: Watchdog,
}

/// A command buffer with its consumer. Dropping it stops the consumer and waits for its thread.
pub(crate) struct CommandBuffer {
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<()>>>,
    doorbell: Doorbell,
    /// Keeps the ring's memory charged for as long as it is mapped.
    _memory: Arc<dyn Memory>,
    _charge: Charge,
}

/// Where the ring lies, and the priority of its work; checked by the caller.
pub(crate) struct Placement {
    pub memory: Arc<dyn Memory>,
    pub offset: u64,
    pub bytes: u64,
    pub priority: i32,
}

impl CommandBuffer {
    /// Creates a command buffer in the memory that `placement` names: clears the header of its
    /// ring, binds a free doorbell to it, and starts its consumer. The consumer executes work in
    /// the address space `space` and ends with `generation`.
    pub fn start(
        session: &CommandBuffers,
        host: &dyn Host,
        generation: &Arc<Generation>,
        space: &Arc<SharedSpace>,
        placement: Placement,
        charge: Charge,
    ) -> Result<Arc<Self>, Refusal> {
        let ring = Ring::new(&*placement.memory, placement.offset, placement.bytes)?;
        let ring = Arc::new(ring);
        let mut queue = space.backend.create_queue(placement.priority)?;
        let bell = Arc::new(Bell::new().map_err(|e| no_memory("an eventfd", &e))?);
        let doorbell = session.doorbells.bind(host, &bell, ring.place())?;
        generation.watch_bell(&bell);
        session.rings.add(&ring);
        let name = format!("{}/{}", session.name, doorbell.index);
        let label = format!("session {} command buffer {name}", session.id);
        let piece = Arc::<PieceNumber>::default();
        if queue.runs_behind() {
            queue.set_pulse(session.watchdog.pulse());
        } else {
            let watched = session.watchdog.watch(&piece, generation, &label);
            watched.map_err(|e| no_memory("a thread that watches work", &e))?;
        }
        let consumer = Consumer {
            ring,
            bell: Arc::clone(&bell),
            generation: Arc::clone(generation),
            counters: Arc::clone(&session.counters),
            label,
            executor: Executor {
                queue,
                space: Arc::clone(space),
                signal: Arc::clone(&session.signal),
                bell: Arc::clone(&bell),
                burst: Burst::new(Arc::clone(&session.counters.busy)),
                turns: Turns::new(Arc::clone(&session.member)),
                lease: LeaseUser::new(&session.lease),
                piece,
                pulse: Arc::clone(session.watchdog.pulse()),
                account: Arc::clone(&session.account),
                counters: Arc::clone(&session.counters),
            },
        };
        let thread = std::thread::Builder::new()
            .name(format!("consumer {name}"))
            .spawn(move || consumer.run())
            .map_err(|e| no_memory("a consumer thread", &e))?;
        Ok(Arc::new(Self {
            bell,
            thread: Mutex::new(Some(thread)),
            doorbell,
            _memory: placement.memory,
            _charge: charge,
        }))
    }

    /// Returns the index of the doorbell register that wakes this command buffer's consumer.
    pub fn doorbell(&self) -> u32 {
        self.doorbell.index
    }

    /// Asks the consumer to end after the packet that it is executing. Does not wait for it.
    pub fn stop(&self) {
        self.bell.stop();
    }

    /// Asks the consumer to end, and waits until its thread has ended. Returns false if the thread
    /// still runs after `patience`, or as soon as another thread sets `give_up`. `signal` wakes a
    /// consumer that waits for a fence.
    pub fn stop_within(
        &self,
        signal: &FenceSignal,
        patience: Duration,
        give_up: &AtomicBool,
    ) -> bool {
        self.stop();
        // It may be in a fence acquire.
        signal.notify();
        let look = || match self.finished() {
            true => Some(true),
            false => give_up.load(Ordering::SeqCst).then_some(false),
        };
        signal
            .wait_until(Instant::now() + patience, look)
            .unwrap_or(false)
    }

    /// Asks the consumer to end, and waits without a time limit until its thread has ended.
    pub fn join(&self) {
        self.stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            log::error!(
                "the thread that reads the command buffer of doorbell {index} of a guest \
                 panicked, so packets may not have been executed; this is a bug in Causeway",
                index = self.doorbell.index
            );
        }
    }

    fn finished(&self) -> bool {
        let thread = self.thread.lock();
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        self.join();
    }
}

fn no_memory(what: &str, error: &std::io::Error) -> Refusal {
    static FAILURES: AtomicU64 = AtomicU64::new(0);
    let level = warn_at_first(&FAILURES);
    log::log!(level, "cannot create {what} for a command buffer: {error}");
    Refusal::new(Status::NoMemory)
}

/// The doorbells of one guest. A leaf lock, not held while the host binds.
pub(crate) struct Doorbells {
    /// Unbinds doorbells.
    host: Arc<dyn Host>,
    taken: Mutex<[bool; COUNT as usize]>,
}

impl Doorbells {
    pub fn new(host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new(Self {
            host,
            taken: Mutex::new([false; COUNT as usize]),
        })
    }

    /// Binds a free doorbell to `bell` through `host`, until dropped. The doorbell belongs to the
    /// command buffer at `ring`.
    fn bind(
        self: &Arc<Self>,
        host: &dyn Host,
        bell: &Arc<Bell>,
        ring: &RingPlace,
    ) -> Result<Doorbell, Refusal> {
        let index = {
            let mut taken = self.taken.lock();
            let free = taken.iter().position(|taken| !taken);
            let index = free.ok_or(Refusal::with(Status::QuotaCommandBuffers, COUNT))?;
            taken[index] = true;
            index as u32
        };
        if let Err(error) = host.bind_doorbell(index, bell.doorbell(), ring) {
            self.release(index);
            return Err(no_memory("a doorbell", &error));
        }
        Ok(Doorbell {
            index,
            bell: Arc::clone(bell),
            doorbells: Arc::clone(self),
        })
    }

    fn release(&self, index: u32) {
        self.taken.lock()[index as usize] = false;
    }
}

/// A bound doorbell.
struct Doorbell {
    index: u32,
    bell: Arc<Bell>,
    doorbells: Arc<Doorbells>,
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        // Unbound before it is free: the next owner must find it unbound.
        self.doorbells
            .host
            .unbind_doorbell(self.index, self.bell.doorbell());
        self.doorbells.release(self.index);
    }
}
