//! From a function of one lane to an operation of a warp.
//!
//! A closure without captures is compiled into a loop over 32 lanes, once for each [`Isa`]. The
//! loop works on pieces of eight lanes by value, which compilers turn into vector instructions
//! whatever registers overlap.

#![allow(
    clippy::needless_range_loop,
    reason = "several arrays are walked at once"
)]

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::Context;
use crate::isa::Isa;
use crate::program::{Exec, Op, Step};
use crate::registers::{Slot, WARP};

/// Lanes computed together.
const PIECE: usize = 8;

/// The bits of one lane of a register.
pub(crate) trait Bits: Copy + Default + 'static {}
impl Bits for u32 {}
impl Bits for u64 {}

/// A type that a lane can have.
pub(crate) trait Lane: Copy + 'static {
    /// Its bits in a register.
    type Bits: Bits;
    /// From a register.
    fn of(bits: Self::Bits) -> Self;
    /// To a register.
    fn bits(self) -> Self::Bits;
}

macro_rules! lane {
    ($($type:ty as $bits:ty: |$b:ident| $of:expr, |$v:ident| $to:expr;)*) => {$(
        impl Lane for $type {
            type Bits = $bits;
            #[inline(always)]
            fn of($b: $bits) -> Self {
                $of
            }
            #[inline(always)]
            fn bits(self) -> $bits {
                let $v = self;
                $to
            }
        }
    )*};
}

lane! {
    u8 as u32: |b| b as u8, |v| v as u32;
    i8 as u32: |b| b as i8, |v| v as i32 as u32;
    u16 as u32: |b| b as u16, |v| v as u32;
    i16 as u32: |b| b as i16, |v| v as i32 as u32;
    u32 as u32: |b| b, |v| v;
    i32 as u32: |b| b as i32, |v| v as u32;
    u64 as u64: |b| b, |v| v;
    i64 as u64: |b| b as i64, |v| v as u64;
    f32 as u32: |b| f32::from_bits(b), |v| v.to_bits();
    f64 as u64: |b| f64::from_bits(b), |v| v.to_bits();
}

/// The loop of an operation.
pub(super) trait Body: 'static {
    /// Executes it; compiled with the features of [`Isa::Avx2`] if `AVX2` is set.
    ///
    /// # Safety
    /// As [`Exec`]; and the host has the features.
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step;
}

/// Compiles a loop for an instruction set.
pub(super) fn compile<B: Body>(isa: Isa) -> Exec {
    match isa {
        Isa::Baseline => baseline::<B>,
        Isa::Avx2 => avx2::<B>,
    }
}

unsafe fn baseline<B: Body>(context: &mut Context<'_>, op: &Op) -> Step {
    // SAFETY: by the contract of `Exec`.
    unsafe { B::run::<false>(context, op) }
}

/// The caller has found that the host has these features: [`Isa::detect`].
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn avx2<B: Body>(context: &mut Context<'_>, op: &Op) -> Step {
    // SAFETY: by the contract of `Exec`.
    unsafe { B::run::<true>(context, op) }
}

/// The one value of a closure type without captures.
#[inline(always)]
pub(super) fn closure<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "lane functions capture nothing") };
    // SAFETY: a value without bytes is read from no memory; it was made once where the type was
    // named.
    unsafe { NonNull::<F>::dangling().read() }
}

/// Reads the bits of a piece of eight lanes.
///
/// # Safety
/// `lanes` points to the 32 lanes of a register of the right class; `piece` is below 4.
#[inline(always)]
unsafe fn read<B: Bits>(lanes: *const B, piece: usize) -> [B; PIECE] {
    // SAFETY: by this function's contract.
    unsafe { *lanes.add(piece * PIECE).cast::<[B; PIECE]>() }
}

