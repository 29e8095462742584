//! The part of an address space that its queues, modules and recordings share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causeway_mediator::backend::BackendError;

use super::deferred::DeferredDrops;
use super::reader::Reader;
use super::table::Table;
use crate::driver::{CudaError, Stream, StreamMaker};
use crate::error::failed;
use crate::gpu::Gpu;
use crate::idle::Idle;
use crate::words::Words;

/// How long work may go on after the session has ended, before the back end abandons it as work
/// that never ends.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_millis(150);

/// State of an address space that its queues, modules and recordings share.
pub(crate) struct SpaceState {
    pub(crate) gpu: Arc<Gpu>,
    /// Set when the session ends.
    pub(crate) stop: Arc<AtomicBool>,
    /// Makes the streams of this address space.
    pub(crate) maker: StreamMaker,
    pub(crate) table: Table,
    pub(crate) deferred: DeferredDrops,
    /// The queues of the context, and what is dropped when they have no work.
    pub(crate) idle: Arc<Idle>,
    /// The back end's own small kernels, loaded in the context of `maker`.
    pub(crate) words: Arc<Words>,
    /// A stream without work, whose synchronization has the driver print what kernels have
    /// printed. Made with the first module that prints.
    printer: OnceLock<Stream>,
    /// Made with the first word that the GPU copies.
    reader: OnceLock<Reader>,
}

impl SpaceState {
    /// Returns the state of an empty address space on `gpu`. `stop` is set when the session ends.
    pub(crate) fn new(gpu: &Arc<Gpu>, stop: Arc<AtomicBool>) -> Result<Self, BackendError> {
        let maker = gpu
            .maker()
            .map_err(|e| failed("create a context for an address space", e))?;
        let words = gpu
            .words(&maker.context)
            .map_err(|e| failed("load the back end's own kernels", e))?;
        if let Some(output) = &gpu.output {
            output.begin_space(&stop);
        }
        Ok(Self {
            gpu: Arc::clone(gpu),
            idle: gpu.idle(&maker.context),
            stop,
            maker,
            table: Table::default(),
            deferred: DeferredDrops::default(),
            words,
            printer: OnceLock::new(),
            reader: OnceLock::new(),
        })
    }

    /// Has the GPU copy the 64-bit word at a mapped address; `None` if the address is not mapped or
    /// not a multiple of 8, if the driver fails, or if `gives_up` returns true meanwhile.
    pub(crate) fn copy_word(&self, va: u64, gives_up: &dyn Fn() -> bool) -> Option<u64> {
        if !va.is_multiple_of(8) {
            return None;
        }
        let is_mapped = || self.table.find_readable(va, 8).is_some();
        let read = self.reader()?.read(va, is_mapped, gives_up);
        self.deferred.collect();
        read.inspect_err(|e| log::debug!("cannot copy the word at {va:#x}: {e}"))
            .ok()
            .flatten()
    }

    /// Drops what was kept for work that has ended.
    pub(crate) fn collect(&self) {
        if let Some(reader) = self.reader.get() {
            reader.collect();
        }
        self.deferred.collect();
        self.idle.collect();
    }

    fn reader(&self) -> Option<&Reader> {
        if let Some(reader) = self.reader.get() {
            return Some(reader);
        }
        let made = Reader::new(self)
            .inspect_err(|e| log::warn!("cannot read fences in device memory: {e}"));
        let reader = made.ok()?;
        Some(self.reader.get_or_init(|| reader))
    }

    /// Prepares for kernels that print. Returns whether their text can be kept.
    ///
    /// # Errors
    /// The driver's error if it cannot create a stream.
    pub(crate) fn expect_output(&self) -> Result<bool, CudaError> {
        if self.gpu.output.is_none() {
            return Ok(false);
        }
        if self.printer.get().is_none() {
            self.maker.context.make_room_for_text();
            let _ = self.printer.set(self.maker.stream()?);
        }
        Ok(true)
    }

    /// Takes the oldest `bytes` bytes of what kernels of this process have printed; nothing if no
    /// module of this address space prints.
    pub(crate) fn take_output(&self, bytes: usize) -> Vec<u8> {
        let (Some(output), Some(printer)) = (&self.gpu.output, self.printer.get()) else {
            return Vec::new();
        };
        if let Err(e) = printer.print() {
            log::debug!("the CUDA driver did not print what kernels have printed: {e}");
        }
        output.take(bytes)
    }

    /// Has the driver print what kernels have printed, and says that this address space prints no
    /// more.
    fn end_output(&self) {
        let Some(output) = &self.gpu.output else {
            return;
        };
        if let Some(printer) = self.printer.get()
            && !self.maker.context.is_poisoned()
            && let Err(e) = printer.print()
        {
            log::debug!("the CUDA driver did not print what kernels have printed: {e}");
        }
        output.end_space(&self.stop);
    }

    /// Checks that no error of the driver has poisoned the process.
    ///
    /// # Errors
    /// `DeviceLost`, with the error that has poisoned the process as its cause.
    pub(crate) fn check_poison(&self) -> Result<(), BackendError> {
        match self.maker.context.driver().poison() {
            None => Ok(()),
            Some(error) => Err(failed(
                "a fault has made CUDA unusable in this process; only a new process can use it",
                error.clone(),
            )),
        }
    }
}

impl Drop for SpaceState {
    fn drop(&mut self) {
        // Queues hold this, so all have finished or been abandoned.
        if let Some(reader) = self.reader.get()
            && !self.maker.context.is_poisoned()
            && !reader.finish(STOP_PATIENCE)
        {
            self.abandon();
        }
        self.end_output();
        if self.maker.context.is_poisoned() {
            self.table.leak();
            self.deferred.leak();
        }
        self.gpu.rams.forget_ended();
    }
}
