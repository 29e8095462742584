//! The thread of a device, which executes requests while a driver uses the device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use event_manager::{EventManager, EventOps, Events, MutEventSubscriber, SubscriberOps};
use parking_lot::Mutex;
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::device::{ServeError, VirtioDevice};
use super::interrupts::{Interrupts, Source};
use super::ring::{Ring, RingError};
use crate::memory::RamView;

const COMMAND: u32 = 0;
/// Event of the first queue; those of the other queues follow.
const KICK: u32 = 1;

/// Most requests served from one queue before the others have their turn.
const REQUESTS_AT_ONCE: u32 = 256;

/// State that a virtio PCI function shares with the thread that executes its requests.
pub struct Shared {
    /// The function's interrupts.
    pub interrupts: Interrupts,
    /// True if the device has stopped because of an error, until its driver resets it.
    pub needs_reset: AtomicBool,
    /// The guest's RAM.
    pub ram: RamView,
}

impl Shared {
    /// Sets `DEVICE_NEEDS_RESET` in the device status, and interrupts the guest so that its driver
    /// notices.
    pub fn require_reset(&self) {
        self.needs_reset.store(true, Ordering::Release);
        self.interrupts.raise(Source::Configuration);
    }
}

enum Command {
    /// A driver begins to use the device.
    Begin {
        rings: Vec<Option<Ring>>,
        features: u64,
    },
    /// The driver ends. The thread answers when it touches no guest memory any more.
    End(Sender<()>),
}

/// The thread that executes the requests in the queues of a virtio device. Dropping this value ends
/// the thread.
pub struct Worker {
    /// Gone when the thread is to end.
    commands: Option<Sender<Command>>,
    wake: Arc<Wake>,
    thread: Mutex<Thread>,
}

/// The thread of a device. A virtual CPU's thread starts it when a driver uses the device for the
/// first time. So it inherits what confines that thread.
enum Thread {
    Ahead(String, Box<Job>),
    Started(JoinHandle<()>),
    Gone,
}

/// Wakes the thread, and takes it out of a queue that it serves.
struct Wake {
    event: EventFd,
    /// A command waits: looked at between requests.
    waiting: AtomicBool,
}

impl Worker {
    /// Prepares a thread called `name` for `device`, which the first [`Self::begin`] starts.
    /// Whenever `kicks[n]` is signalled, the thread executes the requests in queue n.
    ///
    /// # Errors
    /// The kernel's error if no descriptor is left.
    pub fn new(
        name: &str,
        device: Box<dyn VirtioDevice>,
        kicks: &[EventFd],
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let wake = Arc::new(Wake {
            event: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            waiting: AtomicBool::new(false),
        });
        let (commands, orders) = channel();
        let copies = kicks.iter().map(EventFd::try_clone);
        let job = Job {
            device,
            rings: Vec::new(),
            kicks: copies.collect::<Result<_, _>>()?,
            orders,
            wake: Arc::clone(&wake),
            shared,
            over: false,
        };
        Ok(Self {
            thread: Mutex::new(Thread::Ahead(name.to_owned(), Box::new(job))),
            commands: Some(commands),
            wake,
        })
    }

    /// Makes the thread execute requests from `rings`, with one element for each queue of the
    /// device: `None` if the driver does not use that queue. `features` are the features that the
    /// driver has accepted. Returns false if the thread has ended, or cannot start.
    #[must_use]
    pub fn begin(&self, rings: Vec<Option<Ring>>, features: u64) -> bool {
        self.thread.lock().start() && self.send(Command::Begin { rings, features })
    }

    /// Makes the thread stop executing requests. When this returns, the device does not access
    /// guest memory any more.
    pub fn end(&self) {
        if !matches!(*self.thread.lock(), Thread::Started(_)) {
            return;
        }
        let (done, wait) = channel();
        self.send(Command::End(done));
        // Fails when the thread is no more, which touches nothing either.
        let _ = wait.recv();
    }

    fn send(&self, command: Command) -> bool {
        let commands = self.commands.as_ref();
        let sent = commands.is_some_and(|commands| commands.send(command).is_ok());
        self.wake.up();
        sent
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.commands = None;
        self.wake.up();
        if let Thread::Started(thread) = self.thread.get_mut().take()
            && thread.join().is_err()
        {
            log::error!(
                "the thread of a virtio device panicked, so the device stopped answering the \
                 guest's requests; this is a bug in Causeway"
            );
        }
    }
}

impl Thread {
    /// Starts it, unless it has started. Returns false if it cannot.
    fn start(&mut self) -> bool {
        *self = match self.take() {
            Self::Ahead(name, job) => {
                let thread = std::thread::Builder::new().name(name.clone());
                match thread.spawn(move || job.run()) {
                    Ok(thread) => Self::Started(thread),
                    Err(e) => {
                        log::error!("cannot start {name}, the thread of a virtio device: {e}");
                        Self::Gone
                    }
                }
            }
            started => started,
        };
        matches!(self, Self::Started(_))
    }

    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Gone)
    }
}

impl Wake {
    fn up(&self) {
        self.waiting.store(true, Ordering::Release);
        if let Err(e) = self.event.write(1) {
            log::error!(
                "cannot wake the thread of a virtio device, so the guest's requests to it may get \
                 no answer: {e}"
            );
        }
    }
}

