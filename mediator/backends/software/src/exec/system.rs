//! Functions that programs call and no module defines: `vprintf`, `__assertfail`, `malloc` and
//! `free`. Also the instruction `nanosleep`.

use std::time::Duration;

use super::Context;
use super::access::{lanes, load_bytes};
use super::fault::Trouble;
use super::printf::{self, Arguments, TEXT_BYTES_MAX};
use crate::program::{Op, Step};
use crate::registers::WARP;

/// Bytes of each string of an assertion, at most.
const ASSERTION_BYTES_MAX: usize = 1024;
/// Longest sleep of `nanosleep`, in nanoseconds.
const SLEEP_NS_MAX: u32 = 1_000_000;
/// Shortest sleep of `nanosleep`, in nanoseconds. The host's timers would make a shorter one more
/// than twice as long as was asked for, which PTX forbids; it allows no sleep at all.
const SLEEP_NS_MIN: u32 = 100_000;
/// What `vprintf` returns if the format is null.
const NO_FORMAT: i32 = -1;

/// `vprintf`: prints with the format at the double `a` and the arguments at the double `b`. The
/// word `dst` gets the number of arguments that the format takes. The text of a lane stays
/// together.
pub(crate) unsafe fn print(context: &mut Context<'_>, op: &Op) -> Step {
    let (formats, blocks) = (doubles(context, op.a), doubles(context, op.b));
    let mut taken = [0; WARP];
    for lane in lanes(context.mask) {
        match print_lane(context, lane, formats[lane], blocks[lane]) {
            Ok(count) => taken[lane] = count,
            Err(trouble) => {
                context.trouble = Some(trouble);
                return Step::Fault;
            }
        }
    }
    context.set_words(op.dst, &taken);
    Step::Next
}

fn print_lane(context: &Context<'_>, lane: usize, format: u64, at: u64) -> Result<u32, Trouble> {
    if format == 0 {
        return Ok(NO_FORMAT.cast_unsigned());
    }
    let format = string(context, lane, format, TEXT_BYTES_MAX)?;
    let mut arguments = Block { context, lane, at };
    let (text, taken) = printf::print(&format, &mut arguments)?;
    context.system.output.add(&text);
    Ok(taken)
}

/// `__assertfail`: message, file, line and function in `a` to `d`, all doubles but the line.
pub(crate) unsafe fn fail_assertion(context: &mut Context<'_>, op: &Op) -> Step {
    let lane = (context.mask.trailing_zeros() & 31) as usize;
    let text = |slot| {
        let text = match string(
            context,
            lane,
            doubles(context, slot)[lane],
            ASSERTION_BYTES_MAX,
        ) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => String::from("(unreadable)"),
        };
        text.replace(char::is_control, "\u{fffd}")
    };
    let (message, file, function) = (text(op.a), text(op.b), text(op.d));
    let line = context.words(op.c)[lane];
    let [bx, by, bz] = context.block;
    let [tx, ty, tz] = context.grid.threads[context.warp as usize].map(|axis| axis[lane]);
    context.trouble = Some(Trouble::Assertion {
        lane: lane as u32,
        text: format!(
            "{file}:{line}: {function}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] \
             Assertion `{message}` failed."
        ),
    });
    Step::Fault
}

/// `malloc`: the double `dst` gets the address of a piece of as many bytes as the double `a` says,
/// or 0.
pub(crate) unsafe fn allocate(context: &mut Context<'_>, op: &Op) -> Step {
    let sizes = doubles(context, op.a);
    for lane in lanes(context.mask) {
        let address = context.system.heap.allocate(sizes[lane]).unwrap_or(0);
        // SAFETY: lowering gives `dst` a double register in the bound frame; there are 32 lanes.
        unsafe { *context.slot::<u64>(op.dst).add(lane) = address };
    }
    Step::Next
}

/// `free`: gives the piece at the double `a` back.
pub(crate) unsafe fn free(context: &mut Context<'_>, op: &Op) -> Step {
    let addresses = doubles(context, op.a);
    for lane in lanes(context.mask) {
        context.system.heap.free(addresses[lane]);
    }
    Step::Next
}

/// `nanosleep`: the warp sleeps as long as the word `a` of the lane that asks for most, as far as
/// PTX allows (PTX ISA, `nanosleep`: from no time to twice that time, at most 1 ms).
pub(crate) unsafe fn sleep(context: &mut Context<'_>, op: &Op) -> Step {
    let durations = context.words(op.a);
    let asked = lanes(context.mask).map(|lane| durations[lane]);
    let longest = asked.max().unwrap_or(0).min(SLEEP_NS_MAX);
    if longest >= SLEEP_NS_MIN {
        std::thread::sleep(Duration::from_nanos(longest.into()));
    }
    Step::Next
}

/// The block of arguments of one lane.
struct Block<'c, 'l> {
    context: &'c Context<'l>,
    lane: usize,
    at: u64,
}

impl Block<'_, '_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Trouble> {
        // A wild pointer may be at the end of the address space; it is refused below.
        let at = self
            .at
            .checked_next_multiple_of(N as u64)
            .unwrap_or(self.at);
        let bytes = load_bytes(self.context, self.lane, at)?;
        self.at = at.wrapping_add(N as u64);
        Ok(bytes)
    }
}

impl Arguments for Block<'_, '_> {
    type Error = Trouble;

    fn word(&mut self) -> Result<u32, Trouble> {
        self.take().map(u32::from_le_bytes)
    }

    fn double(&mut self) -> Result<u64, Trouble> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self, address: u64, max: usize) -> Result<Vec<u8>, Trouble> {
        string(self.context, self.lane, address, max)
    }
}

/// The string at a generic address of a lane, up to its NUL byte or to `max` bytes.
fn string(
    context: &Context<'_>,
    lane: usize,
    address: u64,
    max: usize,
) -> Result<Vec<u8>, Trouble> {
    let mut bytes = Vec::new();
    while bytes.len() < max {
        let at = address.wrapping_add(bytes.len() as u64);
        match load_bytes(context, lane, at)? {
            [0] => break,
            [byte] => bytes.push(byte),
        }
    }
    Ok(bytes)
}

/// All lanes of a double register.
pub(super) fn doubles(context: &Context<'_>, slot: crate::registers::Slot) -> [u64; WARP] {
    // SAFETY: lowering gives the operand a double register in the bound frame; there are 32 lanes.
    unsafe { *context.slot::<[u64; WARP]>(slot) }
}
