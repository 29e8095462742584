//! `cp.async`: copies from global to shared memory. They are done at once, so that waiting for them
//! is nothing.

use super::addresses::{Address, is_hint};
use super::form::Form;
use super::frame::Class;
use super::lowering::Lowering;
use super::mbarrier;
use super::refusal::Result;
use crate::exec::access::space;
use crate::exec::{compare, predicate, select};
use crate::ptx::ast::{Immediate, Operand, ScalarType};
use crate::registers::{Guard, Slot};
use ScalarType as T;

/// `cp.async` and the instructions that go with it
pub(super) fn asynchronous(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result {
    if !form.flag("async") {
        return Err(form.unsupported());
    }
    if form.flag("commit_group") || form.flag("wait_group") || form.flag("wait_all") {
        return form.done();
    }
    if form.flag("mbarrier") && form.flag("arrive") {
        return mbarrier::copies_arrive(cx, form);
    }
    form.discard(|m| is_hint(m) || m == "shared" || m == "shared::cta" || m == "global");
    form.done()?;
    let (to, from, size, given) = match form.instruction.operands.as_slice() {
        [to, from, size] => (to, from, size, None),
        [to, from, size, given] => (to, from, size, Some(given)),
        _ => return Err(form.unsupported()),
    };
    let Operand::Immediate(Immediate::Integer(bytes @ (4 | 8 | 16))) = size else {
        return Err(form.refuse("must copy 4, 8 or 16 bytes"));
    };
    let bytes = *bytes as u32;
    let to = cx.address(to, space::SHARED)?;
    let from = cx.address(from, space::GLOBAL)?;
    match given {
        None => {
            let value = cx.scratch(Class::Word)?;
            for at in (0..bytes).step_by(4) {
                let align = if at == 0 { bytes } else { 4 };
                let word = (T::B32, Class::Word);
                cx.load_element(from.further(at), word, value, align)?;
                cx.store_element(to.further(at), word, value, align)?;
            }
            Ok(())
        }
        Some(given) => padded(cx, to, from, bytes, given),
    }
}

/// With a source size: bytes beyond it are not loaded, and stored as zero.
fn padded(
    cx: &mut Lowering<'_, '_>,
    to: Address,
    from: Address,
    bytes: u32,
    given: &Operand,
) -> Result {
    let isa = cx.program.isa;
    let given = cx.source(given, T::U32)?;
    let value = cx.scratch(Class::Word)?;
    let (holds, unused) = (cx.scratch(Class::Predicate)?, cx.scratch(Class::Predicate)?);
    let zero = cx.constant(0, Class::Word)?;
    for at in 0..bytes {
        let index = cx.constant(u64::from(at), Class::Word)?;
        let within = compare(isa, |at: u32, given: u32| at < given);
        cx.compare(within, [holds, unused], [index, given])?;
        cx.guarded_load(holds, from.further(at), value)?;
        cx.compute(select::<u32>(isa), value, &[value, zero, holds])?;
        let align = if at == 0 { bytes } else { 1 };
        cx.store_element(to.further(at), (T::B8, Class::Word), value, align)?;
    }
    Ok(())
}

impl Lowering<'_, '_> {
    /// Adds the load of a byte for those lanes of the instruction for which `holds` is true.
    fn guarded_load(&mut self, holds: Slot, address: Address, dst: Slot) -> Result {
        let outer = self.guard.take();
        let mut slot = holds;
        if let Some(guard) = outer {
            // Lanes that do not execute the instruction have not computed `holds`.
            slot = self.scratch(Class::Predicate)?;
            let invert = u64::from(guard.invert & 1);
            self.compute_with(predicate::and, slot, &[guard.slot, holds], invert)?;
        }
        self.guard = Some(Guard { slot, invert: 0 });
        let loaded = self.load_element(address, (ScalarType::B8, Class::Word), dst, 1);
        self.guard = outer;
        loaded
    }
}
