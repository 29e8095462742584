//! The lease of the device, from the worker's side: one thread does what the VMM's lender says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_mediator::{LeaseOrder, LeaseReport, Lender};
use zerocopy::IntoBytes;

use super::process::end_now;
use super::session::Served;
use crate::socket::{Datagram, Socket, SocketError, buffer};
use crate::wire::{Kind, Lease, LeaseReported, Order};

/// The lender at the other end of a socket.
struct Remote(Arc<Socket>);

impl Lender for Remote {
    fn tell(&self, report: LeaseReport) {
        let report = LeaseReported::from(report);
        // If the VMM has ended, the thread below sees it. If it does not read, it lends nothing.
        let _ = self
            .0
            .send_at_once(Kind::LeaseReported, &[report.as_bytes()]);
    }
}

/// Starts a thread that obeys the lender at the other end of `socket`.
pub(super) fn start(served: &Arc<Served>, socket: Socket) {
    let socket = Arc::new(socket);
    served
        .session
        .set_lender(Arc::new(Remote(Arc::clone(&socket))));
    let served = Arc::clone(served);
    let thread = std::thread::Builder::new()
        .name(format!("{:.9}/lease", served.name))
        .spawn(move || obey(&served, &socket));
    if let Err(e) = thread {
        log::error!(
            "cannot start a thread in the worker process for its turns on the device, so the \
             weight= and share= of this VM have no effect: {e}"
        );
    }
}

fn obey(served: &Served, socket: &Socket) {
    let mut room = buffer();
    loop {
        let received = match served.session.look_at_lease() {
            None => socket.receive(&mut room),
            Some(at) => receive_until(socket, &mut room, at),
        };
        let order = received.and_then(|datagram| order_of(&datagram));
        match order {
            Ok(order) => served.session.obey_lender(order),
            Err(SocketError::Timeout) => {}
            // This worker is lent nothing more, or the VMM has ended.
            Err(SocketError::Closed) => return served.session.obey_lender(LeaseOrder::Free),
            Err(_) => end_now(),
        }
    }
}

fn receive_until<'a>(
    socket: &Socket,
    room: &'a mut [u8],
    at: Instant,
) -> Result<Datagram<'a>, SocketError> {
    match socket.is_readable(at.saturating_duration_since(Instant::now()))? {
        true => socket.receive_at_once(room),
        false => Err(SocketError::Timeout),
    }
}

fn order_of(datagram: &Datagram<'_>) -> Result<LeaseOrder, SocketError> {
    let malformed = SocketError::Malformed("the VMM sent an unknown order");
    if datagram.kind != Kind::Lease {
        return Err(malformed);
    }
    let lease: Lease = datagram.body()?;
    let order = Order::from_wire(lease.order).ok_or(malformed)?;
    Ok(match order {
        Order::Free => LeaseOrder::Free,
        Order::Ask => LeaseOrder::Ask,
        Order::Grant => LeaseOrder::Grant,
        Order::Return => LeaseOrder::Return(Duration::from_nanos(lease.within_ns)),
    })
}

impl From<LeaseReport> for LeaseReported {
    fn from(report: LeaseReport) -> Self {
        Self {
            report: match report {
                LeaseReport::Wanted => 0,
                LeaseReport::Stopped => 1,
                LeaseReport::Returned => 2,
            },
            reserved: 0,
        }
    }
}

impl LeaseReported {
    /// Returns the report; `None` if it is unknown.
    pub fn report(&self) -> Option<LeaseReport> {
        let known = [
            LeaseReport::Wanted,
            LeaseReport::Stopped,
            LeaseReport::Returned,
        ];
        known.get(self.report as usize).copied()
    }
}
