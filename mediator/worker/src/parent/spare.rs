//! Worker processes that are started ahead of their sessions.
//!
//! A GPU's driver takes a tenth of a second and more to start. A spare worker has done that before
//! anybody wants a session. It serves one session and no second one, as every worker does.

use std::io;

use causeway_mediator::{GivesUp, OpenError};

use super::channel::LOOK_PERIOD;
use super::partitions::Partition;
use super::process::Process;
use super::shared::Shared;
use super::start::{await_prepared, not_started, send_prepare};
use crate::socket::Socket;

/// What error texts call a worker that has no session yet.
const NAME: &str = "the next session";

/// A worker process that waits for its session, and the partition that it holds for it.
pub(super) struct Spare {
    pub fresh: Fresh,
    // Dropped when the process has ended.
    pub partition: Partition,
}

/// A worker process that has no session yet, and its control socket. A drop kills it.
pub(super) struct Fresh {
    /// Number of the session that it is for.
    pub session: u64,
    pub control: Socket,
    pub process: Process,
    /// Whether it creates its back end before it knows its session.
    pub is_ahead: bool,
}

impl Fresh {
    /// Starts a process for session number `session`, which holds partition number `partition`.
    pub fn start(shared: &Shared, session: u64, partition: u32) -> io::Result<Self> {
        let (control, control_end) = Socket::pair()?;
        control.set_patience(LOOK_PERIOD)?;
        let socket = control_end.into_descriptor();
        let numbers = (session, partition);
        let process = Process::start(&shared.starter, numbers, socket)?;
        Ok(Self {
            session,
            control,
            process,
            is_ahead: false,
        })
    }

    /// Does what [`Self::start`] does; the process creates its back end at once.
    pub fn start_ahead(shared: &Shared, session: u64, partition: u32) -> io::Result<Self> {
        let mut fresh = Self::start(shared, session, partition)?;
        // A process that has ended already is noticed when its session comes.
        fresh.is_ahead = send_prepare(&fresh.control).is_ok();
        Ok(fresh)
    }

    /// Waits until the process has its back end.
    pub fn await_back_end(&mut self, gives_up: GivesUp<'_>) -> Result<(), OpenError> {
        if self.is_ahead {
            let prepared = await_prepared(&self.control, gives_up);
            prepared.map_err(|e| not_started(e, &self.process, NAME))?;
            self.is_ahead = false;
        }
        Ok(())
    }
}
