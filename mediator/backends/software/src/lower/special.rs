//! Special registers by name.

use super::frame::Class;
use super::lowering::Lowering;
use super::refusal::Result;
use crate::exec::special::{self, Special};
use crate::exec::unary;
use crate::program::Exec;
use crate::registers::Slot;

/// The value of a special register, in a scratch register of the class wanted; `None` if `name` is
/// not one.
pub(super) fn read(cx: &mut Lowering<'_, '_>, name: &str, wanted: Class) -> Result<Option<Slot>> {
    let (execute, register, class) = match name {
        "%clock64" => (special::clock as Exec, Special::Zero, Class::Double),
        "%globaltimer" => (special::timer as _, Special::Zero, Class::Double),
        "%gridid" => return cx.constant(1, wanted).map(Some),
        "WARP_SZ" => return cx.constant(32, wanted).map(Some),
        _ => match word(name) {
            Some(register) => (special::word as _, register, Class::Word),
            None => return Ok(None),
        },
    };
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

fn word(name: &str) -> Option<Special> {
    use Special as S;
    Some(match name {
        "%tid.x" | "%tid" => S::ThreadX,
        "%tid.y" => S::ThreadY,
        "%tid.z" => S::ThreadZ,
        "%ntid.x" | "%ntid" => S::ThreadsX,
        "%ntid.y" => S::ThreadsY,
        "%ntid.z" => S::ThreadsZ,
        "%ctaid.x" | "%ctaid" | "%clusterid.x" => S::BlockX,
        "%ctaid.y" | "%clusterid.y" => S::BlockY,
        "%ctaid.z" | "%clusterid.z" => S::BlockZ,
        "%nctaid.x" | "%nctaid" | "%nclusterid.x" => S::BlocksX,
        "%nctaid.y" | "%nclusterid.y" => S::BlocksY,
        "%nctaid.z" | "%nclusterid.z" => S::BlocksZ,
        "%laneid" => S::Lane,
        "%warpid" => S::Warp,
        "%nwarpid" => S::Warps,
        "%smid" => S::Multiprocessor,
        "%nsmid" => S::Multiprocessors,
        // A block is a cluster of its own.
        "%cluster_ctaid.x" | "%cluster_ctaid.y" | "%cluster_ctaid.z" | "%cluster_ctarank" => {
            S::Zero
        }
        "%cluster_nctaid.x" | "%cluster_nctaid.y" | "%cluster_nctaid.z" | "%cluster_nctarank" => {
            S::One
        }
        "%tid.w" | "%ctaid.w" => S::Zero,
        "%ntid.w" | "%nctaid.w" => S::One,
        "%lanemask_eq" => S::MaskEqual,
        "%lanemask_le" => S::MaskLessEqual,
        "%lanemask_lt" => S::MaskLess,
        "%lanemask_ge" => S::MaskGreaterEqual,
        "%lanemask_gt" => S::MaskGreater,
        "%dynamic_smem_size" => S::DynamicShared,
        "%total_smem_size" | "%aggr_smem_size" => S::TotalShared,
        "%clock" | "%globaltimer_lo" => S::ClockLow,
        "%clock_hi" | "%globaltimer_hi" => S::ClockHigh,
        _ => return None,
    })
}
