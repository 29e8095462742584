//! Call channels, from the VMM's side, and the one for monitors.

use std::os::fd::AsFd;
use std::time::Duration;

use causeway_mediator::Activity;

use crate::socket::{Buffer, Datagram, Socket, SocketError, buffer};
use crate::wire::{Kind, Sampled};

/// How often a caller that waits checks whether it has waited too long.
pub(super) const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// A call channel: a socket to a thread of the worker, for one caller at a time.
pub(super) struct Channel {
    pub socket: Socket,
    pub room: Buffer,
}

impl Channel {
    /// Creates a socket pair for requests to the worker, and sends one end to the worker over the
    /// socket `control`. The returned channel holds the other end.
    pub fn open(control: &Socket) -> Result<Self, SocketError> {
        let (socket, end) = Socket::pair()?;
        socket.set_patience(LOOK_PERIOD)?;
        control.send(Kind::NewChannel, &[], &[end.as_fd()])?;
        Ok(Self {
            socket,
            room: buffer(),
        })
    }
}

/// A channel on which monitors ask for samples, and nothing else happens.
pub(super) struct MonitorChannel {
    channel: Channel,
    /// Whether the answer to an earlier question has not arrived yet.
    is_owed: bool,
}

impl MonitorChannel {
    pub fn new(channel: Channel) -> Self {
        Self {
            channel,
            is_owed: false,
        }
    }

    /// Asks the worker for the session's current statistics, and waits up to [`LOOK_PERIOD`] for
    /// the answer. Fails immediately if an earlier question is still unanswered, so that a worker
    /// that hangs delays a monitor only once.
    pub fn sample(&mut self) -> Result<Activity, SocketError> {
        let Channel { socket, room } = &mut self.channel;
        if self.is_owed {
            // The answer to an earlier question is out of date.
            sampled(&socket.receive_at_once(room)?)?;
            self.is_owed = false;
        }
        socket.send(Kind::Sample, &[], &[])?;
        self.is_owed = true;
        let activity = sampled(&socket.receive(room)?)?;
        self.is_owed = false;
        Ok(activity)
    }
}

fn sampled(reply: &Datagram<'_>) -> Result<Activity, SocketError> {
    expect(reply, Kind::Sampled)?;
    Ok(reply.body::<Sampled>()?.into())
}

/// Refuses a reply of another kind.
pub(super) fn expect(reply: &Datagram<'_>, kind: Kind) -> Result<(), SocketError> {
    if reply.kind == kind {
        Ok(())
    } else {
        Err(SocketError::Malformed(
            "it sent a reply of an unexpected kind",
        ))
    }
}
