//! Handles: numbers that stand for objects of a session. A stale handle is detected.

use std::collections::VecDeque;

/// The most slots of a table. The low half of a handle is the slot's number plus one, and no handle
/// may be zero or [`causeway_protocol::message::PREVIOUS`].
const SLOTS_MAX: usize = 0xfffe;

/// Objects by handle. A handle is a slot number and the slot's generation, which changes on
/// removal.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    /// Oldest first, so that a slot's generation wraps around as late as possible.
    free: VecDeque<u16>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u16,
    value: Option<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
        }
    }
}

impl<T> Table<T> {
    /// Stores `value` and returns its handle, or returns the value if the table is full.
    pub fn insert(&mut self, value: T) -> Result<u32, T> {
        if let Some(index) = self.free.pop_front() {
            let slot = &mut self.slots[usize::from(index)];
            slot.value = Some(value);
            return Ok(handle(index, slot.generation));
        }
        let index = match u16::try_from(self.slots.len()) {
            Ok(index) if usize::from(index) < SLOTS_MAX => index,
            _ => return Err(value),
        };
        self.slots.push(Slot {
            generation: 0,
            value: Some(value),
        });
        Ok(handle(index, 0))
    }

    pub fn get(&self, handle: u32) -> Option<&T> {
        let slot = self.slots.get(index(handle)?)?;
        slot.value
            .as_ref()
            .filter(|_| slot.generation == generation(handle))
    }

    pub fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        self.slot(handle)?.value.as_mut()
    }

    pub fn remove(&mut self, handle: u32) -> Option<T> {
        let slot = self.slot(handle)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push_back(index(handle)? as u16);
        Some(value)
    }

    fn slot(&mut self, handle: u32) -> Option<&mut Slot<T>> {
        let slot = self.slots.get_mut(index(handle)?)?;
        (slot.generation == generation(handle)).then_some(slot)
    }

    /// Iterates over all objects with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let value = slot.value.as_ref()?;
            Some((handle(index as u16, slot.generation), value))
        })
    }

    /// Iterates over all objects, so that the caller can modify them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }
}

fn handle(index: u16, generation: u16) -> u32 {
    u32::from(generation) << 16 | (u32::from(index) + 1)
}

fn index(handle: u32) -> Option<usize> {
    (handle as u16).checked_sub(1).map(usize::from)
}

fn generation(handle: u32) -> u16 {
    (handle >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_protocol::message::PREVIOUS;

    #[test]
    fn a_removed_handle_stays_invalid_when_its_slot_is_used_again() {
        let mut table = Table::default();
        let first = table.insert("a").unwrap();
        assert_eq!(table.get(first), Some(&"a"));
        assert_eq!(table.remove(first), Some("a"));
        let second = table.insert("b").unwrap();
        assert_ne!(first, second);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get_mut(second), Some(&mut "b"));
    }

    #[test]
    fn no_handle_is_zero_or_previous_and_a_full_table_says_so() {
        let mut table = Table::default();
        for n in 0..SLOTS_MAX {
            let handle = table.insert(n).unwrap();
            assert!(handle != 0 && handle != PREVIOUS);
        }
        assert_eq!(table.insert(7), Err(7));
        assert_eq!(table.get(0), None);
        assert_eq!(table.get(PREVIOUS), None);
        assert_eq!(table.iter().count(), SLOTS_MAX);
    }
}
