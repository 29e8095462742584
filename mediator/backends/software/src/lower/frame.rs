//! Slots of a frame: handed out as names are first used.

use super::refusal::{Refusal, Result};
use crate::ptx::ast::ScalarType;
use crate::registers::{FRAME_HEADER_BYTES, Slot, WORD_BYTES};

/// Registers of one frame in bytes, at most.
const FRAME_BYTES_MAX: u32 = 64 << 20;
/// Local memory of one frame in bytes, at most.
const LOCAL_BYTES_MAX: u32 = 512 << 10;

/// Size and layout of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// One bit a lane.
    Predicate,
    /// 32 bits a lane; narrower types too.
    Word,
    /// 64 bits a lane.
    Double,
    /// Two doubles.
    Quad,
}

impl Class {
    /// Returns the class of the registers that hold a type.
    pub(super) const fn of(scalar: ScalarType) -> Self {
        use ScalarType as T;
        match scalar {
            T::Pred => Self::Predicate,
            T::S64 | T::U64 | T::B64 | T::F64 => Self::Double,
            T::B128 => Self::Quad,
            _ => Self::Word,
        }
    }

    /// Returns the bits of a lane, for messages.
    pub(super) const fn bits(self) -> u32 {
        match self {
            Self::Predicate => 1,
            Self::Word => 32,
            Self::Double => 64,
            Self::Quad => 128,
        }
    }

    const fn row_bytes(self) -> u32 {
        match self {
            Self::Predicate => 4,
            Self::Word => WORD_BYTES,
            Self::Double => 2 * WORD_BYTES,
            Self::Quad => 4 * WORD_BYTES,
        }
    }
}

/// The frame of a function under construction.
#[derive(Debug)]
pub(super) struct Frame {
    registers: u32,
    predicates_left: u32,
    next_predicate: u32,
    local: u32,
    scratch: Vec<(Class, Slot)>,
    scratch_used: usize,
}

impl Frame {
    /// Creates an empty frame.
    pub(super) fn new() -> Self {
        Self {
            registers: FRAME_HEADER_BYTES,
            predicates_left: 0,
            next_predicate: 0,
            local: 0,
            scratch: Vec::new(),
            scratch_used: 0,
        }
    }

    /// Returns the bytes of the registers of a warp. The spare bytes at the end are a second line
    /// of defence: should an operation ever be given a register of a smaller class than it works
    /// on, it reaches nothing outside its own frame.
    pub(super) fn registers(&self) -> u32 {
        self.registers + Class::Quad.row_bytes()
    }

    /// Returns the bytes of local memory of a thread, a multiple of 16.
    pub(super) fn local(&self) -> u32 {
        self.local.next_multiple_of(16)
    }

    /// Returns a new register.
    pub(super) fn register(&mut self, class: Class, line: u32) -> Result<Slot> {
        if self.registers > FRAME_BYTES_MAX {
            let kib = FRAME_BYTES_MAX >> 10;
            let reason = format!("the function uses more registers than fit in {kib} KiB a warp");
            return Err(Refusal::new(line, reason));
        }
        if class == Class::Predicate {
            return Ok(self.predicate());
        }
        let slot = Slot(self.registers);
        self.registers += class.row_bytes();
        Ok(slot)
    }

    fn predicate(&mut self) -> Slot {
        if self.predicates_left == 0 {
            self.next_predicate = self.registers;
            self.registers += WORD_BYTES;
            self.predicates_left = WORD_BYTES / Class::Predicate.row_bytes();
        }
        let slot = Slot(self.next_predicate);
        self.next_predicate += Class::Predicate.row_bytes();
        self.predicates_left -= 1;
        slot
    }

    /// Returns a register that is free again at the end of the instruction.
    pub(super) fn scratch(&mut self, class: Class, line: u32) -> Result<Slot> {
        let free = self.scratch[self.scratch_used..]
            .iter()
            .position(|(c, _)| *c == class);
        let index = match free {
            Some(ahead) => self.scratch_used + ahead,
            None => {
                let slot = self.register(class, line)?;
                self.scratch.push((class, slot));
                self.scratch.len() - 1
            }
        };
        self.scratch.swap(self.scratch_used, index);
        self.scratch_used += 1;
        Ok(self.scratch[self.scratch_used - 1].1)
    }

    /// Makes all scratch registers free.
    pub(super) fn end_instruction(&mut self) {
        self.scratch_used = 0;
    }

    /// Takes `bytes` bytes of local memory, and returns their offset in the frame.
    pub(super) fn local_memory(&mut self, bytes: u64, align: u32, line: u32) -> Result<u32> {
        place(&mut self.local, bytes, align, LOCAL_BYTES_MAX).ok_or_else(|| {
            let reason =
                format!("local memory of the function exceeds {LOCAL_BYTES_MAX} bytes a thread");
            Refusal::new(line, reason)
        })
    }
}

/// Takes `bytes` bytes at the next multiple of `align` from `used`, up to `max`; gives their
/// offset.
pub(super) fn place(used: &mut u32, bytes: u64, align: u32, max: u32) -> Option<u32> {
    let offset = used.checked_next_multiple_of(align.max(1))?;
    let end = u64::from(offset).checked_add(bytes)?;
    if end > u64::from(max) {
        return None;
    }
    *used = u32::try_from(end).ok()?;
    Some(offset)
}

/// Returns the lower (`half` is 0) or upper (1) double of a quad.
pub(super) const fn quad_half(slot: Slot, half: u32) -> Slot {
    Slot(slot.0 + half * 2 * WORD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_do_not_overlap() {
        let mut frame = Frame::new();
        let mut taken = vec![(0, FRAME_HEADER_BYTES)];
        for class in [
            Class::Word,
            Class::Predicate,
            Class::Double,
            Class::Predicate,
            Class::Quad,
            Class::Word,
        ] {
            let slot = frame.register(class, 1).unwrap();
            taken.push((slot.0, slot.0 + class.row_bytes()));
        }
        taken.sort_unstable();
        assert!(taken.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert!(taken.last().unwrap().1 <= frame.registers());
    }

    #[test]
    fn scratch_is_reused_by_the_next_instruction_only() {
        let mut frame = Frame::new();
        let first = frame.scratch(Class::Word, 1).unwrap();
        let second = frame.scratch(Class::Word, 1).unwrap();
        assert_ne!(first, second);
        frame.end_instruction();
        assert_eq!(frame.scratch(Class::Word, 2).unwrap(), first);
    }

    #[test]
    fn local_memory_is_limited_whatever_the_numbers() {
        let mut frame = Frame::new();
        assert_eq!(frame.local_memory(3, 1, 1).unwrap(), 0);
        assert_eq!(frame.local_memory(8, 8, 1).unwrap(), 8);
        frame.local_memory(u64::MAX, 8, 1).unwrap_err();
        frame.local_memory(1 << 40, 1 << 31, 1).unwrap_err();
    }
}
