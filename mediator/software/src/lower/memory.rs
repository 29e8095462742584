//! Loads and stores (PTX ISA, "ld", "st").

use super::Refusal;
use super::form::Form;
use super::frame::{Class, scalar_bytes};
use super::function::Lowering;
use super::moves::quad_half;
use super::scope::Home;
use crate::exec::access::{address_kind, space};
use crate::exec::{load as load_lanes, parameter, store as store_lanes, unary};
use crate::isa::Isa;
use crate::program::{Action, Exec, Op, Slot};
use crate::ptx::ast::{Operand, ScalarType};
use ScalarType as T;

/// An address operand, resolved.
#[derive(Clone, Copy, Debug)]
pub(super) enum Address {
    /// A kernel parameter at a constant offset.
    Parameter(u32),
    /// An address in a register, plus an offset.
    Memory {
        /// As [`space`] numbers them.
        space: u8,
        /// The register.
        slot: Slot,
        /// The register is a word.
        word: bool,
        /// Added to it.
        offset: i64,
    },
}

/// State space that an instruction names; generic if none.
pub(super) fn space_of(form: &mut Form<'_>) -> u8 {
    let named = form.one_of(&[
        "global",
        "const",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "param",
        "param::entry",
        "param::func",
    ]);
    match named {
        None => space::GENERIC,
        Some("global" | "const") => space::GLOBAL,
        Some("local") => space::LOCAL,
        Some(name) if name.starts_with("param") => space::PARAMETER,
        Some(_) => space::SHARED,
    }
}

/// Modifiers that say how memory is ordered or cached. Every access here is as ordered as x86 makes it,
/// which is enough for all but the fences, and caches are coherent.
pub(super) fn is_hint(modifier: &str) -> bool {
    const HINTS: [&str; 25] = [
        "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "nc", "ca", "cg",
        "cs", "lu", "cv", "wb", "wt", "cta", "cluster", "gpu", "sys", "mmio", "unified", "noftz",
        "async", "proxy", "alias",
    ];
    HINTS.contains(&modifier)
        || ["L1::", "L2::", "level::"]
            .iter()
            .any(|prefix| modifier.starts_with(prefix))
}

impl Lowering<'_, '_> {
    /// Resolves `[base + offset]`.
    pub(super) fn address(&mut self, operand: &Operand, named: u8) -> Result<Address, Refusal> {
        let (base, offset) = match operand {
            Operand::Memory { base, offset } => (base.as_deref(), *offset),
            _ => return Err(self.refuse("an address is not in brackets")),
        };
        let Some(name) = base else {
            let slot = self.constant(offset.cast_unsigned(), Class::Double)?;
            return Ok(Address::Memory {
                space: named,
                slot,
                word: false,
                offset: 0,
            });
        };
        if let Some(register) = self.register(name)? {
            return self.register_address(register, name, offset, named);
        }
        match self.variable_home(name)? {
            Some(home) => self.variable_address(home, offset, named),
            None => Err(self.refuse(format!("`{name}` is not declared"))),
        }
    }

    fn register_address(
        &mut self,
        register: super::scope::Register,
        name: &str,
        offset: i64,
        named: u8,
    ) -> Result<Address, Refusal> {
        let word = register.class == Class::Word;
        if !word && register.class != Class::Double {
            return Err(self.refuse(format!("register `{name}` cannot hold an address")));
        }
        // Parameters of a device function, and those for its callees, are in local memory.
        let space = if named == space::PARAMETER && !self.is_kernel {
            space::LOCAL
        } else {
            named
        };
        Ok(Address::Memory {
            space,
            slot: register.slot,
            word,
            offset,
        })
    }

