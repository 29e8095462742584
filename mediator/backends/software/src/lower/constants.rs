//! Constants of a kernel: each a register whose lanes are all the same, shared by everybody.

use std::collections::HashMap;

use super::frame::Class;
use super::refusal::{Refusal, Result};
use crate::registers::{Row, Slot, WARP};

/// Rows of constants of a kernel, at most.
const ROWS_MAX: usize = (4 << 20) / size_of::<Row>();

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Value(u64),
    DynamicShared(i64),
}

/// The constants of a kernel under construction.
#[derive(Debug, Default)]
pub(super) struct Constants {
    rows: Vec<Row>,
    known: HashMap<(Key, Class), Slot>,
}

impl Constants {
    /// Returns the number of rows so far.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns a register in which all lanes hold `value`.
    pub(super) fn value(&mut self, value: u64, class: Class, line: u32) -> Result<Slot> {
        self.slot(Key::Value(value), value, class, line)
    }

    /// Returns a register in which all lanes will hold an address in dynamic shared memory. Where
    /// this memory starts is known only at the end.
    pub(super) fn dynamic_shared(&mut self, offset: i64, class: Class, line: u32) -> Result<Slot> {
        self.slot(Key::DynamicShared(offset), 0, class, line)
    }

    /// Gives dynamic shared memory its start, and the constants away.
    pub(super) fn finish(mut self, dynamic_shared_start: u32) -> Vec<Row> {
        for ((key, class), slot) in &self.known {
            if let Key::DynamicShared(offset) = key {
                let value = i64::from(dynamic_shared_start).wrapping_add(*offset);
                fill(
                    &mut self.rows[slot.offset() / size_of::<Row>()..],
                    value.cast_unsigned(),
                    *class,
                );
            }
        }
        // Spare rows, for the same reason as those at the end of a frame.
        self.rows.extend([Row([0; WARP]); 4]);
        self.rows
    }

    fn slot(&mut self, key: Key, value: u64, class: Class, line: u32) -> Result<Slot> {
        if let Some(slot) = self.known.get(&(key, class)) {
            return Ok(*slot);
        }
        if self.rows.len() >= ROWS_MAX {
            let reason = format!("the kernel uses more than {ROWS_MAX} different constants");
            return Err(Refusal::new(line, reason));
        }
        let start = self.rows.len();
        let offset = u32::try_from(start * size_of::<Row>()).unwrap_or(0);
        let rows = if class == Class::Double { 2 } else { 1 };
        self.rows.resize(start + rows, Row([0; WARP]));
        fill(&mut self.rows[start..], value, class);
        let slot = Slot::constant(offset);
        self.known.insert((key, class), slot);
        Ok(slot)
    }
}

fn fill(rows: &mut [Row], value: u64, class: Class) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    match class {
        Class::Double => {
            for row in &mut rows[..2] {
                row.0 = std::array::from_fn(|word| if word % 2 == 0 { low } else { high });
            }
        }
        // A predicate is a mask of all lanes.
        Class::Predicate => rows[0].0 = [u32::from(value != 0).wrapping_neg(); WARP],
        Class::Word | Class::Quad => rows[0].0 = [low; WARP],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_constants_share_a_slot_and_doubles_have_two_rows() {
        let mut constants = Constants::default();
        let word = constants.value(7, Class::Word, 1).unwrap();
        let double = constants.value(7 | 9 << 32, Class::Double, 1).unwrap();
        let dynamic = constants.dynamic_shared(-4, Class::Word, 1).unwrap();
        assert_eq!(constants.value(7, Class::Word, 2).unwrap(), word);
        let rows = constants.finish(64);
        assert_eq!(rows.len(), 4 + 4);
        assert_eq!(rows[0].0, [7; WARP]);
        assert_eq!(rows[double.offset() / 128].0[..4], [7, 9, 7, 9]);
        assert_eq!(rows[dynamic.offset() / 128].0, [60; WARP]);
    }
}
