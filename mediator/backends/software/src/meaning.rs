//! What operations compute, for the compiler.
//!
//! An operation is executed by a function, which the compiler cannot look into. Those whose
//! meaning is known here can be compiled; a test compares each with its function.

use iced_x86::Code;

/// Bits of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Width {
    /// 32 bits, of which narrower types use the low ones.
    Word,
    /// 64 bits.
    Double,
}

/// What an operation computes from `Op::a`, `Op::b` and `Op::c` for `Op::dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// `a`.
    Copy(Width),
    /// Bits that are not set in `a`.
    Not(Width),
    /// What an instruction of AVX2 makes of the words of `a`.
    Unary(Code),
    /// `a`, of 32 bits, in 64 bits.
    Extend { is_signed: bool },
    /// What an instruction of AVX2 makes of the lanes of `a` and `b`.
    Binary(Width, Code),
    /// What an instruction for 64 bits makes of `a`, and of `b` with 32 bits, such as a shift.
    Shift(Code),
    /// What an instruction makes of `a` (its first operand and the result), `b` and `c`.
    Fused(Width, Code),
    /// `a * b + c`, the low 32 bits.
    MultiplyAdd,
    /// `a * b` in 64 bits of 32 bits each, plus `c` of 64 bits if it `adds`.
    Wide { is_signed: bool, adds: bool },
    /// Whether `a` and `b` pass this test. `Op::imm`, `Op::c` and `Op::dst2` say what becomes of
    /// that (`exec/predicate.rs`).
    Compare(Test),
    /// `a` where the predicate `c` holds, else `b`.
    Select(Width),
    /// The predicates `a` (inverted by bit 0 of `Op::imm`) and `b`, combined by an instruction for
    /// words; `a` alone without one. The outcome is inverted if it is a `not`.
    Predicate { combine: Option<Code>, not: bool },
}

/// A relation between two lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    /// They are equal as integers.
    Equal(Width),
    /// The first is less than the second, as integers.
    Less { width: Width, is_signed: bool },
    /// What `vcmpps` and `vcmppd` compare with this immediate byte.
    Float { width: Width, predicate: u8 },
}

use Meaning::{Binary, Extend, Fused, MultiplyAdd, Not, Shift, Unary, Wide};
use Width::{Double, Word};

impl Meaning {
    /// Returns whether the compiler can restrict it to the lanes that a guard selects.
    pub(crate) fn can_be_guarded(self) -> bool {
        !matches!(
            self,
            Meaning::Compare(_) | Meaning::Predicate { .. } | Meaning::Shift(_)
        )
    }

