//! `mbarrier`: barriers that are objects in shared memory (PTX ISA, "Parallel Synchronization and
//! Communication Instructions: mbarrier"). The object is opaque to programs; here it is a word of
//! 64 bits that changes by one atomic operation:
//!
//! | bits | what |
//! |---|---|
//! | 0 to 19 | arrivals that the current phase still waits for |
//! | 20 to 39 | arrivals that the next phase will wait for |
//! | 40 to 60 | bytes of asynchronous copies that the current phase waits for, modulo 2^21 |
//! | 63 | parity of the current phase |
//!
//! Asynchronous copies are done at once, so that those that a barrier tracks have arrived.

use super::addresses::{Address, is_hint, space_of};
use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::exec::access::space;
use crate::exec::atomic::{NO_RESULT, atomic};
use crate::exec::{compare, unary};
use crate::program::{Exec, Op};
use crate::ptx::ast::{Operand, ScalarType};
use crate::registers::Slot;
use ScalarType as T;

/// Largest number of arrivals (PTX ISA, "mbarrier: size and count").
const COUNT_MAX: u64 = (1 << 20) - 1;
/// Bits of the number of bytes.
const BYTES_MASK: u64 = (1 << 21) - 1;
const NEXT_SHIFT: u32 = 20;
const BYTES_SHIFT: u32 = 40;
const PHASE: u64 = 1 << 63;

/// A barrier whose phases wait for `count` arrivals.
const fn new(count: u64) -> u64 {
    let count = count & COUNT_MAX;
    count | count << NEXT_SHIFT
}

/// Begins the next phase, if the current one waits for nothing any more.
const fn settled(state: u64) -> u64 {
    if state & COUNT_MAX != 0 || (state >> BYTES_SHIFT) & BYTES_MASK != 0 {
        return state;
    }
    let next = (state >> NEXT_SHIFT) & COUNT_MAX;
    (state & PHASE ^ PHASE) | new(next)
}

/// More bytes to wait for; fewer, if `bytes` is negative in 64 bits.
const fn expecting(state: u64, bytes: u64) -> u64 {
    let expected = (state >> BYTES_SHIFT).wrapping_add(bytes) & BYTES_MASK;
    state & !(BYTES_MASK << BYTES_SHIFT) | expected << BYTES_SHIFT
}

/// Fewer arrivals to wait for. More than there are left is undefined: it counts as all.
const fn arrived(state: u64, count: u64) -> u64 {
    let left = (state & COUNT_MAX).saturating_sub(count);
    settled(state & !COUNT_MAX | left)
}

/// The same, and they are not expected in later phases.
const fn dropped(state: u64, count: u64) -> u64 {
    let next = ((state >> NEXT_SHIFT) & COUNT_MAX).saturating_sub(count);
    arrived(
        state & !(COUNT_MAX << NEXT_SHIFT) | next << NEXT_SHIFT,
        count,
    )
}

/// `mbarrier`
pub(super) fn barrier(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let name = form.one_of(&OPERATIONS);
    let has_bytes = name != Some("expect_tx") && form.flag("expect_tx");
    let by_parity = form.flag("parity");
    form.discard(|m| is_hint(m) || m == "noComplete");
    let at = space_of(&mut form);
    form.scalar_of(&[T::B64])?;
    form.done()?;
    let name = name.ok_or_else(|| form.unsupported())?;
    match (name, form.instruction.operands.as_slice()) {
        ("inval", [_]) => Ok(()),
        ("pending_count", [count, state]) => {
            let state = cx.source(state, T::B64)?;
            let count = cx.destination(count, T::U32)?;
            let execute = unary(cx.program.isa, |state: u64| (state & COUNT_MAX) as u32);
            cx.compute(execute, count, &[state])
        }
        ("test_wait" | "try_wait", [done, address, phase] | [done, address, phase, _]) => {
            wait(cx, at, done, address, (phase, by_parity))
        }
        ("init" | "expect_tx" | "complete_tx", [address, given]) => {
            let given = widened(cx, given)?;
            change(cx, at, address, function(name, false), (NO_RESULT, given))
        }
        ("arrive" | "arrive_drop", [state, address, rest @ ..]) => {
            let given = match rest {
                [] if !has_bytes => cx.constant(1, Class::Double)?,
                [given] => widened(cx, given)?,
                _ => return Err(form.refuse("has the wrong number of operands")),
            };
            let state = match state {
                Operand::Sink => NO_RESULT,
                state => cx.destination(state, T::B64)?,
            };
            change(cx, at, address, function(name, has_bytes), (state, given))
        }
        _ => Err(form.refuse("has the wrong number of operands")),
    }
}

const OPERATIONS: [&str; 9] = [
    "init",
    "inval",
    "expect_tx",
    "complete_tx",
    "arrive",
    "arrive_drop",
    "test_wait",
    "try_wait",
    "pending_count",
];

