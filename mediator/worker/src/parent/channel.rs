//! Call channels, from the VMM's side, and the one for monitors.

use std::os::fd::AsFd;
use std::time::Duration;

use causeway_mediator::{Activity, Quota};
use zerocopy::IntoBytes;

use crate::socket::{Buffer, Datagram, Socket, SocketError, buffer};
use crate::wire::{Kind, Sampled, SetLimits};

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

/// A channel on which monitors ask for samples and set limits, and nothing else happens.
pub(super) struct MonitorChannel {
    channel: Channel,
    /// Number of requests whose answers have not arrived yet.
    owed: u32,
}

impl MonitorChannel {
    pub fn new(channel: Channel) -> Self {
        Self { channel, owed: 0 }
    }

    /// Asks the worker for the session's current statistics, and waits up to [`LOOK_PERIOD`] for
    /// the answer. Fails immediately if an earlier request is still unanswered, so that a worker
    /// that hangs delays a monitor only once.
    pub fn sample(&mut self) -> Result<Activity, SocketError> {
        self.take_arrived()?;
        self.send(Kind::Sample, &[])?;
        let reply = self.channel.socket.receive(&mut self.channel.room)?;
        self.owed -= 1;
        expect(&reply, Kind::Sampled)?;
        Ok(reply.body::<Sampled>()?.into())
    }

    /// Sends the worker the limits of its session, also if an earlier request is still unanswered.
    pub fn send_limits(&mut self, quota: &Quota) -> Result<(), SocketError> {
        let request = SetLimits {
            quota: quota.limits(),
        };
        match self.take_arrived() {
            Ok(()) | Err(SocketError::Timeout) => self.send(Kind::SetLimits, request.as_bytes()),
            Err(error) => Err(error),
        }
    }

    /// Waits up to [`LOOK_PERIOD`] for the answer to the last request. Fails immediately if an
    /// earlier one is still unanswered.
    pub fn settle(&mut self) -> Result<(), SocketError> {
        if self.owed == 1 {
            let reply = self.channel.socket.receive(&mut self.channel.room)?;
            check_answer(&reply)?;
            self.owed = 0;
        }
        self.take_arrived()
    }

    fn send(&mut self, kind: Kind, body: &[u8]) -> Result<(), SocketError> {
        self.channel.socket.send(kind, &[body], &[])?;
        self.owed += 1;
        Ok(())
    }

    /// Takes the answers to earlier requests, which are out of date. Fails with
    /// [`SocketError::Timeout`] if one has not arrived.
    fn take_arrived(&mut self) -> Result<(), SocketError> {
        let Channel { socket, room } = &mut self.channel;
        while self.owed != 0 {
            check_answer(&socket.receive_at_once(room)?)?;
            self.owed -= 1;
        }
        Ok(())
    }
}

/// Refuses what is no answer on a channel of monitors.
fn check_answer(reply: &Datagram<'_>) -> Result<(), SocketError> {
    match reply.kind {
        Kind::Sampled => reply.body::<Sampled>().map(drop),
        _ => expect(reply, Kind::LimitsSet),
    }
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

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    /// Returns a channel on which one request is unanswered, and the worker's end.
    fn asked(kind: Kind) -> (MonitorChannel, Socket) {
        let (socket, end) = Socket::pair().unwrap();
        let room = buffer();
        let mut channel = MonitorChannel::new(Channel { socket, room });
        channel.send(kind, &[]).unwrap();
        (channel, end)
    }

    #[test]
    fn only_answers_of_their_kinds_are_taken_from_a_worker() {
        let sampled = Sampled::new_zeroed();
        for (kind, body, is_answer) in [
            (Kind::Sampled, sampled.as_bytes(), true),
            (Kind::Sampled, &[][..], false),
            (Kind::LimitsSet, &[][..], true),
            (Kind::Closed, &[][..], false),
        ] {
            let takes = [MonitorChannel::take_arrived, MonitorChannel::settle];
            for take in takes {
                let (mut channel, end) = asked(Kind::SetLimits);
                end.send(kind, &[body], &[]).unwrap();
                let taken = take(&mut channel);
                assert_eq!(taken.is_ok(), is_answer, "{kind:?}: {taken:?}");
                assert_eq!(channel.owed == 0, is_answer, "{kind:?}");
            }
        }
    }

    #[test]
    fn a_sample_is_asked_for_when_late_answers_have_come() {
        let (mut channel, end) = asked(Kind::Sample);
        let mut late = Sampled::new_zeroed();
        late.lost = 1;
        end.send(Kind::Sampled, &[late.as_bytes()], &[]).unwrap();
        let worker = std::thread::spawn(move || {
            let mut room = buffer();
            // The one before, and this one.
            for _ in 0..2 {
                assert_eq!(end.receive(&mut room).unwrap().kind, Kind::Sample);
            }
            let sampled = Sampled::new_zeroed();
            end.send(Kind::Sampled, &[sampled.as_bytes()], &[]).unwrap();
            // The answer to another question.
            assert_eq!(end.receive(&mut room).unwrap().kind, Kind::Sample);
            end.send(Kind::LimitsSet, &[], &[]).unwrap();
        });
        let sample = channel.sample().unwrap();
        assert!(!sample.lost, "that is the late one");
        assert!(channel.sample().is_err());
        worker.join().unwrap();
    }
}