    fn variable_address(&mut self, home: Home, offset: i64, named: u8) -> Result<Address, Refusal> {
        let own = match home {
            Home::Shared(_) | Home::DynamicShared => space::SHARED,
            Home::Local(..) => space::LOCAL,
            Home::Parameter(..) => space::PARAMETER,
            Home::Generic(_) => space::GLOBAL,
        };
        let matches = match named {
            space::GENERIC => true,
            space::PARAMETER => matches!(home, Home::Local(..) | Home::Parameter(..)),
            other => other == own,
        };
        if !matches {
            return Err(self.refuse("the variable is in another state space"));
        }
        if let Home::Parameter(at, _) = home {
            let at = i64::from(at).checked_add(offset);
            let at = at.and_then(|at| u32::try_from(at).ok());
            let outside = || self.refuse("the offset is outside the parameters");
            return at.map(Address::Parameter).ok_or_else(outside);
        }
        let slot = self.address_value(home, 0, Class::Double)?;
        Ok(Address::Memory {
            space: own,
            slot,
            word: false,
            offset,
        })
    }

    /// Adds the load of one element.
    pub(super) fn load_element(
        &mut self,
        address: Address,
        (scalar, class): (ScalarType, Class),
        dst: Slot,
        align_bytes: u32,
    ) -> Result<(), Refusal> {
        let isa = self.kernel.isa;
        match address {
            Address::Parameter(at) => {
                let bytes = self.kernel.parameter_bytes();
                if at.saturating_add(scalar_bytes(scalar)) > bytes {
                    return Err(self.refuse(format!(
                        "loads beyond the end of the parameters, which have {bytes} bytes"
                    )));
                }
                let op = Op {
                    dst,
                    imm: u64::from(at),
                    ..self.op(Action::Lanes(parameter_function(scalar, class)))
                };
                self.push(op)
            }
            Address::Memory {
                space,
                slot,
                word,
                offset,
            } => {
                let op = Op {
                    dst,
                    a: slot,
                    c: address_kind(space, word),
                    d: Slot(align_bytes - 1),
                    imm: offset.cast_unsigned(),
                    ..self.op(Action::Lanes(load_function(isa, scalar, class)))
                };
                self.push(op)
            }
        }
    }

    /// Adds the store of one element.
    pub(super) fn store_element(
        &mut self,
        address: Address,
        (scalar, class): (ScalarType, Class),
        source: Slot,
        align_bytes: u32,
    ) -> Result<(), Refusal> {
        let Address::Memory {
            space,
            slot,
            word,
            offset,
        } = address
        else {
            return Err(self.refuse("parameters of a kernel cannot be written"));
        };
        let execute = store_function(self.kernel.isa, scalar, class);
        let op = Op {
            a: slot,
            b: source,
            c: address_kind(space, word),
            d: Slot(align_bytes - 1),
            imm: offset.cast_unsigned(),
            ..self.op(Action::Lanes(execute))
        };
        self.push(op)
    }
}

impl Address {
    /// The same address some bytes further.
    pub(super) fn further(self, bytes: u32) -> Self {
        match self {
            Self::Parameter(at) => Self::Parameter(at.saturating_add(bytes)),
            Self::Memory {
                space,
                slot,
                word,
                offset,
            } => Self::Memory {
                space,
                slot,
                word,
                offset: offset.wrapping_add(i64::from(bytes)),
            },
        }
    }
}

fn load_function(isa: Isa, scalar: ScalarType, class: Class) -> Exec {
    match (scalar, class) {
        (T::U8 | T::B8 | T::Pred, Class::Double) => load_lanes::<u8, u64>(isa),
        (T::S8, Class::Double) => load_lanes::<i8, i64>(isa),
        (T::S16, Class::Double) => load_lanes::<i16, i64>(isa),
        (T::U16 | T::B16 | T::F16 | T::BF16, Class::Double) => load_lanes::<u16, u64>(isa),
        (T::S32, Class::Double) => load_lanes::<i32, i64>(isa),
        (T::U32 | T::B32 | T::F32 | T::F16x2 | T::BF16x2, Class::Double) => {
            load_lanes::<u32, u64>(isa)
        }
        (_, Class::Double) => load_lanes::<u64, u64>(isa),
        (T::U8 | T::B8 | T::Pred, _) => load_lanes::<u8, u32>(isa),
        (T::S8, _) => load_lanes::<i8, i32>(isa),
        (T::S16, _) => load_lanes::<i16, i32>(isa),
        (T::U16 | T::B16 | T::F16 | T::BF16, _) => load_lanes::<u16, u32>(isa),
        _ => load_lanes::<u32, u32>(isa),
    }
}

