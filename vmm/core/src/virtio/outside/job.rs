//! The thread of a device that is served outside of this process: it tells the back end of drivers,
//! and notices its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;

use event_manager::{EventOps, Events, MutEventSubscriber};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::{BackEnd, OutsideError, Queue};
use crate::virtio::interrupts::Source;
use crate::virtio::ring::Ring;
use crate::virtio::thread::{Command, DeviceThread, Orders, Shared, Watcher};

const COMMAND: u32 = 0;
/// Event of the connection: it ends, since a back end has nothing to say by itself.
const CONNECTION: u32 = 1;
/// Event of the first queue's interrupts; those of the other queues follow.
const CALL: u32 = 2;

/// Prepares a thread called `name` that makes `back_end` serve the queues whose notifications
/// signal `kicks`.
///
/// # Errors
/// The kernel's error if no descriptor is left.
pub fn start(
    name: &str,
    back_end: Box<dyn BackEnd>,
    kicks: &[EventFd],
    shared: Arc<Shared>,
) -> io::Result<DeviceThread> {
    let copies = kicks.iter().map(EventFd::try_clone);
    let kicks = copies.collect::<Result<Vec<_>, _>>()?;
    let calls = kicks
        .iter()
        .map(|_| EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC));
    let calls = calls.collect::<Result<_, _>>()?;
    DeviceThread::new(name, |orders| {
        Ok(Remote {
            back_end,
            kicks,
            calls,
            served: Vec::new(),
            has_driver: false,
            orders,
            shared,
            is_lost: false,
            over: false,
        })
    })
}

struct Remote {
    /// Before what is shared, and so dropped before guest RAM, which the kernel may still use.
    back_end: Box<dyn BackEnd>,
    kicks: Vec<EventFd>,
    /// Signalled by the back end for queues whose interrupts KVM cannot raise by itself, because
    /// the driver uses the pin.
    calls: Vec<EventFd>,
    /// Queues that the back end serves.
    served: Vec<usize>,
    /// A driver uses the device.
    has_driver: bool,
    orders: Orders,
    shared: Arc<Shared>,
    /// The back end is given up.
    is_lost: bool,
    over: bool,
}

impl Watcher for Remote {
    fn name(&self) -> &'static str {
        self.back_end.description().kind.name
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn events(&self) -> usize {
        self.calls.len() + 2
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

impl Remote {
    fn obey(&mut self, ops: &mut EventOps) {
        self.orders.wake.waiting.store(false, Ordering::Release);
        loop {
            match self.orders.commands.try_recv() {
                Ok(Command::Begin { .. }) if self.is_lost => self.shared.require_reset(),
                Ok(Command::Begin { rings, features }) => {
                    self.has_driver = true;
                    match self.begin(&rings, features) {
                        // What the kernel refuses is this driver's, and the next one may do better.
                        Err(e @ OutsideError::Kernel { .. }) if self.end().is_ok() => {
                            log::debug!(
                                "the guest's device {} waits for a reset: {}",
                                self.name(),
                                crate::error_chain::chain(&e)
                            );
                            self.shared.require_reset();
                        }
                        Err(e) => self.give_up(&e, ops),
                        Ok(()) => {}
                    }
                }
                Ok(Command::End(done)) => {
                    self.has_driver = false;
                    if let Err(e) = self.end() {
                        self.give_up(&e, ops);
                    }
                    // The waiting thread may have given up.
                    let _ = done.send(());
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.over = true;
                    return;
                }
            }
        }
    }

    /// Hands guest RAM and the driver's queues to the back end.
    fn begin(&mut self, rings: &[Option<Ring>], features: u64) -> Result<(), OutsideError> {
        let places = rings.iter().enumerate();
        let places = places.filter_map(|(queue, ring)| Some((queue, ring.as_ref()?.place())));
        let queues: io::Result<Vec<_>> = places
            .map(|(number, place)| {
                Ok(Queue {
                    number,
                    place,
                    kick: self.kicks[number].try_clone()?,
                    call: self.call(number)?,
                })
            })
            .collect();
        let queues = queues.map_err(|source| OutsideError::Host {
            process: self.back_end.description().process.clone(),
            source,
        })?;
        self.served = queues.iter().map(|queue| queue.number).collect();
        self.back_end.serve(&queues, features, &self.shared.ram)
    }

    /// Returns the event by which the back end interrupts the guest for a queue.
    fn call(&self, queue: usize) -> io::Result<EventFd> {
        let event = self.shared.interrupts.event(Source::Queue(queue as u16))?;
        event.map_or_else(|| self.calls[queue].try_clone(), Ok)
    }

    /// Interrupts the guest for a queue, if the back end has signalled that queue's event and
    /// serves the queue.
    fn interrupt(&self, queue: usize) {
        let signals = self.calls.get(queue).map(EventFd::read);
        if matches!(signals, Some(Ok(_))) && self.served.contains(&queue) {
            self.shared.interrupts.raise(Source::Queue(queue as u16));
        }
    }

    /// Takes the queues back. Afterwards the back end touches no guest memory, if it keeps to the
    /// protocol.
    fn end(&mut self) -> Result<(), OutsideError> {
        let served = std::mem::take(&mut self.served);
        if served.is_empty() {
            return Ok(());
        }
        let stopped = self.back_end.stop(&served);
        // Interrupts of this driver that wait are not for the next one.
        for call in &self.calls {
            let _ = call.read(); // Fails unless one waits.
        }
        stopped
    }

    /// Leaves the back end alone from now on.
    fn give_up(&mut self, why: &OutsideError, ops: &mut EventOps) {
        log::error!(
            "the guest's device {name} stops for good: {why}; the VM goes on without it",
            name = self.name(),
            why = crate::error_chain::chain(why)
        );
        self.is_lost = true;
        self.served.clear();
        // Before a reset is done: the back end may go on to write to guest memory.
        self.back_end.give_up();
        let watched = self.back_end.connection().map(Events::empty);
        if let Some(Err(e)) = watched.map(|connection| ops.remove(connection)) {
            log::debug!("{}: {e:?}", self.name());
        }
        // Without a driver, nobody would read the interrupt status and end the interrupt. The next
        // driver is asked for a reset when it begins.
        if self.has_driver {
            self.shared.require_reset();
        }
    }

    fn lost(&self) -> OutsideError {
        OutsideError::Ended(self.back_end.description().process.clone())
    }
}

impl MutEventSubscriber for Remote {
    fn process(&mut self, events: Events, ops: &mut EventOps) {
        match events.data() {
            COMMAND => {
                let _ = self.orders.wake.event.read(); // Fails if another read was first.
                self.obey(ops);
            }
            CONNECTION if self.is_lost => {}
            CONNECTION => self.give_up(&self.lost(), ops),
            event => self.interrupt((event - CALL) as usize),
        }
    }

    fn init(&mut self, ops: &mut EventOps) {
        let command = Events::with_data(&self.orders.wake.event, COMMAND, EventSet::IN);
        let hang_up = EventSet::IN | EventSet::READ_HANG_UP;
        let connection = self.back_end.connection();
        let connection = connection.map(|it| Events::with_data(it, CONNECTION, hang_up));
        let calls = (CALL..).zip(&self.calls);
        let calls = calls.map(|(event, call)| Events::with_data(call, event, EventSet::IN));
        for events in [command].into_iter().chain(connection).chain(calls) {
            if let Err(e) = ops.add(events) {
                log::error!(
                    "the guest's device {name} stops for good, because its thread cannot watch an \
                     event: {e:?}",
                    name = self.name()
                );
                self.shared.require_reset();
                self.over = true;
            }
        }
    }
}
