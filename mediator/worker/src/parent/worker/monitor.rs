//! What a worker is asked and told over the channel of monitors, for which no call of the guest
//! waits.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_mediator::Activity;
use rustix::io::Errno;

use super::Worker;
use crate::parent::channel::{LOOK_PERIOD, MonitorChannel};
use crate::parent::leases::Membership;
use crate::socket::{Socket, SocketError};
use crate::wire::Kind;

impl Worker {
    /// Returns the session's current statistics and whether it is lost; `None` if the worker does
    /// not answer within [`LOOK_PERIOD`]. A worker that does not answer is not
    /// killed for that.
    pub fn sample(&self) -> Option<Activity> {
        // Another monitor may be waiting.
        self.monitor(Duration::ZERO, MonitorChannel::sample)
    }

    /// Tells the worker the present limits of its session. Returns false if it does not confirm
    /// them within [`LOOK_PERIOD`]: then it reads them when it goes on, or is told
    /// again by the next [`Self::sample`]. Its answer counts for nothing but that.
    pub fn tell_limits(&self) -> bool {
        self.is_untold.store(true, Ordering::SeqCst);
        self.monitor(2 * LOOK_PERIOD, |_| Ok(())).is_some()
    }

    /// Tells the worker of the lender, if its session has a weight or a cap. Returns false if it
    /// cannot be told; then weight and cap have no effect.
    pub fn lend(&self, membership: &Membership) -> bool {
        // One at a time, or one would take the place of another.
        let _lending = self.lending.lock();
        if !membership.is_needed() || membership.is_attached(self.number) {
            return true;
        }
        let lend = || -> Result<(), SocketError> {
            let (socket, end) = Socket::pair()?;
            self.control.send(Kind::NewLease, &[], &[end.as_fd()])?;
            let attached = membership.attach(self.number, socket);
            attached.map_err(|_| SocketError::Failed(Errno::AGAIN))
        };
        let lent = lend();
        if let Err(error) = &lent {
            log::warn!("{}: weight= and share= have no effect: {error}", self.name);
        }
        lent.is_ok()
    }

    /// Asks the worker something over the channel of monitors, for which it waits up to `patience`.
    /// First tells the worker the limits of its session, if it has not been told yet.
    fn monitor<R>(
        &self,
        patience: Duration,
        ask: impl FnOnce(&mut MonitorChannel) -> Result<R, SocketError>,
    ) -> Option<R> {
        let mut monitor = self.monitor.try_lock_for(patience)?;
        let mut channel = match monitor.take() {
            Some(channel) => channel,
            None => MonitorChannel::new(self.new_channel().ok()?),
        };
        let told = self.tell_over(&mut channel);
        let answer = told.and_then(|()| ask(&mut channel));
        // After any other error the channel is dropped. The guest finds out by itself if the worker
        // is lost.
        if matches!(answer, Ok(_) | Err(SocketError::Timeout)) {
            *monitor = Some(channel);
        }
        answer.ok()
    }

    fn tell_over(&self, channel: &mut MonitorChannel) -> Result<(), SocketError> {
        // The mark is cleared before the limits are read. A later change sets the mark again.
        if !self.is_untold.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        channel.send_limits(&self.limits.quota()).inspect_err(|_| {
            self.is_untold.store(true, Ordering::SeqCst);
        })?;
        channel.settle()
    }
}
