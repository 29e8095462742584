//! The lease of the device, from the worker's side: one thread does what the VMM's lender says.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use causeway_mediator::{LeaseOrder, LeaseReport, Lender};
use zerocopy::IntoBytes;

use super::process::end_now;
use super::session::Served;
use crate::socket::{Datagram, Socket, SocketError, buffer};
use crate::wire::{Kind, Lease, LeaseReported};

/// The lender at the other end of a socket.
struct Remote(Arc<Socket>);

impl Lender for Remote {
    fn tell(&self, report: LeaseReport) {
        let report = LeaseReported::new(report);
        // If the VMM has ended, the thread below sees it. If it does not read, it lends nothing.
        let _ = self
            .0
            .send_at_once(Kind::LeaseReported, &[report.as_bytes()]);
    }
}

/// Starts a thread that obeys the lender at the other end of `socket`, in place of an earlier one.
pub(super) fn start(served: &Arc<Served>, socket: Socket) {
    let served = Arc::clone(served);
    let number = served.lenders.fetch_add(1, Ordering::SeqCst) + 1;
    let thread = std::thread::Builder::new()
        .name(format!("{:.9}/lease", served.name))
        .spawn(move || obey(&served, number, &Arc::new(socket)));
    if let Err(e) = thread {
        // The VMM sees that the socket is closed.
        log::error!(
            "cannot start a thread in the worker process for its turns on the device, so the \
             weight= and share= of this VM have no effect: {e}"
        );
    }
}

/// Obeys lender number `number` until it closes its end.
fn obey(served: &Served, number: u64, socket: &Arc<Socket>) {
    let session = &served.session;
    session.set_lender(Arc::new(Remote(Arc::clone(socket))));
    let mut room = buffer();
    loop {
        let received = match session.look_at_lease() {
            None => socket.receive(&mut room),
            Some(at) => receive_until(socket, &mut room, at),
        };
        let order = received.and_then(|datagram| order_of(&datagram));
        match order {
            Ok(order) => session.obey_lender(order),
            Err(SocketError::Timeout) => {}
            // This worker is lent nothing more, or the VMM has ended.
            Err(SocketError::Closed) => {
                if served.lenders.load(Ordering::SeqCst) == number {
                    session.obey_lender(LeaseOrder::Free);
                }
                return;
            }
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
    lease.order().ok_or(malformed)
}