fn parameter_function(scalar: ScalarType, class: Class) -> Exec {
    match (scalar, class) {
        (T::U8 | T::B8 | T::Pred, Class::Double) => parameter::<u8, u64>(),
        (T::S8, Class::Double) => parameter::<i8, i64>(),
        (T::S16, Class::Double) => parameter::<i16, i64>(),
        (T::U16 | T::B16 | T::F16 | T::BF16, Class::Double) => parameter::<u16, u64>(),
        (T::S32, Class::Double) => parameter::<i32, i64>(),
        (T::U32 | T::B32 | T::F32 | T::F16x2 | T::BF16x2, Class::Double) => parameter::<u32, u64>(),
        (_, Class::Double) => parameter::<u64, u64>(),
        (T::U8 | T::B8 | T::Pred, _) => parameter::<u8, u32>(),
        (T::S8, _) => parameter::<i8, i32>(),
        (T::S16, _) => parameter::<i16, i32>(),
        (T::U16 | T::B16 | T::F16 | T::BF16, _) => parameter::<u16, u32>(),
        _ => parameter::<u32, u32>(),
    }
}

fn store_function(isa: Isa, scalar: ScalarType, class: Class) -> Exec {
    match (scalar_bytes(scalar), class) {
        (1, Class::Double) => store_lanes::<u64, u8>(isa),
        (2, Class::Double) => store_lanes::<u64, u16>(isa),
        (4, Class::Double) => store_lanes::<u64, u32>(isa),
        (_, Class::Double) => store_lanes::<u64, u64>(isa),
        (1, _) => store_lanes::<u32, u8>(isa),
        (2, _) => store_lanes::<u32, u16>(isa),
        _ => store_lanes::<u32, u32>(isa),
    }
}

/// The operands of a vector access, or the one operand of a scalar access.
fn elements<'o>(
    cx: &mut Lowering<'_, '_>,
    operand: &'o Operand,
    count: usize,
) -> Result<std::borrow::Cow<'o, [Operand]>, Refusal> {
    let elements: std::borrow::Cow<'o, [Operand]> = match operand {
        Operand::Vector(elements) => elements.as_slice().into(),
        Operand::Name(name) if count > 1 && cx.scopes.vector_elements(name).is_some() => {
            let element = |suffix| Operand::Name(format!("{name}.{suffix}"));
            ["x", "y", "z", "w"][..count.min(4)]
                .iter()
                .map(element)
                .collect()
        }
        single => std::slice::from_ref(single).into(),
    };
    if elements.len() != count {
        let reason = format!("{} registers are given for {count} values", elements.len());
        return Err(cx.refuse(reason));
    }
    Ok(elements)
}

/// What `ld` and `st` have in common.
struct Shape {
    space: u8,
    count: usize,
    scalar: ScalarType,
    cached: bool,
}

fn shape(form: &mut Form<'_>) -> Result<Shape, Refusal> {
    let space = space_of(form);
    let cached = form
        .instruction
        .modifiers
        .iter()
        .any(|m| m == "L2::cache_hint");
    form.discard(is_hint);
    let count: usize = match form.one_of(&["v2", "v4", "v8"]) {
        None => 1,
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
    };
    let scalar = form.scalar()?;
    form.done()?;
    if scalar == T::Pred {
        return Err(form.refuse("moves a predicate, which memory cannot hold"));
    }
    if count as u32 * scalar_bytes(scalar) > 32 {
        return Err(form.refuse("moves more than 32 bytes"));
    }
    Ok(Shape {
        space,
        count,
        scalar,
        cached,
    })
}

