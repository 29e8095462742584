//! Runs of operations as machine code, as a program has them: `compile.rs` makes them.
#![allow(unsafe_code, reason = "calls the code")]

use std::sync::Arc;

use causeway_memory::CodeMapping;

/// Executes a run for all lanes. The parameters are the frame that is bound and the constants.
type Entry = unsafe extern "sysv64" fn(*mut u8, *mut u8);

/// The runs of a kernel.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The code of all kernels of the module.
    pub(crate) code: Arc<CodeMapping>,
    pub(crate) part: Part,
}

/// A run, for the operation at which it begins ([`Op::run`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Offset in the code.
    pub(crate) entry: usize,
    /// Operations.
    pub(crate) length: u32,
}

/// What is compiled of a kernel.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) runs: Vec<Run>,
    pub(crate) code_bytes: usize,
}

impl Part {
    pub(crate) fn bytes(&self) -> usize {
        self.code_bytes + size_of_val(&self.runs[..])
    }
}

impl Compiled {
    /// Executes the run with this number (`Op::run`, from 1) for all lanes. Returns the number of
    /// its operations; `None` if there is no such run.
    ///
    /// # Safety
    /// `frame` and `constants` are the banks of a warp that executes the program, with the frame of
    /// the run's function bound. Nobody else uses them meanwhile. The host has the features of
    /// [`crate::isa::Isa::Avx2`].
    #[inline(always)]
    pub(crate) unsafe fn execute(
        &self,
        number: u32,
        [frame, constants]: [*mut u8; 2],
    ) -> Option<u32> {
        let run = self.part.runs.get((number as usize).checked_sub(1)?)?;
        let at = self.code.as_ptr().as_ptr().wrapping_add(run.entry);
        // SAFETY: the code at this offset is a function of this type, and lives as long as this.
        let entry = unsafe { std::mem::transmute::<*mut u8, Entry>(at) };
        // SAFETY: the code accesses registers of the operations of the run only, which lie in the
        // banks by this function's contract.
        unsafe { entry(frame, constants) };
        Some(run.length)
    }

    /// Returns the memory that the code takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.part.bytes()
    }
}
