//! What names mean within a function: registers, variables and labels, block by block.

use std::collections::HashMap;

use super::frame::{Class, Frame};
use super::refusal::Result;
use crate::ptx::ast::{Registers, ScalarType};
use crate::registers::Slot;

/// A register that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register {
    /// Place of the register.
    pub(super) slot: Slot,
    /// Size and layout of the register.
    pub(super) class: Class,
}

/// Where a variable of a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// Offset in the shared memory of the block.
    Shared(u32),
    /// `.extern .shared`: where dynamic shared memory begins.
    DynamicShared,
    /// Offset in the local memory of the frame, and size.
    Local(u32, u32),
    /// Offset and size in the parameter block of the kernel.
    Parameter(u32, u32),
    /// A generic address: `.global` and `.const`.
    Generic(u64),
}

/// A declared group of registers. Slots are given to those that are used.
#[derive(Debug)]
struct Group {
    scalar: ScalarType,
    vector: u8,
    count: Option<u32>,
    slots: HashMap<(u32, u8), Slot>,
}

/// Names of a `{ }` block, or of the function as a whole.
#[derive(Debug, Default)]
struct Block {
    groups: HashMap<String, Group>,
    homes: HashMap<String, Home>,
    labels: HashMap<String, u32>,
    tables: HashMap<String, u32>,
}

/// The blocks around a statement, innermost last.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    blocks: Vec<Block>,
}

impl Scopes {
    /// Enters a block.
    pub(super) fn enter(&mut self) {
        self.blocks.push(Block::default());
    }

    /// Leaves a block.
    pub(super) fn leave(&mut self) {
        self.blocks.pop();
    }

    fn innermost(&mut self) -> &mut Block {
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        let last = self.blocks.len() - 1;
        &mut self.blocks[last]
    }

    /// Declares registers.
    pub(super) fn declare_registers(&mut self, registers: &Registers) {
        let group = Group {
            scalar: registers.scalar,
            vector: registers.vector,
            count: registers.count,
            slots: HashMap::new(),
        };
        self.innermost()
            .groups
            .insert(registers.name.clone(), group);
    }

    /// Declares a single register that has a place already.
    pub(super) fn declare_register_at(&mut self, registers: &Registers, slot: Slot) {
        self.declare_registers(registers);
        if let Some(group) = self.innermost().groups.get_mut(&registers.name) {
            group.slots.insert((0, 0), slot);
        }
    }

    /// Declares a variable.
    pub(super) fn declare_variable(&mut self, name: &str, home: Home) {
        self.innermost().homes.insert(name.to_owned(), home);
    }

    /// Declares a label of the innermost block.
    pub(super) fn declare_label(&mut self, name: &str, label: u32) {
        self.innermost().labels.insert(name.to_owned(), label);
    }

    /// Declares a table of branch targets.
    pub(super) fn declare_table(&mut self, name: &str, table: u32) {
        self.innermost().tables.insert(name.to_owned(), table);
    }

    /// Returns where the variable `name` is; `None` if no block declares it.
    pub(super) fn variable(&self, name: &str) -> Option<Home> {
        self.find(|block| block.homes.get(name))
    }

    /// Returns the label `name`; `None` if no block declares it.
    pub(super) fn label(&self, name: &str) -> Option<u32> {
        self.find(|block| block.labels.get(name))
    }

    /// Returns the table of branch targets `name`; `None` if no block declares it.
    pub(super) fn table(&self, name: &str) -> Option<u32> {
        self.find(|block| block.tables.get(name))
    }

    fn find<T: Copy>(&self, get: impl Fn(&Block) -> Option<&T>) -> Option<T> {
        self.blocks.iter().rev().find_map(get).copied()
    }

