//! Call channels, from the worker's side: each has a thread, which serves one caller of the VMM at
//! a time.

use std::sync::Arc;

use super::calls::CallChannel;
use super::process::end_now;
use super::session::Served;
use crate::report;
use crate::socket::{Datagram, Socket, SocketError, buffer};
use crate::wire::{Executed, ForClient, Kind, ResetDone, RevokeImport, Sampled, SetLimits};
use causeway_mediator::share::REVOCATION_PATIENCE;
use causeway_mediator::{Client, GuestSession, LimitChange, Peers, Quota};
use zerocopy::{FromBytes, IntoBytes};

/// Starts a thread that serves a channel.
pub(super) fn start(served: &Arc<Served>, socket: Socket) {
    let served = Arc::clone(served);
    let thread = std::thread::Builder::new()
        .name(format!("{:.9}/channel", served.name))
        .spawn(move || serve(&served, socket));
    if let Err(e) = thread {
        // The caller sees that the channel is closed.
        log::error!(
            "cannot start a thread in the worker process for requests of the VMM, so these \
             requests fail: {e}"
        );
    }
}

fn serve(served: &Served, socket: Socket) {
    let channel = CallChannel::new(socket);
    let peers = served.peers(&channel);
    let mut room = buffer();
    loop {
        let served = match channel.socket.receive(&mut room) {
            Ok(request) => answer(served, &channel.socket, &peers, request),
            Err(SocketError::Timeout) => continue,
            Err(SocketError::Closed) => return,
            Err(_) => end_now(),
        };
        if served.is_err() {
            end_now();
        }
    }
}

/// Serves a request, and sends the reply.
fn answer(
    served: &Served,
    socket: &Socket,
    peers: &Peers,
    request: Datagram<'_>,
) -> Result<(), SocketError> {
    match request.kind {
        Kind::Execute => {
            let (client, batch) = batch_of(request.bytes)?;
            let status = served.session.execute_for(peers, client, batch);
            let executed = Executed {
                status: status as u32,
                reserved: 0,
            };
            let parts = [executed.as_bytes(), &*batch];
            socket.send(Kind::Executed, &parts, &[])
        }
        Kind::Reset => {
            // A process that is replaced takes everything with it.
            if !served.backend.is_poisoned() {
                served.session.reset_for(peers);
            }
            socket.send(Kind::ResetDone, &[reset_done(served).as_bytes()], &[])
        }
        Kind::ResetClient => {
            let client = client(request.body()?)?;
            // Whatever the back end is: other clients live on here, until they know that it is
            // lost.
            served.session.reset_client_for(peers, client);
            socket.send(Kind::ClientReset, &[reset_done(served).as_bytes()], &[])
        }
        Kind::Close => {
            served.session.close_for(peers);
            socket.send(Kind::Closed, &[], &[])?;
            std::process::exit(0)
        }
        Kind::Report => {
            let fault = served.session.fault();
            let report = served.session.report();
            let (reported, text) = report::to_wire(&report, fault.as_ref());
            let supplement = (served.supplement)();
            let parts = [reported.as_bytes(), text.as_bytes(), &supplement];
            socket.send(Kind::Reported, &parts, &[])
        }
        Kind::Sample => {
            let sampled = Sampled::from(served.session.activity().unwrap_or_default());
            socket.send(Kind::Sampled, &[sampled.as_bytes()], &[])
        }
        Kind::SetLimits => {
            let request: SetLimits = request.body()?;
            let quota = Quota::from_limits(request.quota);
            // The VMM has checked them.
            served.session.put_limits(&LimitChange::to(&quota));
            socket.send(Kind::LimitsSet, &[], &[])
        }
        Kind::RevokeImport => {
            let request: RevokeImport = request.body()?;
            let session = &served.session;
            if !session.revoke_import(peers, request.handle, request.import, REVOCATION_PATIENCE) {
                // Its owner may give the memory away once this is answered, and is not charged for
                // it any more. Only the end of this process takes it from work that does not end.
                log::warn!(
                    "GPU work of {name} still uses memory whose owner has ended the sharing: the \
                     worker process of {name} ends, and the guest must reset the device to go on",
                    name = served.name
                );
                end_now();
            }
            socket.send(Kind::ImportRevoked, &[], &[])
        }
        _ => Err(SocketError::Malformed("a request is of an unknown kind")),
    }
}

/// How a reset went.
fn reset_done(served: &Served) -> ResetDone {
    ResetDone {
        poisoned: served.backend.is_poisoned().into(),
        reserved: 0,
    }
}

/// Whose batch it is, and the batch.
fn batch_of(bytes: &mut [u8]) -> Result<(Client, &mut [u8]), SocketError> {
    let (head, batch) = bytes
        .split_at_mut_checked(size_of::<ForClient>())
        .ok_or(SocketError::Malformed("a batch names no client"))?;
    let head = ForClient::read_from_bytes(head)
        .map_err(|_| SocketError::Malformed("a batch names no client"))?;
    Ok((client(head)?, batch))
}

fn client(request: ForClient) -> Result<Client, SocketError> {
    Client::new(request.client).ok_or(SocketError::Malformed("a request names an unknown client"))
}