/// The two operands of an access; the cache policy that may follow means nothing here.
fn pair<'a>(form: &Form<'a>, shape: &Shape) -> Result<(&'a Operand, &'a Operand), Refusal> {
    match form.instruction.operands.as_slice() {
        [first, second] => Ok((first, second)),
        [first, second, _] if shape.cached => Ok((first, second)),
        other => Err(form.refuse(format!("wants 2 operands, not {}", other.len()))),
    }
}

/// `ld`, `ldu`
pub(super) fn load(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result<(), Refusal> {
    let shape = shape(&mut form)?;
    let (destinations, address) = pair(&form, &shape)?;
    let destinations = elements(cx, destinations, shape.count)?;
    let mut address = cx.address(address, shape.space)?;
    let bytes = scalar_bytes(shape.scalar);
    let mut align = bytes * shape.count as u32;
    if let Address::Memory { slot, word, .. } = &mut address
        && shape.count > 1
    {
        *slot = kept(cx, *slot, *word)?;
    }
    for (index, destination) in (0..).zip(destinations.iter()) {
        let at = address.further(index * bytes);
        load_one(cx, at, shape.scalar, destination, align)?;
        // The first element stands for the alignment of the whole.
        align = bytes;
    }
    Ok(())
}

/// A copy of an address register: one of the destinations of a vector load may be that very register.
fn kept(cx: &mut Lowering<'_, '_>, slot: Slot, word: bool) -> Result<Slot, Refusal> {
    let isa = cx.kernel.isa;
    if slot.bank() != 0 {
        return Ok(slot);
    }
    let copy = cx.scratch(if word { Class::Word } else { Class::Double })?;
    let execute = if word {
        unary(isa, |a: u32| a)
    } else {
        unary(isa, |a: u64| a)
    };
    cx.compute(execute, copy, &[slot])?;
    Ok(copy)
}

fn load_one(
    cx: &mut Lowering<'_, '_>,
    address: Address,
    scalar: ScalarType,
    destination: &Operand,
    align: u32,
) -> Result<(), Refusal> {
    if scalar == T::B128 {
        let dst = cx.destination(destination, scalar)?;
        let double = (T::B64, Class::Double);
        cx.load_element(address, double, quad_half(dst, 0), align)?;
        return cx.load_element(address.further(8), double, quad_half(dst, 1), 8);
    }
    let class = Class::of(scalar);
    let (dst, class) = match cx.any_destination(destination)? {
        Some(register) if register.class == Class::Double => (register.slot, Class::Double),
        Some(register) if register.class == class => (register.slot, class),
        None => (cx.scratch(class)?, class),
        Some(_) => (cx.destination(destination, scalar)?, class),
    };
    cx.load_element(address, (scalar, class), dst, align)
}

/// `st`
pub(super) fn store(cx: &mut Lowering<'_, '_>, mut form: Form<'_>) -> Result<(), Refusal> {
    let shape = shape(&mut form)?;
    let (address, sources) = pair(&form, &shape)?;
    let sources = elements(cx, sources, shape.count)?;
    let address = cx.address(address, shape.space)?;
    let bytes = scalar_bytes(shape.scalar);
    let mut align = bytes * shape.count as u32;
    for (index, operand) in (0..).zip(sources.iter()) {
        let at = address.further(index * bytes);
        if shape.scalar == T::B128 {
            let source = cx.source(operand, T::B128)?;
            let double = (T::B64, Class::Double);
            cx.store_element(at, double, quad_half(source, 0), align)?;
            cx.store_element(at.further(8), double, quad_half(source, 1), 8)?;
        } else {
            let source = cx.source_relaxed(operand, shape.scalar)?;
            let class = Class::of(shape.scalar);
            cx.store_element(at, (shape.scalar, class), source, align)?;
        }
        align = bytes;
    }
    Ok(())
}

/// `prefetch` and other hints: nothing to do.
pub(super) fn hint(_cx: &mut Lowering<'_, '_>, _form: Form<'_>) -> Result<(), Refusal> {
    Ok(())
}