/// Writes those lanes of a piece that are in `mask`.
///
/// # Safety
/// As [`read`]; and no other reference to the register exists.
#[inline(always)]
unsafe fn write<B: Bits>(lanes: *mut B, piece: usize, mask: u32, new: [B; PIECE]) {
    // SAFETY: by this function's contract.
    let target = unsafe { lanes.add(piece * PIECE).cast::<[B; PIECE]>() };
    if mask == u32::MAX {
        // SAFETY: as above.
        unsafe { *target = new };
        return;
    }
    // SAFETY: as above.
    let mut blended = unsafe { *target };
    let wanted = mask >> (piece * PIECE);
    // Plain loops, here and below: closures of iterators are not always compiled into the function
    // with the vector instructions.
    for i in 0..PIECE {
        if wanted & (1 << i) != 0 {
            blended[i] = new[i];
        }
    }
    // SAFETY: as above.
    unsafe { *target = blended };
}

/// Writes one value to the active lanes of a register.
///
/// # Safety
/// As [`Exec`]; `slot` is a register of the class of `T` in the bound frame.
#[inline(always)]
pub(super) unsafe fn broadcast<T: Lane>(context: &Context<'_>, slot: Slot, value: T) {
    let target = context.slot::<T::Bits>(slot);
    for piece in 0..WARP / PIECE {
        // SAFETY: by this function's contract.
        unsafe { write(target, piece, context.mask, [value.bits(); PIECE]) };
    }
}

/// Writes the active lanes of a register.
///
/// # Safety
/// As [`broadcast`].
#[inline(always)]
pub(super) unsafe fn write_all<B: Bits>(context: &Context<'_>, slot: Slot, values: &[B; WARP]) {
    let target = context.slot::<B>(slot);
    for piece in 0..WARP / PIECE {
        // SAFETY: by this function's contract.
        unsafe { write(target, piece, context.mask, read(values.as_ptr(), piece)) };
    }
}

macro_rules! shape {
    (
        $(#[$doc:meta])* $name:ident, $body:ident,
        $($type:ident $slot:ident),+ $(; $imm:ident: $immediate:ty)?
    ) => {
        struct $body<$($type,)+ R, F>(PhantomData<($($type,)+ R, F)>);

        impl<$($type: Lane,)+ R: Lane, F> Body for $body<$($type,)+ R, F>
        where
            F: Fn($($type,)+ $($immediate)?) -> R + Copy + 'static,
        {
            #[inline(always)]
            unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
                let function = closure::<F>();
                $(let $imm: $immediate = op.imm;)?
                let target = context.slot::<R::Bits>(op.dst);
                $(let $slot = context.slot::<$type::Bits>(op.$slot);)+
                for piece in 0..WARP / PIECE {
                    // SAFETY: lowering gives every operand a register of its class in the bound
                    // frame.
                    unsafe {
                        $(let $slot = read($slot, piece);)+
                        let mut values = [R::Bits::default(); PIECE];
                        for i in 0..PIECE {
                            values[i] = function($($type::of($slot[i]),)+ $($imm)?).bits();
                        }
                        write(target, piece, context.mask, values);
                    }
                }
                Step::Next
            }
        }

        $(#[$doc])*
        pub(crate) fn $name<$($type: Lane,)+ R: Lane, F>(isa: Isa, _function: F) -> Exec
        where
            F: Fn($($type,)+ $($immediate)?) -> R + Copy + 'static,
        {
            compile::<$body<$($type,)+ R, F>>(isa)
        }
    };
}

shape!(
    /// `dst = function(a)`
    unary, Unary, A a
);
shape!(
    /// `dst = function(a, b)`
    binary, Binary, A a, B b
);
shape!(
    /// `dst = function(a, b, c)`
    ternary, Ternary, A a, B b, C c
);
shape!(
    /// `dst = function(a, imm)`
    unary_with, UnaryWith, A a; imm: u64
);
shape!(
    /// `dst = function(a, b, imm)`
    binary_with, BinaryWith, A a, B b; imm: u64
);
shape!(
    /// `dst = function(a, b, c, imm)`
    ternary_with, TernaryWith, A a, B b, C c; imm: u64
);

struct Compare<A, B, F>(PhantomData<(A, B, F)>);

impl<A: Lane, B: Lane, F> Body for Compare<A, B, F>
where
    F: Fn(A, B) -> bool + Copy + 'static,
{
    #[inline(always)]
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
        let function = closure::<F>();
        let a = context.slot::<A::Bits>(op.a);
        let b = context.slot::<B::Bits>(op.b);
        let mut truth = 0;
        for piece in 0..WARP / PIECE {
            // SAFETY: lowering gives every operand a register of its class in the bound frame.
            let (a, b) = unsafe { (read(a, piece), read(b, piece)) };
            let mut bits = 0;
            for i in 0..PIECE {
                bits |= u32::from(function(A::of(a[i]), B::of(b[i]))) << i;
            }
            truth |= bits << (piece * PIECE);
        }
        super::predicate::conclude(context, op, truth);
        Step::Next
    }
}