    /// Returns the meaning of an instruction of PTX that is one operation, by its mnemonic with all
    /// modifiers. `None` if it is executed by its function only.
    ///
    /// Instructions that flush or saturate are not among them, nor minimum and maximum of floats,
    /// which treat NaN in their own way.
    pub(crate) fn of(mnemonic: &str) -> Option<Self> {
        Some(match mnemonic {
            "add.u16" | "add.s16" | "add.u32" | "add.s32" => {
                Binary(Word, Code::VEX_Vpaddd_ymm_ymm_ymmm256)
            }
            "sub.u16" | "sub.s16" | "sub.u32" | "sub.s32" => {
                Binary(Word, Code::VEX_Vpsubd_ymm_ymm_ymmm256)
            }
            "mul.lo.u16" | "mul.lo.s16" | "mul.lo.u32" | "mul.lo.s32" => {
                Binary(Word, Code::VEX_Vpmulld_ymm_ymm_ymmm256)
            }
            "and.b16" | "and.b32" => Binary(Word, Code::VEX_Vpand_ymm_ymm_ymmm256),
            "or.b16" | "or.b32" => Binary(Word, Code::VEX_Vpor_ymm_ymm_ymmm256),
            "xor.b16" | "xor.b32" => Binary(Word, Code::VEX_Vpxor_ymm_ymm_ymmm256),
            "not.b16" | "not.b32" => Not(Word),
            "min.u32" => Binary(Word, Code::VEX_Vpminud_ymm_ymm_ymmm256),
            "min.s32" => Binary(Word, Code::VEX_Vpminsd_ymm_ymm_ymmm256),
            "max.u32" => Binary(Word, Code::VEX_Vpmaxud_ymm_ymm_ymmm256),
            "max.s32" => Binary(Word, Code::VEX_Vpmaxsd_ymm_ymm_ymmm256),
            "shl.b32" => Binary(Word, Code::VEX_Vpsllvd_ymm_ymm_ymmm256),
            "shr.u32" | "shr.b32" => Binary(Word, Code::VEX_Vpsrlvd_ymm_ymm_ymmm256),
            "shr.s32" => Binary(Word, Code::VEX_Vpsravd_ymm_ymm_ymmm256),
            "mad.lo.u16" | "mad.lo.s16" | "mad.lo.u32" | "mad.lo.s32" => MultiplyAdd,
            "add.u64" | "add.s64" => Binary(Double, Code::VEX_Vpaddq_ymm_ymm_ymmm256),
            "sub.u64" | "sub.s64" => Binary(Double, Code::VEX_Vpsubq_ymm_ymm_ymmm256),
            "and.b64" => Binary(Double, Code::VEX_Vpand_ymm_ymm_ymmm256),
            "or.b64" => Binary(Double, Code::VEX_Vpor_ymm_ymm_ymmm256),
            "xor.b64" => Binary(Double, Code::VEX_Vpxor_ymm_ymm_ymmm256),
            "not.b64" => Not(Double),
            "shl.b64" => Shift(Code::VEX_Vpsllvq_ymm_ymm_ymmm256),
            "shr.u64" | "shr.b64" => Shift(Code::VEX_Vpsrlvq_ymm_ymm_ymmm256),
            "cvt.u64.u32" => Extend { is_signed: false },
            "cvt.s64.s32" => Extend { is_signed: true },
            "cvt.rn.f32.s32" => Unary(Code::VEX_Vcvtdq2ps_ymm_ymmm256),
            "mul.wide.u32" => wide(false, false),
            "mul.wide.s32" => wide(true, false),
            "mad.wide.u32" => wide(false, true),
            "mad.wide.s32" => wide(true, true),
            "add.f32" | "add.rn.f32" => Binary(Word, Code::VEX_Vaddps_ymm_ymm_ymmm256),
            "sub.f32" | "sub.rn.f32" => Binary(Word, Code::VEX_Vsubps_ymm_ymm_ymmm256),
            "mul.f32" | "mul.rn.f32" => Binary(Word, Code::VEX_Vmulps_ymm_ymm_ymmm256),
            "div.rn.f32" => Binary(Word, Code::VEX_Vdivps_ymm_ymm_ymmm256),
            "fma.rn.f32" | "mad.rn.f32" => Fused(Word, Code::VEX_Vfmadd213ps_ymm_ymm_ymmm256),
            "add.f64" | "add.rn.f64" => Binary(Double, Code::VEX_Vaddpd_ymm_ymm_ymmm256),
            "sub.f64" | "sub.rn.f64" => Binary(Double, Code::VEX_Vsubpd_ymm_ymm_ymmm256),
            "mul.f64" | "mul.rn.f64" => Binary(Double, Code::VEX_Vmulpd_ymm_ymm_ymmm256),
            "div.rn.f64" => Binary(Double, Code::VEX_Vdivpd_ymm_ymm_ymmm256),
            "fma.rn.f64" | "mad.rn.f64" => Fused(Double, Code::VEX_Vfmadd213pd_ymm_ymm_ymmm256),
            _ => return None,
        })
    }
}

const fn wide(is_signed: bool, adds: bool) -> Meaning {
    Wide { is_signed, adds }
}
