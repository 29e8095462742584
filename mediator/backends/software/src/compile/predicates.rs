//! Machine code for comparisons, selections and guards.
//!
//! A predicate is one bit for each lane: a byte is those of eight lanes. Vector instructions want
//! the sign of each lane instead.

use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};

use super::run::{BANKS, DONE_OF_PREDICATE, Part, SCRATCH, Writer, halves};
use crate::exec::predicate::{Combine, INVERT, INVERT_OUTCOME};
use crate::meaning::{Test, Width};
use crate::program::Op;
use crate::registers::{Guard, Slot};

/// By how much each lane shifts the bits of eight lanes, four times in a word, so that its own
/// becomes the sign. All code begins with this table.
pub(super) const SHIFTS: [u32; 8] = [7, 6, 5, 4, 3, 2, 1, 0];

/// The bits that an operation gives, those of its opposite, and those of another predicate.
const TRUTH: Register = Register::EAX;
const OPPOSITE: Register = Register::R9D;
const OTHER: Register = Register::R8D;

impl Writer {
    /// `setp`: the outcome of a test and its opposite, each combined with another predicate.
    pub(super) fn compare(&mut self, op: &Op, test: Test) -> Result<(), IcedError> {
        self.test(op, test)?;
        if op.imm & INVERT_OUTCOME != 0 {
            self.not(TRUTH)?;
        }
        self.with2(Code::Mov_r32_rm32, OPPOSITE, TRUTH)?;
        self.not(OPPOSITE)?;
        let combine = match op.imm & 3 {
            it if it == Combine::And as u64 => Some(Code::And_r32_rm32),
            it if it == Combine::Or as u64 => Some(Code::Or_r32_rm32),
            it if it == Combine::Xor as u64 => Some(Code::Xor_r32_rm32),
            _ => None,
        };
        if let Some(code) = combine {
            self.load_bits(OTHER, op.c)?;
            if op.imm & INVERT != 0 {
                self.not(OTHER)?;
            }
            self.with2(code, TRUTH, OTHER)?;
            self.with2(code, OPPOSITE, OTHER)?;
        }
        self.store_bits(op.dst, Register::AL)?;
        self.store_bits(op.dst2, Register::R9L)
    }

    /// Puts the bits of a test into [`TRUTH`].
    fn test(&mut self, op: &Op, test: Test) -> Result<(), IcedError> {
        let (Test::Equal(width) | Test::Less { width, .. } | Test::Float { width, .. }) = test;
        let [result, _] = SCRATCH;
        for half in halves(width) {
            let [a, b] = self.pair(op, width, half)?;
            match test {
                Test::Equal(_) => {
                    let code = match width {
                        Width::Word => Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256,
                        Width::Double => Code::VEX_Vpcmpeqq_ymm_ymm_ymmm256,
                    };
                    self.with3(code, result, a, b)?;
                }
                Test::Less { is_signed, .. } => self.less([a, b], width, is_signed)?,
                Test::Float { predicate, .. } => {
                    let code = match width {
                        Width::Word => Code::VEX_Vcmpps_ymm_ymm_ymmm256_imm8,
                        Width::Double => Code::VEX_Vcmppd_ymm_ymm_ymmm256_imm8,
                    };
                    let predicate = i32::from(predicate);
                    self.add(Instruction::with4(code, result, a, b, predicate)?)?;
                }
            }
            match (width, half) {
                (Width::Word, _) => self.with2(Code::VEX_Vmovmskps_r32_ymm, TRUTH, result)?,
                (Width::Double, 0) => self.with2(Code::VEX_Vmovmskpd_r32_ymm, TRUTH, result)?,
                (Width::Double, _) => {
                    self.with2(Code::VEX_Vmovmskpd_r32_ymm, OTHER, result)?;
                    self.add(Instruction::with2(Code::Shl_rm32_imm8, OTHER, 4)?)?;
                    self.with2(Code::Or_r32_rm32, TRUTH, OTHER)?;
                }
            }
        }
        Ok(())
    }

    /// Puts into the first register for intermediate results where `a` is less than `b`.
    fn less(
        &mut self,
        [a, b]: [Register; 2],
        width: Width,
        is_signed: bool,
    ) -> Result<(), IcedError> {
        let [left, right] = SCRATCH;
        let (greater, shift) = match width {
            Width::Word => (
                Code::VEX_Vpcmpgtd_ymm_ymm_ymmm256,
                Code::VEX_Vpslld_ymm_ymm_imm8,
            ),
            Width::Double => (
                Code::VEX_Vpcmpgtq_ymm_ymm_ymmm256,
                Code::VEX_Vpsllq_ymm_ymm_imm8,
            ),
        };
        if is_signed {
            return self.with3(greater, left, b, a);
        }
        // With the highest bit inverted, they are in the same order as signed numbers.
        let highest = match width {
            Width::Word => 31,
            Width::Double => 63,
        };
        self.with3(Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256, right, right, right)?;
        self.add(Instruction::with3(shift, right, right, highest)?)?;
        self.with3(Code::VEX_Vpxor_ymm_ymm_ymmm256, left, a, right)?;
        self.with3(Code::VEX_Vpxor_ymm_ymm_ymmm256, right, b, right)?;
        self.with3(greater, left, right, left)
    }

