//! Lends the device to one worker after another ([`rota`]), where sessions have weights or caps.
//!
//! One thread hears what workers report and tells them what it decides. It begins with the first
//! session that has a weight or a cap, and ends with the last. A worker that was taken over may use
//! the device without a lease, as it may break every other rule of its own; it cannot keep others
//! from their leases, and what it is charged is time on the VMM's clock.

mod rota;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_mediator::{Compute, LeaseOrder, LeaseReport};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use zerocopy::IntoBytes;

use crate::event::descriptor;
use crate::socket::{Socket, SocketError};
use crate::wire::{Kind, Lease, LeaseReported, Order};
use rota::Rota;

/// Room for the datagrams of workers, with their heads.
const ROOM_BYTES: usize = 64;

/// The sessions that may need leases, of all workers of a VMM.
pub(super) struct Leases {
    /// A leaf lock.
    state: Mutex<State>,
    /// Wakes the thread.
    wake: EventFd,
    epoch: Instant,
}

#[derive(Default)]
struct State {
    rota: Rota,
    /// To the workers that have been told of the lender, by the numbers of their sessions.
    sockets: BTreeMap<u64, Arc<Socket>>,
    next: u64,
    has_thread: bool,
}

/// The membership of one session, which ends when this is dropped. It outlives the session's
/// workers.
pub(super) struct Tenancy {
    leases: Arc<Leases>,
    number: u64,
}

