//! A worker as one whose work may take too long.

use std::time::Duration;

use causeway_mediator::Quota;
use causeway_mediator::backend::Fault;

use super::Worker;
use crate::parent::overdue::{Watched, Work};
use crate::wire::{BEGUN_WORD, BUSY_WORD, ENDED_WORD};

impl Watched for Worker {
    fn number(&self) -> u64 {
        self.number
    }

    fn work(&self) -> Option<Work> {
        self.fault.get().is_none().then(|| Work {
            bursts: self.status_word(BUSY_WORD),
            begun: self.status_word(BEGUN_WORD),
            ended: self.status_word(ENDED_WORD),
        })
    }

    fn limit(&self) -> Option<Duration> {
        let work_ms = self.limits.quota().work_ms;
        (work_ms != Quota::UNLIMITED).then(|| Duration::from_millis(work_ms))
    }

    fn lose(&self, fault: Fault) {
        Worker::lose(self, fault);
    }
}
