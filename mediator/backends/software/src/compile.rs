//! Machine code for parts of a kernel: runs of operations that compute on registers only.
//!
//! A run is executed if all lanes of a warp are at its beginning; the interpreter does everything
//! else. So no run can fault, and a guard only chooses between a lane's new value and its old one.

mod predicates;
mod run;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Once};

use causeway_memory::{CodeMapping, MemoryError};

use self::run::Writer;
use crate::compiled::{Compiled, Part, Run};
use crate::isa::Isa;
use crate::program::{Action, Op, Program};

/// Operations that are worth a call.
const OPERATIONS_MIN: usize = 2;

/// Returns whether hosts with these instructions execute what is compiled.
pub(crate) fn is_possible(isa: Isa) -> bool {
    isa == Isa::Avx2
}

/// What is compiled of the kernels of a module, in their order.
#[derive(Default)]
pub(crate) struct Compiler {
    writer: Writer,
    parts: Vec<Part>,
    /// Whether the encoder has refused something: no offset is right that comes after it.
    has_failed: bool,
}

impl Compiler {
    /// Compiles what can be compiled of the next kernel, and notes in its operations where runs
    /// begin. Returns the memory that this takes, in bytes.
    pub(crate) fn kernel(&mut self, program: &mut Program) -> u64 {
        let (before, mut runs) = (self.writer.bytes(), Vec::new());
        let mut at = 0;
        while at < program.code.len() && !self.has_failed {
            let length = length(&program.code[at..]);
            if length >= OPERATIONS_MIN {
                let ops = program.code[at..at + length].iter();
                let ops = ops.filter_map(|op| Some((op, op.meaning?)));
                match self.writer.run(ops) {
                    Ok(entry) => {
                        let length = length as u32;
                        runs.push(Run { entry, length });
                        program.code[at].run = runs.len() as u32;
                    }
                    Err(e) => {
                        log::debug!("kernel `{}` is not compiled: {e}", program.name);
                        self.has_failed = true;
                    }
                }
            }
            at += length.max(1);
        }
        let code_bytes = self.writer.bytes() - before;
        let part = Part { runs, code_bytes };
        let bytes = part.bytes();
        self.parts.push(part);
        bytes as u64
    }

    /// Returns whether there is code to be mapped.
    pub(crate) fn has_code(&self) -> bool {
        !self.has_failed && self.parts.iter().any(|part| !part.runs.is_empty())
    }

    /// Maps the code, and gives each kernel its part. They are interpreted if that fails.
    pub(crate) fn finish(self, programs: &mut [Program]) {
        if !self.has_code() {
            return;
        }
        let code = match CodeMapping::new(&self.writer.finish()) {
            Ok(code) => Arc::new(code),
            Err(e) => return warn(&e),
        };
        for (program, part) in programs.iter_mut().zip(self.parts) {
            let code = Arc::clone(&code);
            program.compiled = Some(Compiled { code, part });
        }
    }
}

/// Says that kernels are interpreted, the first time to everybody: a guest may load many modules.
fn warn(error: &MemoryError) {
    static FIRST: Once = Once::new();
    let text = format!("kernels are interpreted, because their code cannot be mapped: {error}");
    log::debug!("{text}");
    FIRST.call_once(|| log::warn!("{text}"));
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
