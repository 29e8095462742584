//! Lends the device to one worker after another ([`rota`]), where sessions have weights or caps.
//!
//! One thread hears what workers report and tells them what it decides. It begins with the first
//! worker whose session has a weight or a cap, and ends with the last. A worker that was taken over
//! may use the device without a lease, as it may break every other rule of its own. It cannot keep
//! others from their leases.

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
use crate::wire::{Kind, Lease, LeaseReported};
use rota::Rota;

/// Room for the datagrams of workers, with their heads.
const ROOM_BYTES: usize = 64;
/// Reports in a row that mean nothing, after which a worker is lent nothing more. One or two may
/// have crossed an order.
const IDLE_REPORTS_MAX: u32 = 64;

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
    /// Workers that have been told of the lender, by the numbers of their sessions.
    borrowers: BTreeMap<u64, Borrower>,
    next: u64,
    has_thread: bool,
}

/// A worker that has been told of the lender.
struct Borrower {
    /// Number of the worker.
    worker: u64,
    socket: Arc<Socket>,
    /// Reports in a row that meant nothing.
    idle_reports: u32,
}

/// The membership of one session, which ends when this is dropped. It outlives the session's
/// workers.
pub(super) struct Membership {
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
    pub fn join(self: &Arc<Self>, compute: Compute) -> Membership {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        state.rota.join(number, compute);
        Membership {
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
                state.has_thread = !state.borrowers.is_empty();
                if !state.has_thread {
                    return;
                }
                let borrowers = state.borrowers.iter();
                let sockets = borrowers.map(|(session, it)| (*session, Arc::clone(&it.socket)));
                let sockets: Vec<_> = sockets.collect();
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
    fn hear(&self, session: u64, socket: &Arc<Socket>) {
        let report = receive(socket);
        let mut state = self.state.lock();
        let heard = match report {
            Ok(Some(report)) => state.take(session, report, self.now_ns()),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = heard {
            state.forget(session, socket, &error);
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

    /// Notes a report. Fails if the worker has sent too many that mean nothing.
    fn take(&mut self, session: u64, report: LeaseReport, now_ns: u64) -> Result<(), SocketError> {
        let has_meaning = self.rota.told(session, report, now_ns);
        let Some(borrower) = self.borrowers.get_mut(&session) else {
            return Ok(());
        };
        borrower.idle_reports = match has_meaning {
            true => 0,
            false => borrower.idle_reports + 1,
        };
        match borrower.idle_reports > IDLE_REPORTS_MAX {
            true => Err(SocketError::Malformed(
                "a worker sends reports about leases that it does not have",
            )),
            false => Ok(()),
        }
    }

    /// Sends an order; returns false if the worker does not take it.
    fn tell(&mut self, session: u64, order: LeaseOrder) -> bool {
        let Some(borrower) = self.borrowers.get(&session) else {
            return true;
        };
        let socket = Arc::clone(&borrower.socket);
        let body = Lease::new(order);
        let sent = socket.send_at_once(Kind::Lease, &[body.as_bytes()]);
        if let Err(error) = &sent {
            self.forget(session, &socket, error);
        }
        sent.is_ok()
    }

    /// Lends nothing more to the worker behind `socket`.
    fn forget(&mut self, session: u64, socket: &Arc<Socket>, error: &SocketError) {
        let is_same = |known: &Borrower| Arc::ptr_eq(&known.socket, socket);
        if !self.borrowers.get(&session).is_some_and(is_same) {
            return;
        }
        self.borrowers.remove(&session);
        self.rota.set_present(session, false);
        if !matches!(error, SocketError::Closed) {
            log::warn!("a worker process is lent the device no longer: {error}");
        }
    }
}

impl Membership {
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

    /// Returns whether the device is lent to this worker.
    pub fn is_attached(&self, worker: u64) -> bool {
        let state = self.leases.state.lock();
        let borrower = state.borrowers.get(&self.number);
        borrower.is_some_and(|borrower| borrower.worker == worker)
    }

    /// Lends the device to this worker, which is behind `socket`, in place of an earlier one of the
    /// session. Fails if no thread can be started for that.
    pub fn attach(&self, worker: u64, socket: Socket) -> io::Result<()> {
        let mut state = self.leases.state.lock();
        if !state.has_thread {
            let leases = Arc::clone(&self.leases);
            let thread = std::thread::Builder::new().name("leases".to_owned());
            // It begins when the lock is released.
            thread.spawn(move || leases.lend())?;
            state.has_thread = true;
        }
        let borrower = Borrower {
            worker,
            socket: Arc::new(socket),
            idle_reports: 0,
        };
        state.borrowers.insert(self.number, borrower);
        state.rota.set_present(self.number, true);
        drop(state);
        self.leases.wake();
        Ok(())
    }

    /// Notes that the session is closed: nobody takes turns with it.
    pub fn close(&self) {
        let mut state = self.leases.state.lock();
        state.rota.close(self.number);
        state.borrowers.remove(&self.number);
        drop(state);
        self.leases.wake();
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.leases.state.lock();
        state.rota.leave(self.number);
        state.borrowers.remove(&self.number);
        drop(state);
        self.leases.wake();
    }
}

#[cfg(test)]
mod tests;
