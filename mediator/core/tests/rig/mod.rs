//! A session on fakes, and short ways to ask it for things.
#![allow(dead_code, reason = "each test file uses a part of it")]

mod guest;
mod queue;

use std::sync::Arc;

use causeway_mediator::{Mediator, Quota};
use causeway_mediator_testing::{FakeBackend, FakeHost, Live};

pub use guest::*;
#[allow(unused_imports, reason = "as above")]
pub use queue::*;

pub struct Rig {
    pub backend: Arc<FakeBackend>,
    pub mediator: Arc<Mediator>,
    pub guest: Guest,
}

impl Rig {
    pub fn new() -> Self {
        Self::with_quota(Quota::default())
    }

    pub fn with_quota(quota: Quota) -> Self {
        Self::on(FakeBackend::new(), quota)
    }

    pub fn on(backend: Arc<FakeBackend>, quota: Quota) -> Self {
        let mediator = Mediator::new(Arc::clone(&backend) as _);
        let guest = Guest::open(&mediator, quota);
        Self {
            backend,
            mediator,
            guest,
        }
    }

    pub fn another(&self) -> Guest {
        Guest::open(&self.mediator, Quota::default())
    }
}

impl Guest {
    pub fn open(mediator: &Mediator, quota: Quota) -> Self {
        let host = FakeHost::new(RAM_BYTES, 64 << 20).unwrap();
        let session = mediator.open(Arc::clone(&host) as _, quota, "test");
        Self::new(host, session)
    }
}

pub const NOTHING: Live = Live {
    bytes: 0,
    memories: 0,
    spaces: 0,
    modules: 0,
    queues: 0,
    recordings: 0,
    arrays: 0,
    textures: 0,
};
