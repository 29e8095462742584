//! Machine code for a run: operations without control flow that compute on registers only.
//!
//! The code does eight lanes at a time, four times: a register of the host holds eight words, or
//! half of eight doubles. Each value is loaded when it is first needed and stored when its register
//! is wanted for another, or at the end; what is overwritten before that is never stored.

use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};

use super::predicates::SHIFTS;
use crate::meaning::{Meaning, Width};
use crate::program::Op;
use crate::registers::{Slot, WORD_BYTES};

/// Registers for values; the two others are for intermediate results.
const VALUES: usize = 14;
pub(super) const SCRATCH: [Register; 2] = [Register::YMM14, Register::YMM15];
/// Where the code finds the frame and the constants: the first two parameters of a function.
pub(super) const BANKS: [Register; 2] = [Register::RDI, Register::RSI];
/// Bytes of the words that are done, of all words of a register.
const DONE: Register = Register::RCX;
/// Bytes of the lanes that are done, of all lanes of a predicate.
pub(super) const DONE_OF_PREDICATE: Register = Register::RDX;
const WORDS_BYTES: i32 = WORD_BYTES.cast_signed();
/// Bytes of a register of the host.
const YMM_BYTES: i32 = 32;

/// Part of a register of the kernel: all of eight words, or half of eight doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) slot: Slot,
    pub(super) width: Width,
    pub(super) half: i32,
}

impl Part {
    /// Where the part is, for the lanes that are next.
    fn place(self) -> MemoryOperand {
        let scale = match self.width {
            Width::Word => 1,
            Width::Double => 2,
        };
        let offset = i64::from(self.slot.offset() as u32) + i64::from(self.half * YMM_BYTES);
        MemoryOperand::with_base_index_scale_displ_size(
            BANKS[self.slot.bank()],
            DONE,
            scale,
            offset,
            1,
        )
    }
}

#[derive(Clone, Copy, Debug)]
struct Held {
    part: Part,
    /// Whether memory does not have the value yet.
    is_newer: bool,
    /// Number of the operation that used it last.
    used: usize,
}

/// Writes the code of the runs of a module.
pub(super) struct Writer {
    encoder: Encoder,
    at: u64,
    held: [Option<Held>; VALUES],
    /// Number of the operation that is compiled.
    number: usize,
}

impl Default for Writer {
    fn default() -> Self {
        let mut encoder = Encoder::new(64);
        let table = SHIFTS.map(u32::to_le_bytes);
        encoder.set_buffer(table.as_flattened().to_vec());
        Self {
            encoder,
            at: size_of_val(&SHIFTS) as u64,
            held: [None; VALUES],
            number: 0,
        }
    }
}

impl Writer {
    /// Adds the code of a run, as a function with two parameters, frame and constants. Returns its
    /// offset in the code, which begins with a table.
    ///
    /// # Errors
    /// Those of the encoder: an offset of a register is too large. Then the code is of no use.
    pub(super) fn run<'a>(
        &mut self,
        ops: impl IntoIterator<Item = (&'a Op, Meaning)>,
    ) -> Result<usize, IcedError> {
        let entry = self.at;
        for counter in [Register::ECX, Register::EDX] {
            self.with2(Code::Xor_rm32_r32, counter, counter)?;
        }
        let top = self.at;
        for (op, meaning) in ops {
            self.number += 1;
            self.operation(op, meaning)?;
        }
        for register in 0..VALUES {
            self.put_back(register)?;
        }
        self.add(Instruction::with2(Code::Add_rm64_imm8, DONE, YMM_BYTES)?)?;
        self.add(Instruction::with1(Code::Inc_rm64, DONE_OF_PREDICATE)?)?;
        self.add(Instruction::with2(Code::Cmp_rm64_imm32, DONE, WORDS_BYTES)?)?;
        self.add(Instruction::with_branch(Code::Jne_rel32_64, top)?)?;
        self.add(Instruction::with(Code::VEX_Vzeroupper))?;
        self.add(Instruction::with(Code::Retnq))?;
        Ok(entry as usize)
    }

