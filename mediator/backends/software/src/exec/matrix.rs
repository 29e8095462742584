//! Matrices that a warp holds together (PTX ISA, "Warp Level Matrix Instructions"): products, and
//! moves between registers and memory.
//!
//! Lane `4 * group + thread` holds elements of row (or column) `group` in each matrix of 8 rows.
//! Products and sums are computed in double precision and rounded once.
#![allow(
    clippy::needless_range_loop,
    reason = "rows, columns and lanes are indices of several arrays"
)]

use super::Context;
use super::access::{lane_address, lanes, row_address};
use super::fault::AccessKind;
use crate::program::{Element, MatrixSite, Op, Step, Sum};
use crate::registers::{Slot, WARP};

const DEPTH_MAX: usize = 64;
const COLUMNS: usize = 8;

/// The products of 16 rows at most, and what is added to them.
type Result = [[f64; COLUMNS]; 16];

/// `mma`: number `imm` of the program's matrix instructions.
pub(crate) unsafe fn multiply(context: &mut Context<'_>, op: &Op) -> Step {
    let Some(site) = context.program.matrices.get(op.imm as usize) else {
        return Step::Fault;
    };
    let mut left = [[0.0; DEPTH_MAX]; 16];
    let mut right = [[0.0; DEPTH_MAX]; COLUMNS];
    let [left_type, right_type] = site.factors;
    let halves = site.rows / 8;
    let per_register = 4 * left_type.per_register();
    for register in 0..site.depth / per_register * halves {
        let (row, column) = (8 * (register % halves), per_register * (register / halves));
        read(
            context,
            site.a[register],
            left_type,
            &mut left[row..],
            column,
        );
    }
    for register in 0..site.depth / per_register {
        let row = per_register * register;
        read(context, site.b[register], right_type, &mut right, row);
    }
    let mut sums = read_sums(context, site);
    for row in 0..site.rows {
        for column in 0..COLUMNS {
            let products = left[row].iter().zip(&right[column]).take(site.depth);
            sums[row][column] += products.map(|(a, b)| a * b).sum::<f64>();
        }
    }
    write_sums(context, site, &sums);
    Step::Next
}

/// Reads a register of a factor: lane by lane, elements of one row side by side.
fn read(
    context: &Context<'_>,
    slot: Slot,
    element: Element,
    matrix: &mut [[f64; DEPTH_MAX]],
    first: usize,
) {
    let count = element.per_register();
    for (lane, word) in context.words(slot).into_iter().enumerate() {
        let at = first + lane % 4 * count;
        for index in 0..count {
            matrix[lane / 4][at + index] = element.decode(word, index);
        }
    }
}

impl Element {
    const fn per_register(self) -> usize {
        match self {
            Self::Tf32 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::S8 | Self::U8 => 4,
            Self::S4 | Self::U4 => 8,
        }
    }

    /// Element number `index` of a register.
    fn decode(self, word: u32, index: usize) -> f64 {
        let part = word >> (index * 32 / self.per_register());
        match self {
            Self::F16 => half::f16::from_bits(part as u16).to_f64(),
            Self::Bf16 => half::bf16::from_bits(part as u16).to_f64(),
            // The low 13 bits of a single do not count.
            Self::Tf32 => f64::from(f32::from_bits(part & !0x1fff)),
            Self::S8 => f64::from(part as i8),
            Self::U8 => f64::from(part as u8),
            Self::S4 => f64::from(((part << 28) as i32) >> 28),
            Self::U4 => f64::from(part & 15),
        }
    }
}

fn read_sums(context: &Context<'_>, site: &MatrixSite) -> Result {
    let mut sums = [[0.0; COLUMNS]; 16];
    for (row, column, slot, index, lane) in places(site, &site.c) {
        let word = context.words(slot)[lane];
        sums[row][column] = match site.sum {
            Sum::F32 => f64::from(f32::from_bits(word)),
            Sum::F16 => half::f16::from_bits((word >> (16 * index)) as u16).to_f64(),
            Sum::S32 | Sum::S32Saturated => f64::from(word as i32),
        };
    }
    sums
}

