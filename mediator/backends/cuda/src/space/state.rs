//! The part of an address space that its queues, modules and recordings share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use causeway_mediator::backend::BackendError;

use super::deferred::DeferredDrops;
use super::table::Table;
use crate::driver::StreamMaker;
use crate::error::failed;
use crate::gpu::Gpu;
use crate::words::Words;

/// What queues, modules and recordings share with their address space.
pub(crate) struct SpaceState {
    pub(crate) gpu: Arc<Gpu>,
    /// Set when the session ends.
    pub(crate) stop: Arc<AtomicBool>,
    /// What streams are made in.
    pub(crate) maker: StreamMaker,
    pub(crate) table: Table,
    pub(crate) deferred: DeferredDrops,
    /// Small kernels of the back end's own.
    words: OnceLock<Words>,
}

impl SpaceState {
    /// Returns the state of an empty address space.
    pub(crate) fn new(gpu: &Arc<Gpu>, stop: Arc<AtomicBool>) -> Result<Self, BackendError> {
        let maker = gpu
            .maker()
            .map_err(|e| failed("create a context for an address space", e))?;
        Ok(Self {
            gpu: Arc::clone(gpu),
            stop,
            maker,
            table: Table::default(),
            deferred: DeferredDrops::default(),
            words: OnceLock::new(),
        })
    }

    /// Returns the back end's own kernels, loaded at their first use.
    pub(crate) fn words(&self) -> Result<&Words, BackendError> {
        if let Some(words) = self.words.get() {
            return Ok(words);
        }
        let words = Words::load(&self.maker.context)?;
        Ok(self.words.get_or_init(|| words))
    }

    /// Says that work is under way that does not end.
    pub(crate) fn abandon(&self) {
        self.maker.context.abandon();
        // Its drops would wait for the same GPU.
        self.gpu.home.abandon();
    }

    /// Refuses to go on once an error has poisoned the process.
    ///
    /// # Errors
    /// `DeviceLost`, with that error.
    pub(crate) fn check_poison(&self) -> Result<(), BackendError> {
        match self.maker.context.driver().poison() {
            None => Ok(()),
            Some(error) => Err(failed("the process must be restarted", error.clone())),
        }
    }
}

impl Drop for SpaceState {
    fn drop(&mut self) {
        // Queues hold this, so all have finished or been abandoned.
        if self.maker.context.is_poisoned() {
            self.table.leak();
            self.deferred.leak();
        }
        self.gpu.rams.forget_ended();
    }
}