/// The state that the thread owns.
struct Job {
    device: Box<dyn VirtioDevice>,
    /// The queues of the driver that uses the device; empty without one.
    rings: Vec<Option<Ring>>,
    kicks: Vec<EventFd>,
    orders: Receiver<Command>,
    wake: Arc<Wake>,
    shared: Arc<Shared>,
    over: bool,
}

impl Job {
    fn run(self) {
        let (name, shared) = (self.device.kind().name, Arc::clone(&self.shared));
        if let Err(e) = self.watch() {
            log::error!(
                "the guest's device {name} stops for good, because its thread cannot wait for \
                 events: {e:?}"
            );
            shared.require_reset();
        }
    }

    fn watch(self) -> Result<(), event_manager::Error> {
        let mut manager = EventManager::new_with_capacity(self.kicks.len() + 1)?;
        let id = manager.add_subscriber(self);
        while !manager.subscriber_mut(id)?.over {
            manager.run()?;
        }
        Ok(())
    }

    fn obey(&mut self) {
        self.wake.waiting.store(false, Ordering::Release);
        loop {
            match self.orders.try_recv() {
                Ok(Command::Begin { rings, features }) => {
                    self.device.begin(features);
                    self.rings = rings;
                }
                Ok(Command::End(done)) => {
                    self.rings.clear();
                    // The waiting thread may have given up.
                    let _ = done.send(());
                }
                // A notification may have come before the ring was here, or a pass over it ended
                // early for a command.
                Err(TryRecvError::Empty) => {
                    return (0..self.rings.len()).for_each(|queue| self.serve(queue));
                }
                Err(TryRecvError::Disconnected) => {
                    self.over = true;
                    return;
                }
            }
        }
    }

    /// Serves a queue until it is empty, a command waits, or it is the turn of the other queues. A
    /// driver that breaks a queue has no queues any more.
    fn serve(&mut self, queue: usize) {
        if let Err(e) = self.pass(queue) {
            e.log(self.device.kind().name);
            self.rings.clear();
            self.shared.require_reset();
        }
    }

    fn pass(&mut self, queue: usize) -> Result<(), QueueEnd> {
        let (Some(Some(ring)), Some(kick)) = (self.rings.get_mut(queue), self.kicks.get(queue))
        else {
            return Ok(());
        };
        let (number, memory) = (queue as u16, self.shared.ram.memory());
        let mut left = REQUESTS_AT_ONCE;
        // Looked at in the outer loop, too: a guest that moves its index to and fro gets there
        // without a request.
        while !self.wake.waiting.load(Ordering::Acquire) {
            ring.silence(memory)?;
            while let Some(request) = ring.pop(memory)? {
                let head = request.head;
                let served = self.device.serve(number, &request, memory);
                let written = served.map_err(|source| QueueEnd::Request { head, source })?;
                ring.push(memory, head, written)?;
                if ring.wants_interrupt(memory)? {
                    self.shared.interrupts.raise(Source::Queue(number));
                }
                // A thread that waits for the device to end waits for one request at most.
                if self.wake.waiting.load(Ordering::Acquire) {
                    return Ok(());
                }
                left -= 1;
                if left == 0 {
                    // The other queues first. An event that is full is signalled, too.
                    let _ = kick.write(1);
                    return Ok(());
                }
            }
            if !ring.listen(memory)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl MutEventSubscriber for Job {
    fn process(&mut self, events: Events, _: &mut EventOps) {
        match events.data() {
            COMMAND => {
                let _ = self.wake.event.read(); // Fails if another read was first.
                self.obey();
            }
            event => {
                let queue = (event - KICK) as usize;
                if let Some(kick) = self.kicks.get(queue) {
                    let _ = kick.read();
                }
                self.serve(queue);
            }
        }
    }

    fn init(&mut self, ops: &mut EventOps) {
        let command = Events::with_data(&self.wake.event, COMMAND, EventSet::IN);
        let kicks = (KICK..).zip(&self.kicks);
        let kicks = kicks.map(|(event, kick)| Events::with_data(kick, event, EventSet::IN));
        for events in std::iter::once(command).chain(kicks) {
            if let Err(e) = ops.add(events) {
                log::error!(
                    "the guest's device {name} stops for good, because its thread cannot watch an \
                     event: {e:?}",
                    name = self.device.kind().name
                );
                self.shared.require_reset();
                self.over = true;
            }
        }
    }
}

/// Why a queue is not served any more.
#[derive(Debug, thiserror::Error)]
enum QueueEnd {
    #[error("the guest's driver has made a virtio queue invalid")]
    Ring(#[from] RingError),
    #[error("cannot execute the virtio request that begins with descriptor {head}")]
    Request { head: u16, source: ServeError },
}

impl QueueEnd {
    /// A guest can break its queues at will; the host's failures are the operator's affair.
    fn log(&self, name: &str) {
        let text = crate::error_chain::chain(self);
        match self {
            Self::Request {
                source: ServeError::Entropy(_),
                ..
            } => log::error!(
                "the guest's device {name} stops until the guest's driver resets it: {text}"
            ),
            _ => log::debug!(
                "the guest's device {name} stops until the guest's driver resets it: {text}"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
