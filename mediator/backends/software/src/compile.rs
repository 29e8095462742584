//! Machine code for parts of a kernel: runs of operations that compute on registers only.
//!
//! A run is executed if all lanes of a warp are at its beginning; the interpreter does everything
//! else. So no run can fault, and a guard only chooses between a lane's new value and its old one.

mod predicates;
mod run;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_mediator::backend::cause;
use causeway_memory::{CodeFile, MemoryError};
use iced_x86::IcedError;

use self::run::Writer;
use crate::compiled::{Compiled, Part, Run};
use crate::isa::Isa;
use crate::program::{Action, Op, Program};

/// Fewest operations that are worth a call.
const OPERATIONS_MIN: usize = 2;

/// Returns whether hosts with these instructions execute what is compiled.
pub(crate) fn is_possible(isa: Isa) -> bool {
    isa == Isa::Avx2
}

/// What is compiled of the kernels of a module, in their order.
pub(crate) struct Compiler<'a> {
    writer: Writer,
    /// The code until now; `None` if there will be none.
    file: Option<CodeFile>,
    parts: Vec<Part>,
    stop: &'a AtomicBool,
}

/// Why the kernels of a module are not compiled.
#[derive(Debug, thiserror::Error)]
enum CompileError {
    #[error("the load of the module ends early")]
    Stopped,
    #[error("an instruction cannot be encoded")]
    Encode(#[from] IcedError),
    #[error("there is no room for its machine code")]
    Memory(#[from] MemoryError),
}

impl<'a> Compiler<'a> {
    /// Begins with the kernels of a module. Compiles nothing more once `stop` is set.
    pub(crate) fn new(stop: &'a AtomicBool) -> Self {
        let file = CodeFile::new().map_err(CompileError::from);
        Self {
            writer: Writer::default(),
            file: file.inspect_err(tell).ok(),
            parts: Vec::new(),
            stop,
        }
    }

    /// Compiles what can be compiled of the next kernel, and notes in its operations where runs
    /// begin. Returns the memory that this takes, in bytes.
    pub(crate) fn kernel(&mut self, program: &mut Program) -> u64 {
        match self.part(program) {
            Ok(part) => {
                let bytes = part.bytes();
                self.parts.push(part);
                bytes as u64
            }
            Err(e) => {
                tell(&e);
                self.file = None;
                0
            }
        }
    }

    fn part(&mut self, program: &mut Program) -> Result<Part, CompileError> {
        let (before, mut runs) = (self.writer.bytes(), Vec::new());
        let Some(file) = &mut self.file else {
            let code_bytes = 0;
            return Ok(Part { runs, code_bytes });
        };
        let mut at = 0;
        while at < program.code.len() {
            let length = length(&program.code[at..]);
            if length >= OPERATIONS_MIN {
                let ops = program.code[at..at + length].iter();
                let ops = ops.filter_map(|op| Some((op, op.meaning?)));
                let entry = self.writer.run(ops.take_while(|_| !is_set(self.stop)))?;
                if is_set(self.stop) {
                    return Err(CompileError::Stopped);
                }
                file.append(&self.writer.take())?;
                let length = length as u32;
                runs.push(Run { entry, length });
                program.code[at].run = runs.len() as u32;
            }
            at += length.max(1);
        }
        let code_bytes = self.writer.bytes() - before;
        Ok(Part { runs, code_bytes })
    }

    /// Returns whether there is code to be mapped.
    pub(crate) fn has_code(&self) -> bool {
        self.file.is_some() && self.parts.iter().any(|part| !part.runs.is_empty())
    }

    /// Maps the code, and gives each kernel its part. They are interpreted if that fails; returns
    /// false if that is because this process may have no code.
    pub(crate) fn finish(self, programs: &mut [Program]) -> bool {
        let Some(file) = self.file else {
            return true;
        };
        let code = match file.map() {
            Ok(code) => Arc::new(code),
            Err(e) => {
                let is_allowed = !is_refusal(&e);
                tell(&e.into());
                return is_allowed;
            }
        };
        for (program, part) in programs.iter_mut().zip(self.parts) {
            let code = Arc::clone(&code);
            program.compiled = Some(Compiled { code, part });
        }
        true
    }
}

fn is_set(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

/// Returns whether the kernel has memory for code, but allows none.
fn is_refusal(error: &MemoryError) -> bool {
    let refused = io::ErrorKind::PermissionDenied;
    matches!(error, MemoryError::Map { source, .. } if source.kind() == refused)
}

/// Says that kernels are interpreted, the first time to everybody: a guest may load many modules.
fn tell(error: &CompileError) {
    static IS_KNOWN: AtomicBool = AtomicBool::new(false);
    if matches!(error, CompileError::Stopped) {
        return;
    }
    let level = match IS_KNOWN.swap(true, Ordering::Relaxed) {
        true => log::Level::Debug,
        false => log::Level::Warn,
    };
    let cause = cause(error);
    log::log!(level, "kernels of a module are interpreted: {error}{cause}");
}

/// Returns how many operations from the first on are one run.
fn length(code: &[Op]) -> usize {
    let is_part = |(index, op): &(usize, &Op)| {
        op.meaning
            .is_some_and(|meaning| op.guard.is_none() || meaning.can_be_guarded())
            && matches!(op.action, Action::Lanes(_))
            && (*index == 0 || !op.leader)
    };
    code.iter().enumerate().take_while(is_part).count()
}
