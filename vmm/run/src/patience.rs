//! The time limit of a run, and the signals that end it, while its VMs are created. The event loop
//! watches both afterwards.

use std::time::{Duration, Instant};

use causeway_vmm::signals::Signals;

use crate::configuration::Run;
use causeway_terminal::{Code, Failure, TimeLimit};

/// Why a run ends before its VMs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyEnd {
    /// The time limit is over.
    Timeout,
    /// The signal with this number has arrived.
    Signal(i32),
}

/// What can end a run while its VMs are created.
pub struct Patience<'a> {
    begun: Instant,
    limit: Option<Duration>,
    signals: &'a mut Signals,
    end: Option<EarlyEnd>,
}

impl<'a> Patience<'a> {
    /// Starts the time `limit`. `signals` receives the signals that end the run.
    pub fn new(limit: TimeLimit, signals: &'a mut Signals) -> Self {
        Self {
            begun: Instant::now(),
            limit: limit.duration(),
            signals,
            end: None,
        }
    }

    /// Returns what is left of the time limit; `None` if there is no limit.
    pub fn left(&self) -> Option<Duration> {
        self.limit
            .map(|limit| limit.saturating_sub(self.begun.elapsed()))
    }

    /// Returns whether the run must end now.
    pub fn ended(&mut self) -> bool {
        if self.end.is_none() {
            self.end = self.signals.take().map(EarlyEnd::Signal);
        }
        if self.end.is_none() && self.left() == Some(Duration::ZERO) {
            self.end = Some(EarlyEnd::Timeout);
        }
        self.end.is_some()
    }

    /// Returns why the run must end, if [`Self::ended`] has found so.
    pub const fn end(&self) -> Option<EarlyEnd> {
        self.end
    }
}

impl EarlyEnd {
    /// Returns the failure of `run`, which ended after `created` of its VMs were created.
    pub fn failure(self, run: &Run, created: u32) -> Failure {
        let settings = &run.settings;
        let so_far = format!("after {created} of {} VMs were created", settings.vms);
        match self {
            Self::Timeout => Failure::without_cause(
                Code::Timeout,
                format!(
                    "the run did not start within {} s, {so_far}: give it more time with \
                     --timeout, or choose fewer VMs or virtual CPUs",
                    settings.timeout_s
                ),
            ),
            Self::Signal(signal) => Failure::without_cause(
                Code::of_signal(signal),
                format!("signal {signal} ended the run, {so_far}"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_over_ends_the_run_and_none_never_does() {
        let mut signals = Signals::block().unwrap();
        let mut patience = Patience::new(TimeLimit::NONE, &mut signals);
        assert!(!patience.ended() && patience.left().is_none());
        let mut patience = Patience {
            limit: Some(Duration::ZERO),
            ..patience
        };
        assert_eq!(patience.end(), None);
        assert!(patience.ended() && patience.end() == Some(EarlyEnd::Timeout));
        assert_eq!(patience.left(), Some(Duration::ZERO));
        let patience = Patience::new(TimeLimit::seconds(1000), &mut signals);
        assert!(patience.left() > Some(Duration::from_secs(900)));
    }
}