/// Predicates `dst` and `dst2` from `function(a, b)` and predicate `c`: see
/// [`super::predicate::Combine`].
pub(crate) fn compare<A: Lane, B: Lane, F>(isa: Isa, _function: F) -> Exec
where
    F: Fn(A, B) -> bool + Copy + 'static,
{
    compile::<Compare<A, B, F>>(isa)
}

struct Select<A>(PhantomData<A>);

impl<A: Lane> Body for Select<A> {
    #[inline(always)]
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
        let target = context.slot::<A::Bits>(op.dst);
        let (a, b) = (context.slot::<A::Bits>(op.a), context.slot::<A::Bits>(op.b));
        let truth = context.predicate(op.c) ^ op.imm as u32;
        for piece in 0..WARP / PIECE {
            let wanted = truth >> (piece * PIECE);
            // SAFETY: lowering gives every operand a register of its class in the bound frame.
            unsafe {
                let (a, mut values) = (read(a, piece), read(b, piece));
                for i in 0..PIECE {
                    if wanted & (1 << i) != 0 {
                        values[i] = a[i];
                    }
                }
                write(target, piece, context.mask, values);
            }
        }
        Step::Next
    }
}

/// `dst = c ? a : b`, the predicate `c` inverted by the lower half of `imm`.
pub(crate) fn select<A: Lane>(isa: Isa) -> Exec {
    compile::<Select<A>>(isa)
}

struct Carry<A, F>(PhantomData<(A, F)>);

/// Bit of `Op::imm`: the operation takes the carry in.
pub(crate) const CARRY_IN: u64 = 1;
/// Bit of `Op::imm`: the operation gives a carry out.
pub(crate) const CARRY_OUT: u64 = 2;

impl<A: Lane, F> Body for Carry<A, F>
where
    F: Fn(A, A, bool) -> (A, bool) + Copy + 'static,
{
    #[inline(always)]
    unsafe fn run<const AVX2: bool>(context: &mut Context<'_>, op: &Op) -> Step {
        let function = closure::<F>();
        let target = context.slot::<A::Bits>(op.dst);
        let (a, b) = (context.slot::<A::Bits>(op.a), context.slot::<A::Bits>(op.b));
        let mut carry = context.predicate(op.c);
        if op.imm & CARRY_IN == 0 {
            carry = 0;
        }
        let mut out = 0;
        for piece in 0..WARP / PIECE {
            // SAFETY: lowering gives every operand a register of its class in the bound frame.
            unsafe {
                let (a, b) = (read(a, piece), read(b, piece));
                let mut values = [A::Bits::default(); PIECE];
                for i in 0..PIECE {
                    let lane = piece * PIECE + i;
                    let (value, over) =
                        function(A::of(a[i]), A::of(b[i]), carry & (1 << lane) != 0);
                    out |= u32::from(over) << lane;
                    values[i] = value.bits();
                }
                write(target, piece, context.mask, values);
            }
        }
        if op.imm & CARRY_OUT != 0 {
            context.set_predicate(op.c, out);
        }
        Step::Next
    }
}

/// `dst, carry = function(a, b, carry)`, the carry in predicate `c`.
pub(crate) fn carrying<A: Lane, F>(isa: Isa, _function: F) -> Exec
where
    F: Fn(A, A, bool) -> (A, bool) + Copy + 'static,
{
    compile::<Carry<A, F>>(isa)
}
