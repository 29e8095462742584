//! SSE2 and FMA instructions under a rounding mode of MXCSR: arithmetic that shares nothing with
//! the crate's.
#![allow(unsafe_code, reason = "rounding modes cannot be set from Rust")]

use std::arch::asm;

use crate::arith::Rounding;

/// MXCSR with all exceptions masked and this rounding mode (Intel SDM volume 1, 10.2.3).
fn control(rounding: Rounding) -> u32 {
    let mode = match rounding {
        Rounding::Nearest => 0,
        Rounding::Down => 1,
        Rounding::Up => 2,
        Rounding::Zero => 3,
    };
    0x1f80 | mode << 13
}

/// `$instruction destination, source` on two floats.
macro_rules! binary {
    ($name:ident, $float:ty, $instruction:literal) => {
        pub fn $name(a: $float, b: $float, rounding: Rounding) -> $float {
            let mode = control(rounding);
            let mut saved = 0_u32;
            let mut result = a;
            // SAFETY: one instruction on registers; the caller's MXCSR is put back by the same
            // block, so no other code runs under the mode.
            unsafe {
                asm!(
                    "stmxcsr [{saved}]",
                    "ldmxcsr [{mode}]",
                    concat!($instruction, " {result}, {operand}"),
                    "ldmxcsr [{saved}]",
                    saved = in(reg) &raw mut saved,
                    mode = in(reg) &raw const mode,
                    result = inout(xmm_reg) result,
                    operand = in(xmm_reg) b,
                    options(nostack),
                );
            }
            result
        }
    };
}

binary!(add_f32, f32, "addss");
binary!(sub_f32, f32, "subss");
binary!(mul_f32, f32, "mulss");
binary!(div_f32, f32, "divss");
binary!(root_f32, f32, "sqrtss");
binary!(add_f64, f64, "addsd");
binary!(sub_f64, f64, "subsd");
binary!(mul_f64, f64, "mulsd");
binary!(div_f64, f64, "divsd");
binary!(root_f64, f64, "sqrtsd");

pub fn sqrt_f32(a: f32, rounding: Rounding) -> f32 {
    root_f32(0.0, a, rounding)
}

pub fn sqrt_f64(a: f64, rounding: Rounding) -> f64 {
    root_f64(0.0, a, rounding)
}

/// `$instruction a, b, c` with `a * b + c` in `a`; `None` on a processor without FMA.
macro_rules! fused {
    ($name:ident, $float:ty, $instruction:literal) => {
        pub fn $name(a: $float, b: $float, c: $float, rounding: Rounding) -> Option<$float> {
            if !std::arch::is_x86_feature_detected!("fma") {
                return None;
            }
            let mode = control(rounding);
            let mut saved = 0_u32;
            let mut result = a;
            // SAFETY: as for the binary operations, and the processor has the instruction.
            unsafe {
                asm!(
                    "stmxcsr [{saved}]",
                    "ldmxcsr [{mode}]",
                    concat!($instruction, " {result}, {factor}, {addend}"),
                    "ldmxcsr [{saved}]",
                    saved = in(reg) &raw mut saved,
                    mode = in(reg) &raw const mode,
                    result = inout(xmm_reg) result,
                    factor = in(xmm_reg) b,
                    addend = in(xmm_reg) c,
                    options(nostack),
                );
            }
            Some(result)
        }
    };
}

fused!(fma_f32, f32, "vfmadd213ss");
fused!(fma_f64, f64, "vfmadd213sd");
