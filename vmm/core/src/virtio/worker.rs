//! Executes the requests of a device in this process, while a driver uses the device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;

use event_manager::{EventOps, Events, MutEventSubscriber};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::eventfd::EventFd;

use super::device::{ServeError, VirtioDevice};
use super::interrupts::Source;
use super::ring::{Ring, RingError};
use super::thread::{Command, DeviceThread, Orders, Shared, Watcher};

const COMMAND: u32 = 0;
/// Event of the first queue; those of the other queues follow.
const KICK: u32 = 1;

/// Most requests served from one queue before the others have their turn.
const REQUESTS_AT_ONCE: u32 = 256;

/// Prepares a thread called `name` that executes the requests of `device`. Whenever `kicks[n]` is
/// signalled, the thread executes the requests in queue n.
///
/// # Errors
/// The kernel's error if no descriptor is left.
pub fn start(
    name: &str,
    device: Box<dyn VirtioDevice>,
    kicks: &[EventFd],
    shared: Arc<Shared>,
) -> io::Result<DeviceThread> {
    let copies = kicks.iter().map(EventFd::try_clone);
    let kicks = copies.collect::<Result<_, _>>()?;
    DeviceThread::new(name, |orders| {
        Ok(Worker {
            device,
            rings: Vec::new(),
            kicks,
            orders,
            shared,
            over: false,
        })
    })
}

/// The state that the thread owns.
struct Worker {
    device: Box<dyn VirtioDevice>,
    /// The queues of the driver that uses the device; empty without one.
    rings: Vec<Option<Ring>>,
    kicks: Vec<EventFd>,
    orders: Orders,
    shared: Arc<Shared>,
    over: bool,
}

impl Watcher for Worker {
    fn name(&self) -> &'static str {
        self.device.kind().name
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn events(&self) -> usize {
        self.kicks.len() + 1
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

impl Worker {
    fn obey(&mut self) {
        self.orders.wake.waiting.store(false, Ordering::Release);
        loop {
            match self.orders.commands.try_recv() {
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
        while !self.orders.wake.waiting.load(Ordering::Acquire) {
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
                if self.orders.wake.waiting.load(Ordering::Acquire) {
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

impl MutEventSubscriber for Worker {
    fn process(&mut self, events: Events, _: &mut EventOps) {
        match events.data() {
            COMMAND => {
                let _ = self.orders.wake.event.read(); // Fails if another read was first.
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
        let command = Events::with_data(&self.orders.wake.event, COMMAND, EventSet::IN);
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