impl Leases {
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            state: Mutex::default(),
            wake: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?,
            epoch: Instant::now(),
        }))
    }

    /// Makes a session a member.
    pub fn join(self: &Arc<Self>, compute: Compute) -> Tenancy {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        state.rota.join(number, compute);
        Tenancy {
            leases: Arc::clone(self),
            number,
        }
    }

    fn wake(&self) {
        // Fails only if the counter is full, and then the thread is awake.
        let _ = self.wake.write(1);
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Lends the device until no worker is left.
    fn lend(&self) {
        loop {
            let (sockets, next_ns) = {
                let mut state = self.state.lock();
                let next_ns = state.decide(self.now_ns());
                state.has_thread = !state.sockets.is_empty();
                if !state.has_thread {
                    return;
                }
                let sockets = state.sockets.iter();
                let sockets: Vec<_> = sockets.map(|(n, it)| (*n, Arc::clone(it))).collect();
                (sockets, next_ns)
            };
            let readable = self.wait(&sockets, next_ns);
            for (number, socket) in readable {
                self.hear(number, &socket);
            }
        }
    }

    /// Waits until a worker has reported something, until `next_ns`, or until something else has
    /// changed. Returns the workers that have.
    fn wait(
        &self,
        sockets: &[(u64, Arc<Socket>)],
        next_ns: Option<u64>,
    ) -> Vec<(u64, Arc<Socket>)> {
        let limit = next_ns.and_then(|next_ns| {
            let left_ns = next_ns.saturating_sub(self.now_ns());
            Timespec::try_from(Duration::from_nanos(left_ns)).ok()
        });
        let wake = descriptor(&self.wake);
        let mut polled = vec![PollFd::from_borrowed_fd(wake, PollFlags::IN)];
        polled.extend(
            sockets
                .iter()
                .map(|(_, it)| PollFd::from_borrowed_fd(it.as_fd(), PollFlags::IN)),
        );
        match poll(&mut polled, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Not even memory for that; there may be some in a moment.
            Err(error) => {
                log::warn!("cannot wait for worker processes that share out the device: {error}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let readable = polled[1..].iter().map(|it| !it.revents().is_empty());
        let readable: Vec<_> = readable.collect();
        // Empty, as often as not.
        let _ = self.wake.read();
        let sockets = sockets.iter().zip(readable);
        sockets
            .filter(|(_, is)| *is)
            .map(|(it, _)| it.clone())
            .collect()
    }

    /// Takes one report of a worker. Others are next, however many this one sends.
    fn hear(&self, number: u64, socket: &Arc<Socket>) {
        let report = receive(socket);
        let mut state = self.state.lock();
        match report {
            Ok(Some(report)) => state.rota.told(number, report, self.now_ns()),
            Ok(None) => {}
            Err(error) => state.forget(number, socket, &error),
        }
    }
}

/// Takes a report, if there is one.
fn receive(socket: &Socket) -> Result<Option<LeaseReport>, SocketError> {
    let mut room = [0; ROOM_BYTES];
    let datagram = match socket.receive_at_once(&mut room) {
        Ok(datagram) if datagram.kind == Kind::LeaseReported => datagram,
        Ok(_) => return Err(SocketError::Malformed("a worker reports no lease")),
        Err(SocketError::Timeout) => return Ok(None),
        Err(error) => return Err(error),
    };
    let reported: LeaseReported = datagram.body()?;
    let report = reported.report();
    report.map(Some).ok_or(SocketError::Malformed(
        "a worker reports nothing known of its lease",
    ))
}

impl State {
    /// Tells workers what the rota decides. Returns when to decide again.
    fn decide(&mut self, now_ns: u64) -> Option<u64> {
        loop {
            let (orders, next_ns) = self.rota.decide(now_ns);
            let mut all_told = true;
            for (number, order) in orders {
                all_told &= self.tell(number, order);
            }
            // Otherwise somebody has gone, and another one may be next.
            if all_told {
                return next_ns;
            }
        }
    }

    /// Sends an order; returns false if the worker does not take it.
    fn tell(&mut self, number: u64, order: LeaseOrder) -> bool {
        let Some(socket) = self.sockets.get(&number).map(Arc::clone) else {
            return true;
        };
        let body = Lease::from(order);
        let sent = socket.send_at_once(Kind::Lease, &[body.as_bytes()]);
        if let Err(error) = &sent {
            self.forget(number, &socket, error);
        }
        sent.is_ok()
    }

    /// Lends nothing more to the worker behind `socket`.
    fn forget(&mut self, number: u64, socket: &Arc<Socket>, error: &SocketError) {
        let is_same = |known: &Arc<Socket>| Arc::ptr_eq(known, socket);
        if !self.sockets.get(&number).is_some_and(is_same) {
            return;
        }
        self.sockets.remove(&number);
        self.rota.set_present(number, false);
        if !matches!(error, SocketError::Closed) {
            log::warn!("a worker process is lent the device no longer: {error}");
        }
    }
}

impl Tenancy {
    /// Returns what the session may have at present.
    pub fn compute(&self) -> Compute {
        self.leases.state.lock().rota.compute(self.number)
    }

    /// Returns whether the session's workers are to hear of the lender.
    pub fn is_needed(&self) -> bool {
        self.compute() != Compute::DEFAULT
    }

    /// Returns the time of the device that the session has had while others waited for it, or under
    /// a cap, in nanoseconds.
    pub fn used_ns(&self) -> u64 {
        self.leases.state.lock().rota.used_ns(self.number)
    }

    /// Gives the session from now on what `change` makes of what it may have.
    pub fn change(&self, change: impl FnOnce(Compute) -> Compute) {
        let mut state = self.leases.state.lock();
        let compute = change(state.rota.compute(self.number));
        state.rota.set(self.number, compute);
        drop(state);
        self.leases.wake();
    }

    /// Lends the device to the worker behind `socket`, in place of an earlier one of the session.
    /// Fails if no thread can be started for that.
    pub fn attach(&self, socket: Socket) -> io::Result<()> {
        let mut state = self.leases.state.lock();
        if !state.has_thread {
            let leases = Arc::clone(&self.leases);
            let thread = std::thread::Builder::new().name("leases".to_owned());
            // It begins when the lock is released.
            thread.spawn(move || leases.lend())?;
            state.has_thread = true;
        }
        state.sockets.insert(self.number, Arc::new(socket));
        state.rota.set_present(self.number, true);
        drop(state);
        self.leases.wake();
        Ok(())
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let mut state = self.leases.state.lock();
        state.rota.leave(self.number);
        state.sockets.remove(&self.number);
        drop(state);
        self.leases.wake();
    }
}

impl From<LeaseOrder> for Lease {
    fn from(order: LeaseOrder) -> Self {
        let (order, within) = match order {
            LeaseOrder::Free => (Order::Free, None),
            LeaseOrder::Ask => (Order::Ask, None),
            LeaseOrder::Grant => (Order::Grant, None),
            LeaseOrder::Return(within) => (Order::Return, Some(within)),
        };
        let within_ns = within.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX));
        Self {
            order: order as u32,
            reserved: 0,
            within_ns,
        }
    }
}

#[cfg(test)]
mod tests;