fn write_sums(context: &mut Context<'_>, site: &MatrixSite, sums: &Result) {
    for (row, column, slot, index, lane) in places(site, &site.d) {
        let sum = sums[row][column];
        if context.mask & (1 << lane) == 0 {
            continue;
        }
        // SAFETY: lowering gives the site word registers in the bound frame; there are 32 lanes.
        let word = unsafe { &mut *context.slot::<u32>(slot).add(lane) };
        *word = match site.sum {
            Sum::F32 if sum.is_nan() => 0x7fff_ffff,
            Sum::F32 => (sum as f32).to_bits(),
            Sum::F16 => {
                let bits = match sum.is_nan() {
                    true => 0x7fff,
                    false => half::f16::from_f64(sum).to_bits(),
                };
                let other = *word & (0xffff << (16 * (1 - index)));
                other | u32::from(bits) << (16 * index)
            }
            // Sums of integers are exact, and below 2^53.
            Sum::S32 => sum as i64 as u32,
            Sum::S32Saturated => sum as i32 as u32,
        };
    }
}

/// Row, column, register, index in it and lane of each element of the result.
fn places<'s>(
    site: &MatrixSite,
    slots: &'s [Slot; 4],
) -> impl Iterator<Item = (usize, usize, Slot, usize, usize)> + use<'s> {
    let (rows, pairs) = (site.rows, site.sum == Sum::F16);
    (0..rows * COLUMNS).map(move |place| {
        let (row, column) = (place / COLUMNS, place % COLUMNS);
        let (half, index) = (row / 8, column % 2);
        let slot = if pairs {
            slots[half]
        } else {
            slots[2 * half + index]
        };
        (row, column, slot, index, row % 8 * 4 + column / 2)
    })
}

/// `ldmatrix`: number `b` of the program's matrix instructions; the lanes' addresses are those of
/// rows.
pub(crate) unsafe fn load(context: &mut Context<'_>, op: &Op) -> Step {
    let Some(site) = context.program.matrices.get(op.b.0 as usize) else {
        return Step::Fault;
    };
    for matrix in 0..site.rows {
        let mut rows = [[0; 8]; 8];
        for (row, cells) in rows.iter_mut().enumerate() {
            let Some(host) = row_of(context, op, 8 * matrix + row, AccessKind::Load) else {
                return Step::Fault;
            };
            for (column, cell) in cells.iter_mut().enumerate() {
                // SAFETY: the 16 bytes of the row may be read, and are aligned.
                *cell = unsafe { host.add(column).read_volatile() };
            }
        }
        context.set_words(site.d[matrix], &scattered(&rows, site.transposed));
    }
    Step::Next
}

/// `stmatrix`: as [`load`], in the other direction.
pub(crate) unsafe fn store(context: &mut Context<'_>, op: &Op) -> Step {
    let Some(site) = context.program.matrices.get(op.b.0 as usize) else {
        return Step::Fault;
    };
    for matrix in 0..site.rows {
        let rows = gathered(&context.words(site.d[matrix]), site.transposed);
        for (row, cells) in rows.iter().enumerate() {
            let Some(host) = row_of(context, op, 8 * matrix + row, AccessKind::Store) else {
                return Step::Fault;
            };
            for (column, cell) in cells.iter().enumerate() {
                // SAFETY: the 16 bytes of the row may be written, and are aligned.
                unsafe { host.add(column).write_volatile(*cell) };
            }
        }
    }
    Step::Next
}

/// `movmatrix`: transposes the matrix in the word `a`.
pub(crate) unsafe fn transpose(context: &mut Context<'_>, op: &Op) -> Step {
    let rows = gathered(&context.words(op.a), false);
    context.set_words(op.dst, &scattered(&rows, true));
    Step::Next
}

/// Host address of the row that `lane` names; `None` is a fault, described in the context.
fn row_of(context: &mut Context<'_>, op: &Op, lane: usize, kind: AccessKind) -> Option<*mut u16> {
    let address = lane_address(context, op, lane);
    match row_address(context, op, (lane, address), kind) {
        Ok(host) => Some(host as *mut u16),
        Err(trouble) => {
            context.trouble = Some(trouble);
            None
        }
    }
}

/// The words of the lanes that hold a matrix: two neighbours of a row each.
fn scattered(rows: &[[u16; 8]; 8], transposed: bool) -> [u32; WARP] {
    std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, lane % 4 * 2);
        let cell = |column: usize| match transposed {
            true => u32::from(rows[column][row]),
            false => u32::from(rows[row][column]),
        };
        cell(column) | cell(column + 1) << 16
    })
}

/// The matrix that the words of the lanes hold.
fn gathered(words: &[u32; WARP], transposed: bool) -> [[u16; 8]; 8] {
    let mut rows = [[0; 8]; 8];
    for lane in lanes(u32::MAX) {
        for index in 0..2 {
            let (row, column) = (lane / 4, lane % 4 * 2 + index);
            let cell = (words[lane] >> (16 * index)) as u16;
            match transposed {
                true => rows[column][row] = cell,
                false => rows[row][column] = cell,
            }
        }
    }
    rows
}