    /// Returns the register `name`, which may be an element (`%v.x`) of a vector register; `None`
    /// if no block declares it.
    pub(super) fn register(
        &mut self,
        frame: &mut Frame,
        name: &str,
        line: u32,
    ) -> Result<Option<Register>> {
        let (base, element) = split_element(name);
        for block in self.blocks.iter_mut().rev() {
            if let Some((group, index)) = block.find(name) {
                return group.register(frame, index, 0, line).map(Some);
            }
            if let Some(element) = element
                && let Some((group, index)) = block.find(base)
                && group.vector > 1
                && element < group.vector
            {
                return group.register(frame, index, element, line).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the number of elements of the vector register `name`; `None` if the name is not that
    /// of one.
    pub(super) fn vector_elements(&mut self, name: &str) -> Option<u8> {
        let mut blocks = self.blocks.iter_mut().rev();
        let (group, _) = blocks.find_map(|block| block.find(name))?;
        (group.vector > 1).then_some(group.vector)
    }
}

impl Block {
    /// The group of a name and the index in it: of the very name, or of a prefix followed by a
    /// number.
    fn find(&mut self, name: &str) -> Option<(&mut Group, u32)> {
        let key = self.key(name)?;
        let index = match name.len() {
            length if length == key.len() => 0,
            _ => name[key.len()..].parse().ok()?,
        };
        Some((self.groups.get_mut(&key)?, index))
    }

    fn key(&self, name: &str) -> Option<String> {
        if self
            .groups
            .get(name)
            .is_some_and(|group| group.count.is_none())
        {
            return Some(name.to_owned());
        }
        // A number of a u32 has ten digits at most; it is written without leading zeros.
        let digits = name.bytes().rev().take(10).take_while(u8::is_ascii_digit);
        (1..=digits.count()).find_map(|length| {
            let (prefix, number) = name.split_at(name.len() - length);
            let index: u32 = number.parse().ok()?;
            let group = self.groups.get(prefix)?;
            let canonical = length == 1 || !number.starts_with('0');
            (canonical && group.count.is_some_and(|count| index < count)).then(|| prefix.to_owned())
        })
    }
}

impl Group {
    fn register(
        &mut self,
        frame: &mut Frame,
        index: u32,
        element: u8,
        line: u32,
    ) -> Result<Register> {
        let class = Class::of(self.scalar);
        let slot = match self.slots.get(&(index, element)) {
            Some(slot) => *slot,
            None => {
                let slot = frame.register(class, line)?;
                self.slots.insert((index, element), slot);
                slot
            }
        };
        Ok(Register { slot, class })
    }
}

fn split_element(name: &str) -> (&str, Option<u8>) {
    match name.rsplit_once('.') {
        Some((base, "x" | "r")) => (base, Some(0)),
        Some((base, "y" | "g")) => (base, Some(1)),
        Some((base, "z" | "b")) => (base, Some(2)),
        Some((base, "w" | "a")) => (base, Some(3)),
        _ => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declare(scopes: &mut Scopes, name: &str, count: Option<u32>, vector: u8) {
        scopes.declare_registers(&Registers {
            scalar: ScalarType::U32,
            vector,
            name: name.into(),
            count,
            line: 1,
        });
    }

    #[test]
    fn names_are_found_innermost_first_and_by_number() {
        let (mut scopes, mut frame) = (Scopes::default(), Frame::new());
        declare(&mut scopes, "%r", Some(4_000_000_000), 1);
        declare(&mut scopes, "%r1_", Some(3), 1);
        declare(&mut scopes, "%v", None, 2);
        let mut find = |scopes: &mut Scopes, name: &str| {
            let found = scopes.register(&mut frame, name, 1).unwrap();
            found.map(|r| r.slot)
        };
        let outer = find(&mut scopes, "%r12").unwrap();
        assert_eq!(find(&mut scopes, "%r12"), Some(outer));
        assert_ne!(find(&mut scopes, "%r1_2"), Some(outer));
        assert_eq!(find(&mut scopes, "%r1_3"), None);
        assert_eq!(find(&mut scopes, "%r012"), None);
        assert_eq!(find(&mut scopes, "%r"), None);
        assert_ne!(find(&mut scopes, "%v.x"), find(&mut scopes, "%v.y"));
        assert_eq!(find(&mut scopes, "%v.z"), None);
        declare(&mut scopes, "%tid", None, 1);
        assert_eq!(find(&mut scopes, "%tid.x"), None, "no vector, no elements");
        scopes.enter();
        declare(&mut scopes, "%r12", None, 1);
        assert_ne!(find(&mut scopes, "%r12"), Some(outer));
        scopes.leave();
        assert_eq!(find(&mut scopes, "%r12"), Some(outer));
    }
}
