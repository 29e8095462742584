//! What PTX operations compute for one lane, if that is more than one Rust operator.
//!
//! Everything here is a pure function that panics for no operands. Register contents are integers
//! or floats; signedness is a type, a parameter or part of the name. Results follow the PTX ISA;
//! where it leaves a result open (division by zero, NaN payloads), the choice is documented at the
//! function.
//!
//! | module | what |
//! |---|---|
//! | [`float32`] | `.f32` add, sub, mul, fma, div, sqrt, rcp in any rounding mode; `.ftz`, `.sat` |
//! | [`float64`] | the same for `.f64` |
//! | [`float16`] | `.f16`, `.bf16`, pairs: add … fma, min, max, neg, abs, `.ftz`, `.sat`, `.relu` |
//! | [`float8`] | cvt between pairs of `.e4m3` or `.e5m2` and `.f32` or `.f16`; `.relu` |
//! | [`compare`] | min, max, `.NaN`, `.xorsign.abs`, copysign, testp |
//! | [`convert`] | cvt between floats and integers of any size, cvt.pack, tf32 |
//! | [`integer`] | high products, 24-bit, sad, dp4a, dp2a, carries, saturation, division |
//! | [`video`] | add, sub, average, distance, min, max, set of packed half-words and bytes |
//! | [`bits`] | bfe, bfi, bfind, prmt, lop3, shf, bmsk, szext, fns |
//! | [`approximate`] | ex2, lg2, sin, cos, tanh, rcp, rsqrt, sqrt, div within PTX's error bounds |

pub mod approximate;
pub mod bits;
pub mod compare;
pub mod convert;
pub mod float16;
pub mod float32;
pub mod float64;
pub mod float8;
pub mod format;
pub mod integer;
pub mod video;

crate::modifiers::modifiers! {
    /// How an inexact result is rounded to a number of its type (PTX ISA, "Rounding Modifiers").
    Rounding {
        /// `.rn`, `.rni`: to the nearest number; if two are equally near, to the one whose last bit
        /// is 0.
        Nearest = "rn" | "rni",
        /// `.rz`, `.rzi`: towards zero.
        Zero = "rz" | "rzi",
        /// `.rm`, `.rmi`: towards negative infinity.
        Down = "rm" | "rmi",
        /// `.rp`, `.rpi`: towards positive infinity.
        Up = "rp" | "rpi",
    }
}

#[cfg(test)]
mod sampling;