    /// Returns the size of the code of all runs, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.at as usize
    }

    /// Returns the code since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.encoder.take_buffer()
    }

    fn operation(&mut self, op: &Op, meaning: Meaning) -> Result<(), IcedError> {
        use Width::Word;
        let [a, b, c] = [op.a, op.b, op.c];
        match meaning {
            Meaning::Copy(width) => self.lanes(op, width, [a], |writer, to, [a]| {
                writer.with2(Code::VEX_Vmovdqa_ymm_ymmm256, to, a)
            }),
            Meaning::Unary(code) => {
                self.lanes(op, Word, [a], |writer, to, [a]| writer.with2(code, to, a))
            }
            Meaning::Not(width) => self.lanes(op, width, [a], |writer, to, [a]| {
                let [ones, _] = SCRATCH;
                writer.with3(Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256, ones, ones, ones)?;
                writer.with3(Code::VEX_Vpxor_ymm_ymm_ymmm256, to, a, ones)
            }),
            Meaning::Binary(width, code) => self.lanes(op, width, [a, b], |writer, to, [a, b]| {
                writer.with3(code, to, a, b)
            }),
            Meaning::Fused(width, code) => {
                self.lanes(op, width, [a, b, c], |writer, to, [a, b, c]| {
                    writer.with2(Code::VEX_Vmovdqa_ymm_ymmm256, to, a)?;
                    writer.with3(code, to, b, c)
                })
            }
            Meaning::MultiplyAdd => self.lanes(op, Word, [a, b, c], |writer, to, [a, b, c]| {
                writer.with3(Code::VEX_Vpmulld_ymm_ymm_ymmm256, to, a, b)?;
                writer.with3(Code::VEX_Vpaddd_ymm_ymm_ymmm256, to, to, c)
            }),
            Meaning::Extend { is_signed } => self.extend(op, is_signed),
            Meaning::Shift(code) => self.shift(op, code),
            Meaning::Wide { is_signed, adds } => self.wide(op, is_signed, adds),
            Meaning::Compare(test) => self.compare(op, test),
            Meaning::Select(width) => self.select(op, width),
            Meaning::Predicate { combine, not } => self.predicate(op, combine, not),
        }
    }

    /// Makes the result of `sources`, which have its width: a half after the other, if it has two.
    /// `emit` adds the instructions for one, with the register for the result and those of the
    /// sources.
    fn lanes<const N: usize>(
        &mut self,
        op: &Op,
        width: Width,
        sources: [Slot; N],
        emit: impl Fn(&mut Self, Register, [Register; N]) -> Result<(), IcedError>,
    ) -> Result<(), IcedError> {
        for half in halves(width) {
            let part = |slot| Part { slot, width, half };
            let mut values = [Register::None; N];
            for (index, source) in sources.into_iter().enumerate() {
                values[index] = self.value(part(source), &values[..index])?;
            }
            let to = self.room(&values)?;
            emit(self, to, values)?;
            self.give(op, part(op.dst), to)?;
        }
        Ok(())
    }

    fn extend(&mut self, op: &Op, is_signed: bool) -> Result<(), IcedError> {
        for half in halves(Width::Double) {
            let a = self.value(word(op.a), &[])?;
            let to = self.room(&[a])?;
            self.extend_half(to, a, half, is_signed)?;
            self.give(op, double(op.dst, half), to)?;
        }
        Ok(())
    }

    /// An instruction for 64 bits with amounts of 32 bits. It has no guard: it uses both registers
    /// for intermediate results.
    fn shift(&mut self, op: &Op, code: Code) -> Result<(), IcedError> {
        let amounts = self.value(word(op.b), &[])?;
        for half in halves(Width::Double) {
            self.extend_half(SCRATCH[half as usize], amounts, half, false)?;
        }
        for half in halves(Width::Double) {
            let a = self.value(double(op.a, half), &[])?;
            let to = self.room(&[a])?;
            self.with3(code, to, a, SCRATCH[half as usize])?;
            self.give(op, double(op.dst, half), to)?;
        }
        Ok(())
    }

    fn wide(&mut self, op: &Op, is_signed: bool, adds: bool) -> Result<(), IcedError> {
        let code = match is_signed {
            true => Code::VEX_Vpmuldq_ymm_ymm_ymmm256,
            false => Code::VEX_Vpmuludq_ymm_ymm_ymmm256,
        };
        for half in halves(Width::Double) {
            let a = self.value(word(op.a), &[])?;
            let b = self.value(word(op.b), &[a])?;
            let [left, right] = SCRATCH;
            self.extend_half(left, a, half, is_signed)?;
            self.extend_half(right, b, half, is_signed)?;
            let sum = match adds {
                true => Some(self.value(double(op.c, half), &[a, b])?),
                false => None,
            };
            let pinned = [Some(a), Some(b), sum];
            let pinned: Vec<_> = pinned.into_iter().flatten().collect();
            let to = self.room(&pinned)?;
            self.with3(code, to, left, right)?;
            if let Some(sum) = sum {
                self.with3(Code::VEX_Vpaddq_ymm_ymm_ymmm256, to, to, sum)?;
            }
            self.give(op, double(op.dst, half), to)?;
        }
        Ok(())
    }

    /// Extends half of the words of `from` to 64 bits.
    pub(super) fn extend_half(
        &mut self,
        to: Register,
        from: Register,
        half: i32,
        is_signed: bool,
    ) -> Result<(), IcedError> {
        let code = match is_signed {
            true => Code::VEX_Vpmovsxdq_ymm_xmmm128,
            false => Code::VEX_Vpmovzxdq_ymm_xmmm128,
        };
        if half == 0 {
            return self.with2(code, to, low(from));
        }
        let upper = Instruction::with3(Code::VEX_Vextracti128_xmmm128_ymm_imm8, low(to), from, 1)?;
        self.add(upper)?;
        self.with2(code, to, low(to))
    }

    /// Returns the register that holds `part`, which is loaded first if none does. Those in
    /// `pinned` stay as they are.
    pub(super) fn value(&mut self, part: Part, pinned: &[Register]) -> Result<Register, IcedError> {
        let number = self.number;
        let held = self.held.iter_mut().enumerate();
        for (index, held) in held.filter_map(|(index, held)| Some((index, held.as_mut()?))) {
            if held.part == part {
                held.used = number;
                return Ok(register(index));
            }
        }
        let to = self.room(pinned)?;
        self.add(Instruction::with2(
            Code::VEX_Vmovdqu_ymm_ymmm256,
            to,
            part.place(),
        )?)?;
        self.held[index(to)] = Some(Held {
            part,
            is_newer: false,
            used: number,
        });
        Ok(to)
    }

    /// Returns a register that holds nothing, other than those in `pinned`.
    pub(super) fn room(&mut self, pinned: &[Register]) -> Result<Register, IcedError> {
        let candidates = (0..VALUES).filter(|index| !pinned.contains(&register(*index)));
        let oldest = candidates.min_by_key(|index| self.held[*index].map(|held| held.used));
        let oldest = oldest.unwrap_or(0);
        self.put_back(oldest)?;
        Ok(register(oldest))
    }

    /// Empties a register; memory has its value then.
    fn put_back(&mut self, index: usize) -> Result<(), IcedError> {
        match self.held[index].take() {
            Some(held) if held.is_newer => self.add(Instruction::with2(
                Code::VEX_Vmovdqu_ymmm256_ymm,
                held.part.place(),
                register(index),
            )?),
            _ => Ok(()),
        }
    }

    /// Notes that a register has the new value of `part`.
    pub(super) fn set(&mut self, part: Part, to: Register) {
        for held in &mut self.held {
            if held.is_some_and(|held| held.part == part) {
                *held = None;
            }
        }
        self.held[index(to)] = Some(Held {
            part,
            is_newer: true,
            used: self.number,
        });
    }

    pub(super) fn with2(&mut self, code: Code, a: Register, b: Register) -> Result<(), IcedError> {
        self.add(Instruction::with2(code, a, b)?)
    }

    pub(super) fn with3(
        &mut self,
        code: Code,
        a: Register,
        b: Register,
        c: Register,
    ) -> Result<(), IcedError> {
        self.add(Instruction::with3(code, a, b, c)?)
    }

    pub(super) fn add(&mut self, instruction: Instruction) -> Result<(), IcedError> {
        self.at += self.encoder.encode(&instruction, self.at)? as u64;
        Ok(())
    }
}

pub(super) fn halves(width: Width) -> std::ops::Range<i32> {
    match width {
        Width::Word => 0..1,
        Width::Double => 0..2,
    }
}

fn word(slot: Slot) -> Part {
    Part {
        slot,
        width: Width::Word,
        half: 0,
    }
}

fn double(slot: Slot, half: i32) -> Part {
    Part {
        slot,
        width: Width::Double,
        half,
    }
}

fn register(index: usize) -> Register {
    Register::YMM0 + index as u32
}

fn index(register: Register) -> usize {
    register as usize - Register::YMM0 as usize
}

/// Returns the lower half of a register of the host.
fn low(register: Register) -> Register {
    Register::XMM0 + index(register) as u32
}
