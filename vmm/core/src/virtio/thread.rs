//! The thread of a virtio device: started, told when a driver begins and ends, and ended.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use event_manager::{EventManager, MutEventSubscriber, SubscriberOps as _};
use parking_lot::Mutex;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::configuration::Configuration;
use super::interrupts::{Interrupts, Source};
use super::ring::Ring;
use crate::memory::RamView;

/// State that a virtio PCI function shares with the thread that executes its requests.
pub struct Shared {
    /// The function's interrupts.
    pub interrupts: Interrupts,
    /// The device's configuration structure.
    pub configuration: Configuration,
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

/// What a virtual CPU's thread tells the thread of a device.
pub enum Command {
    /// A driver begins to use the device.
    Begin {
        /// One element for each queue of the device: `None` if the driver does not use that queue.
        rings: Vec<Option<Ring>>,
        /// The features that the driver has accepted.
        features: u64,
    },
    /// The driver ends. The thread answers when the device touches no guest memory any more.
    End(Sender<()>),
}

/// What the thread of a device does until it is told to end.
pub trait Job: Send {
    /// Runs on the thread.
    fn run(self: Box<Self>);
}

/// What the thread of a device does if all it does is an answer to an event.
pub trait Watcher: MutEventSubscriber + Send {
    /// Returns what the device is called in messages.
    fn name(&self) -> &'static str;

    /// Returns what the thread shares with the function.
    fn shared(&self) -> &Arc<Shared>;

    /// Returns how many events it waits for at most.
    fn events(&self) -> usize;

    /// Returns whether it has been told to end.
    fn is_over(&self) -> bool;
}

impl<W: Watcher> Job for W {
    fn run(self: Box<Self>) {
        let (name, shared) = (self.name(), Arc::clone(self.shared()));
        // What is shared stays whole: the guest's memory is the guest's, and all else is atomic.
        match catch_unwind(AssertUnwindSafe(|| watch(*self))) {
            Ok(Ok(())) => return,
            Ok(Err(e)) => log::error!(
                "the guest's device {name} stops for good, because its thread cannot wait for \
                 events: {e:?}"
            ),
            Err(_) => log::error!(
                "the guest's device {name} stops for good, because its thread panicked; this is a \
                 bug in Causeway"
            ),
        }
        shared.require_reset();
    }
}

fn watch(watcher: impl Watcher) -> Result<(), event_manager::Error> {
    let mut manager = EventManager::new_with_capacity(watcher.events())?;
    let id = manager.add_subscriber(watcher);
    while !manager.subscriber_mut(id)?.is_over() {
        manager.run()?;
    }
    Ok(())
}

/// What a [`Job`] needs to hear of commands.
pub struct Orders {
    /// The commands; disconnected when the thread is to end.
    pub commands: Receiver<Command>,
    /// Signalled when there is a command, or the end.
    pub wake: Arc<Wake>,
}

/// The thread of a virtio device. Dropping this value ends the thread.
pub struct DeviceThread {
    /// Gone when the thread is to end.
    commands: Option<Sender<Command>>,
    wake: Arc<Wake>,
    thread: Mutex<Thread>,
}

/// A virtual CPU's thread starts the thread when a driver uses the device for the first time. So it
/// inherits what confines that thread.
enum Thread {
    Ahead(String, Box<dyn Job>),
    Started(JoinHandle<()>),
    Gone,
}

/// Wakes the thread, and takes it out of a queue that it serves.
pub struct Wake {
    /// Signalled when there is a command, or the end.
    pub event: EventFd,
    /// A command waits: looked at between requests.
    pub waiting: AtomicBool,
}

impl DeviceThread {
    /// Prepares a thread called `name`, which the first [`Self::begin`] starts. `job` returns what
    /// it does.
    ///
    /// # Errors
    /// The kernel's error if no descriptor is left.
    pub fn new<J: Job + 'static>(
        name: &str,
        job: impl FnOnce(Orders) -> io::Result<J>,
    ) -> io::Result<Self> {
        let wake = Arc::new(Wake {
            event: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            waiting: AtomicBool::new(false),
        });
        let (sender, commands) = channel();
        let orders = Orders {
            commands,
            wake: Arc::clone(&wake),
        };
        Ok(Self {
            thread: Mutex::new(Thread::Ahead(name.to_owned(), Box::new(job(orders)?))),
            commands: Some(sender),
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

    /// Returns whether a command waits that the thread has not seen.
    #[cfg(test)]
    pub fn is_called(&self) -> bool {
        self.wake.waiting.load(Ordering::Acquire)
    }

    fn send(&self, command: Command) -> bool {
        let commands = self.commands.as_ref();
        let sent = commands.is_some_and(|commands| commands.send(command).is_ok());
        self.wake.up();
        sent
    }
}

impl Drop for DeviceThread {
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
