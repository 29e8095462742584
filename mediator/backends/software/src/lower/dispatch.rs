//! From opcodes to the functions that lower them.

use super::form::Form;
use super::lowering::Lowering;
use super::refusal::Result;
use super::{
    arithmetic, atomics, bits, calls, compare, control, convert, copies, float, half, integer,
    matrix, mbarrier, memory, moves, surface, texture, video, warp,
};
use crate::ptx::ast::Instruction;

/// Modifiers of an instruction, at most; the longest forms of PTX have about ten.
const MODIFIERS_MAX: usize = 32;

/// Lowers the instructions of one opcode.
type Lower = fn(&mut Lowering<'_, '_>, Form<'_>) -> Result;

/// Lowers one instruction.
pub(super) fn instruction(cx: &mut Lowering<'_, '_>, instruction: &Instruction) -> Result {
    let form = Form::new(instruction);
    if instruction.modifiers.len() > MODIFIERS_MAX {
        return Err(form.refuse(format!("has more than {MODIFIERS_MAX} modifiers")));
    }
    match find(&instruction.opcode) {
        Some(lower) => lower(cx, form),
        None => Err(form.unsupported()),
    }
}

fn find(opcode: &str) -> Option<Lower> {
    Some(match opcode {
        "add" | "sub" => arithmetic::add_or_sub,
        "addc" | "subc" => integer::with_carry,
        "mul" => arithmetic::multiply,
        "mad" => arithmetic::multiply_add,
        "madc" => integer::multiply_add,
        "fma" => arithmetic::fused_multiply_add,
        "mul24" | "mad24" => integer::multiply_24,
        "div" => arithmetic::divide,
        "rem" => integer::divide,
        "abs" | "neg" => arithmetic::sign,
        "min" | "max" => arithmetic::extreme,
        "sad" => integer::sum_of_differences,
        "dp4a" | "dp2a" => integer::dot_product,
        "vadd2" | "vadd4" | "vsub2" | "vsub4" | "vavrg2" | "vavrg4" | "vabsdiff2" | "vabsdiff4"
        | "vmin2" | "vmin4" | "vmax2" | "vmax4" | "vset2" | "vset4" => video::packed,
        "rcp" | "sqrt" | "rsqrt" => float::root,
        "sin" | "cos" | "lg2" => float::approximate,
        "ex2" | "tanh" => half::approximate,
        "copysign" => float::copy_sign,
        "testp" => compare::test_property,
        "setp" => compare::set_predicate,
        "set" => compare::set,
        "selp" => compare::select,
        "slct" => compare::select_by_sign,
        "cvt" => convert::convert,
        "and" | "or" | "xor" | "not" => bits::logic,
        "cnot" => bits::logical_not,
        "lop3" => bits::three_inputs,
        "shl" | "shr" => bits::shift,
        "shf" => bits::funnel_shift,
        "prmt" => bits::permute,
        "bfe" => bits::extract,
        "bfi" => bits::insert,
        "bfind" => bits::find_leading,
        "brev" | "popc" | "clz" => bits::count_or_reverse,
        "bmsk" => bits::mask,
        "szext" => bits::extend,
        "fns" => bits::find_nth,
        "mov" => moves::copy,
        "cvta" => moves::convert_address,
        "isspacep" => moves::is_in_space,
        "mapa" | "getctarank" => moves::cluster_address,
        "ld" | "ldu" => memory::load,
        "st" => memory::store,
        "prefetch" | "prefetchu" | "discard" | "applypriority" => memory::hint,
        "atom" => atomics::with_result,
        "red" => atomics::without_result,
        "cp" => copies::asynchronous,
        "mbarrier" => mbarrier::barrier,
        "bra" => control::branch,
        "brx" => control::branch_indexed,
        "call" => calls::call,
        "ret" | "exit" => control::leave,
        "trap" | "brkpt" => control::trap,
        "bar" | "barrier" => control::barrier,
        "membar" | "fence" => control::fence,
        "nanosleep" => control::sleep,
        "pmevent" | "setmaxnreg" | "griddepcontrol" => control::nothing,
        "shfl" => warp::shuffle,
        "vote" => warp::vote,
        "match" => warp::match_lanes,
        "activemask" => warp::active_mask,
        "redux" => warp::reduce,
        "elect" => warp::elect,
        "mma" => matrix::multiply,
        "ldmatrix" => matrix::load,
        "stmatrix" => matrix::store,
        "movmatrix" => matrix::transpose,
        "tex" => texture::sample,
        "tld4" => texture::gather,
        "txq" | "suq" => texture::query,
        "suld" => surface::load,
        "sust" => surface::store,
        _ => return None,
    })
}