    /// `selp`: `a` where the predicate `c` holds, else `b`.
    pub(super) fn select(&mut self, op: &Op, width: Width) -> Result<(), IcedError> {
        for half in halves(width) {
            let [mut a, mut b] = self.pair(op, width, half)?;
            let to = self.room(&[a, b])?;
            if op.imm as u32 != 0 {
                (a, b) = (b, a);
            }
            self.blend(to, [a, b], op.c, (width, half))?;
            let part = Part {
                slot: op.dst,
                width,
                half,
            };
            self.give(op, part, to)?;
        }
        Ok(())
    }

    /// A predicate of one or two.
    pub(super) fn predicate(
        &mut self,
        op: &Op,
        combine: Option<Code>,
        not: bool,
    ) -> Result<(), IcedError> {
        self.load_bits(TRUTH, op.a)?;
        if op.imm & 1 != 0 {
            self.not(TRUTH)?;
        }
        if let Some(code) = combine {
            self.load_bits(OTHER, op.b)?;
            self.with2(code, TRUTH, OTHER)?;
        }
        if not {
            self.not(TRUTH)?;
        }
        self.store_bits(op.dst, Register::AL)
    }

    /// Notes that `to` has the new value of `part`: in the lanes that the guard of `op` selects, if
    /// it has one.
    pub(super) fn give(&mut self, op: &Op, part: Part, to: Register) -> Result<(), IcedError> {
        if let Some(Guard { slot, invert }) = op.guard {
            let before = self.value(part, &[to])?;
            let values = match invert {
                0 => [to, before],
                _ => [before, to],
            };
            self.blend(to, values, slot, (part.width, part.half))?;
        }
        self.set(part, to);
        Ok(())
    }

    /// The first of two values where a predicate holds, else the second.
    fn blend(
        &mut self,
        to: Register,
        [yes, no]: [Register; 2],
        predicate: Slot,
        (width, half): (Width, i32),
    ) -> Result<(), IcedError> {
        let [_, signs] = SCRATCH;
        let bits = bits(predicate);
        self.add(Instruction::with2(
            Code::VEX_Vpbroadcastb_ymm_xmmm8,
            signs,
            bits,
        )?)?;
        let shifts = MemoryOperand::with_base_displ(Register::RIP, 0);
        let code = Code::VEX_Vpsllvd_ymm_ymm_ymmm256;
        self.add(Instruction::with3(code, signs, signs, shifts)?)?;
        let code = match width {
            Width::Word => Code::VEX_Vblendvps_ymm_ymm_ymmm256_ymm,
            Width::Double => {
                self.extend_half(signs, signs, half, true)?;
                Code::VEX_Vblendvpd_ymm_ymm_ymmm256_ymm
            }
        };
        self.add(Instruction::with4(code, to, no, yes, signs)?)
    }

    /// The values of `a` and `b`.
    fn pair(&mut self, op: &Op, width: Width, half: i32) -> Result<[Register; 2], IcedError> {
        let part = |slot| Part { slot, width, half };
        let a = self.value(part(op.a), &[])?;
        Ok([a, self.value(part(op.b), &[a])?])
    }

    fn load_bits(&mut self, to: Register, from: Slot) -> Result<(), IcedError> {
        self.add(Instruction::with2(Code::Movzx_r32_rm8, to, bits(from))?)
    }

    fn store_bits(&mut self, to: Slot, from: Register) -> Result<(), IcedError> {
        self.add(Instruction::with2(Code::Mov_rm8_r8, bits(to), from)?)
    }

    fn not(&mut self, register: Register) -> Result<(), IcedError> {
        self.add(Instruction::with1(Code::Not_rm32, register)?)
    }
}

/// Where the bits of a predicate are, for the lanes that are next.
fn bits(slot: Slot) -> MemoryOperand {
    let (bank, offset) = (BANKS[slot.bank()], i64::from(slot.offset() as u32));
    MemoryOperand::with_base_index_scale_displ_size(bank, DONE_OF_PREDICATE, 1, offset, 1)
}
