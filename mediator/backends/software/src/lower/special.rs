//! Special registers by name.

use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::exec::special::{self, Special};
use crate::exec::unary;
use crate::program::Exec;
use crate::registers::Slot;

/// Returns a scratch register of class `wanted` with the value of the special register `name`;
/// `None` if no special register has the name.
pub(super) fn read(cx: &mut Lowering<'_, '_>, name: &str, wanted: Class) -> Result<Option<Slot>> {
    let (execute, register, class) = match name {
        "%clock64" => (special::clock as Exec, Special::Zero, Class::Double),
        "%globaltimer" => (special::timer as _, Special::Zero, Class::Double),
        "%gridid" => return cx.constant(1, wanted).map(Some),
        "WARP_SZ" => return cx.constant(32, wanted).map(Some),
        _ => match Special::from_modifier(name) {
            Some(register) => (special::word as _, register, Class::Word),
            None => return Ok(None),
        },
    };
    cx.program.meets |= matches!(register, Special::WorkspaceHigh | Special::WorkspaceLow);
    let slot = cx.scratch(class)?;
    cx.compute_with(execute, slot, &[], register as u64)?;
    let isa = cx.program.isa;
    let resized = match (class, wanted) {
        (Class::Word, Class::Double) => unary(isa, |a: u32| u64::from(a)),
        (Class::Double, Class::Word) => unary(isa, |a: u64| a as u32),
        _ if class == wanted => return Ok(Some(slot)),
        _ => return Err(cx.refuse(format!("special register `{name}` is not a predicate"))),
    };
    let target = cx.scratch(wanted)?;
    cx.compute(resized, target, &[slot])?;
    Ok(Some(target))
}