/// Returns the atomic operation of an instruction, whose operand is a number of arrivals or bytes.
fn function(name: &str, has_bytes: bool) -> Exec {
    match (name, has_bytes) {
        ("init", _) => atomic::<u64, u64, _>(|_, count, _| new(count)),
        ("expect_tx", _) => atomic::<u64, u64, _>(|old, bytes, _| expecting(old, bytes)),
        ("complete_tx", _) => {
            atomic::<u64, u64, _>(|old, bytes, _| settled(expecting(old, bytes.wrapping_neg())))
        }
        ("arrive", false) => atomic::<u64, u64, _>(|old, count, _| arrived(old, count)),
        ("arrive", true) => {
            atomic::<u64, u64, _>(|old, bytes, _| arrived(expecting(old, bytes), 1))
        }
        (_, false) => atomic::<u64, u64, _>(|old, count, _| dropped(old, count)),
        (_, true) => atomic::<u64, u64, _>(|old, bytes, _| dropped(expecting(old, bytes), 1)),
    }
}

/// `cp.async.mbarrier.arrive`: the copies that the thread made before are done. With `.noinc`, this
/// is an arrival. Without it, the phase also waits for one arrival more, so nothing changes.
pub(super) fn copies_arrive(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    let counts = form.flag("noinc");
    let at = space_of(&mut form);
    form.scalar_of(&[T::B64])?;
    let [address] = form.operands()?;
    if !counts {
        return Ok(());
    }
    let one = cx.constant(1, Class::Double)?;
    change(cx, at, address, function("arrive", false), (NO_RESULT, one))
}

/// Returns a number of arrivals or bytes as 64 bits.
fn widened(cx: &mut Lowering<'_, '_>, operand: &Operand) -> Result<Slot> {
    let narrow = cx.source(operand, T::U32)?;
    let wide = cx.scratch(Class::Double)?;
    cx.compute(
        unary(cx.program.isa, |given: u32| u64::from(given)),
        wide,
        &[narrow],
    )?;
    Ok(wide)
}

/// Changes the object by an atomic operation; `state` gets what it was before.
fn change(
    cx: &mut Lowering<'_, '_>,
    at: u8,
    address: &Operand,
    execute: Exec,
    (state, given): (Slot, Slot),
) -> Result {
    let Address::Memory(memory) = cx.address(address, at)? else {
        return Err(cx.refuse("an mbarrier cannot be a parameter"));
    };
    if !matches!(memory.space, space::SHARED | space::GENERIC) {
        return Err(cx.refuse("an mbarrier must be in shared memory"));
    }
    cx.push(Op {
        dst: state,
        dst2: given,
        b: given,
        ..cx.access(memory, T::B64.bytes(), execute)
    })
}

/// Whether the phase is over that a state or a parity is of.
fn wait(
    cx: &mut Lowering<'_, '_>,
    at: u8,
    done: &Operand,
    address: &Operand,
    (phase, by_parity): (&Operand, bool),
) -> Result {
    let isa = cx.program.isa;
    let (current, unused) = (cx.scratch(Class::Double)?, cx.constant(0, Class::Double)?);
    let read = atomic::<u64, u64, _>(|state, _, _| state);
    change(cx, at, address, read, (current, unused))?;
    let truths = [
        cx.destination(done, T::Pred)?,
        cx.scratch(Class::Predicate)?,
    ];
    let (execute, scalar) = match by_parity {
        true => (
            compare(isa, |state: u64, parity: u32| {
                (state >> 63) as u32 != parity & 1
            }),
            T::U32,
        ),
        false => (
            compare(isa, |state: u64, of: u64| (state ^ of) & PHASE != 0),
            T::B64,
        ),
    };
    let phase = cx.source(phase, scalar)?;
    cx.compare(execute, truths, [current, phase])
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn phase(state: u64) -> u64 {
        state >> 63
    }

    #[test]
    fn a_phase_ends_with_its_last_arrival() {
        let mut state = new(3);
        for _ in 0..2 {
            let begun = phase(state);
            state = arrived(state, 1);
            assert_eq!((phase(state), state & COUNT_MAX), (begun, 2));
            state = arrived(state, 2);
            assert_eq!((phase(state), state & COUNT_MAX), (begun ^ 1, 3));
        }
    }

    #[test]
    fn who_has_left_is_not_waited_for() {
        let state = dropped(new(2), 1);
        let state = arrived(state, 1);
        assert_eq!((phase(state), state & COUNT_MAX), (1, 1));
        assert_eq!(phase(arrived(state, 1)), 0);
    }

    #[test]
    fn a_phase_waits_for_bytes_too() {
        let state = arrived(expecting(new(1), 64), 1);
        assert_eq!((phase(state), state & COUNT_MAX), (0, 0));
        let part = settled(expecting(state, 16_u64.wrapping_neg()));
        assert_eq!(phase(part), 0);
        let whole = settled(expecting(part, 48_u64.wrapping_neg()));
        assert_eq!((phase(whole), whole & COUNT_MAX), (1, 1));
    }
}
