//! The part of an address space that its queues, modules and recordings share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use causeway_mediator::backend::BackendError;

use causeway_memory::PAGE_BYTES;
use parking_lot::Mutex;

use super::deferred::DeferredDrops;
use super::table::Table;
use crate::driver::{CudaError, Stream, StreamMaker};
use crate::error::failed;
use crate::gpu::Gpu;
use crate::host_memory::HostMemory;
use crate::host_registration::HostView;
use crate::words::Words;

/// State of an address space that its queues, modules and recordings share.
pub(crate) struct SpaceState {
    pub(crate) gpu: Arc<Gpu>,
    /// Set when the session ends.
    pub(crate) stop: Arc<AtomicBool>,
    /// Makes the streams of this address space.
    pub(crate) maker: StreamMaker,
    pub(crate) table: Table,
    pub(crate) deferred: DeferredDrops,
    /// The back end's own small kernels, loaded with the first queue.
    words: OnceLock<Words>,
    /// A stream without work, whose synchronization has the driver print what kernels have
    /// printed. Made with the first module that prints.
    printer: OnceLock<Stream>,
    /// Made with the first word that the GPU copies.
    reader: OnceLock<Reader>,
}

/// Has the GPU copy single words to where the CPU reaches them.
struct Reader {
    stream: Stream,
    word: HostView,
    turn: Mutex<()>,
    _memory: HostMemory,
}

impl Reader {
    fn new(state: &SpaceState) -> Result<Self, BackendError> {
        let memory = HostMemory::allocate(&state.gpu, PAGE_BYTES)?;
        let stream = state.maker.stream();
        Ok(Self {
            stream: stream.map_err(|e| failed("make a stream for single words", e))?,
            word: memory.main(&state.gpu)?,
            turn: Mutex::default(),
            _memory: memory,
        })
    }
}

impl SpaceState {
    /// Returns the state of an empty address space on `gpu`. `stop` is set when the session ends.
    pub(crate) fn new(gpu: &Arc<Gpu>, stop: Arc<AtomicBool>) -> Result<Self, BackendError> {
        let maker = gpu
            .maker()
            .map_err(|e| failed("create a context for an address space", e))?;
        if let Some(output) = &gpu.output {
            output.begin_space(&stop);
        }
        Ok(Self {
            gpu: Arc::clone(gpu),
            stop,
            maker,
            table: Table::default(),
            deferred: DeferredDrops::default(),
            words: OnceLock::new(),
            printer: OnceLock::new(),
            reader: OnceLock::new(),
        })
    }

    /// Returns the back end's own small kernels, which the first call loads. A driver may wait for
    /// all kernels before it loads one, so this is called before there are any.
    pub(crate) fn words(&self) -> Result<&Words, BackendError> {
        if let Some(words) = self.words.get() {
            return Ok(words);
        }
        let words = Words::load(&self.maker.context)?;
        Ok(self.words.get_or_init(|| words))
    }

    /// Has the GPU copy the 64-bit word at an address, which the caller knows to be mapped; `None`
    /// if the address is not a multiple of 8, or if the driver fails.
    pub(crate) fn copy_word(&self, va: u64) -> Option<u64> {
        if !va.is_multiple_of(8) {
            return None;
        }
        let reader = self.reader()?;
        let copied = {
            // One word at a time.
            let _turn = reader.turn.lock();
            let to = reader.word.registration.address() + reader.word.offset;
            let copied = reader.stream.copy(to, va, 8);
            copied.and_then(|()| reader.stream.synchronize()).map(|()| {
                let view = &reader.word;
                view.registration
                    .mapping()
                    .load_u64(view.offset, Ordering::Acquire)
                    .ok()
            })
        };
        copied
            .inspect_err(|e| log::debug!("cannot copy the word at {va:#x}: {e}"))
            .ok()
            .flatten()
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

    /// Notes that work is under way that does not end, so that nothing waits for it.
    pub(crate) fn abandon(&self) {
        self.maker.context.abandon();
        // Drops in the primary context would wait for the same GPU.
        self.gpu.home.abandon();
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
        self.end_output();
        if self.maker.context.is_poisoned() {
            self.table.leak();
            self.deferred.leak();
        }
        self.gpu.rams.forget_ended();
    }
}
