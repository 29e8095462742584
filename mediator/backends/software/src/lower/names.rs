//! Names at module scope, of one module or of several that are linked (PTX ISA, "Linking
//! Directives"): which definition a name stands for in which module.

use std::collections::HashMap;

use super::refusal::{Refusal, Result};
use crate::ptx::ast::Linkage;

/// What a module knows about a name: the definition or declaration, as the index of one of many.
#[derive(Clone, Copy, Debug)]
struct Known {
    index: usize,
    input: usize,
    line: u32,
    standing: Standing,
}

/// Which of two definitions of a name counts: the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Defined elsewhere.
    Declared,
    /// `.weak`.
    Weak,
    /// `.common`, of so many bytes.
    Common(u64),
    /// The only definition.
    Sole,
}

/// A definition or a declaration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol<'a> {
    /// Number of the module among those that are linked, from 0.
    pub(super) input: usize,
    /// Line of the module's text, from 1.
    pub(super) line: u32,
    /// The name.
    pub(super) name: &'a str,
    /// Which modules know the name.
    pub(super) linkage: Linkage,
    /// Whether this is a definition.
    pub(super) defined: bool,
    /// Bytes of a variable, which count if it is `.common`.
    pub(super) bytes: u64,
}

/// The names of functions, or those of variables.
#[derive(Debug)]
pub(super) struct Names<'a> {
    /// Names that only one module knows, and those that it declares, module by module.
    inputs: Vec<HashMap<&'a str, Known>>,
    /// Definitions that all modules know.
    linked: HashMap<&'a str, Known>,
}

impl<'a> Names<'a> {
    /// Returns the names of `inputs` modules that have none yet.
    pub(super) fn new(inputs: usize) -> Self {
        Self {
            inputs: (0..inputs).map(|_| HashMap::new()).collect(),
            linked: HashMap::new(),
        }
    }

    /// Adds number `index` of the functions, or of the variables. Refuses a second definition of a
    /// name, unless the directives say which one counts.
    pub(super) fn add(&mut self, symbol: Symbol<'a>, index: usize) -> Result {
        let standing = match symbol.linkage {
            _ if !symbol.defined => Standing::Declared,
            Linkage::Weak => Standing::Weak,
            Linkage::Common => Standing::Common(symbol.bytes),
            _ => Standing::Sole,
        };
        let known = Known {
            index,
            input: symbol.input,
            line: symbol.line,
            standing,
        };
        let own = &mut self.inputs[symbol.input];
        if symbol.defined && symbol.linkage != Linkage::Static {
            let declared = Known {
                standing: Standing::Declared,
                ..known
            };
            own.entry(symbol.name).or_insert(declared);
            let inputs = self.inputs.len();
            insert(&mut self.linked, symbol.name, known, inputs)
        } else {
            insert(own, symbol.name, known, 1)
        }
    }

    /// Returns the index of the definition that `name` stands for in module `input`; that of a
    /// declaration if no module defines the name, and `None` if `input` does not declare it.
    pub(super) fn get(&self, input: usize, name: &str) -> Option<usize> {
        let own = self.inputs.get(input)?.get(name)?;
        if own.standing != Standing::Declared {
            return Some(own.index);
        }
        Some(self.linked.get(name).unwrap_or(own).index)
    }
}

fn insert<'a>(
    names: &mut HashMap<&'a str, Known>,
    name: &'a str,
    new: Known,
    inputs: usize,
) -> Result {
    let old = names.entry(name).or_insert(new);
    if old.index == new.index {
        return Ok(());
    }
    if old.standing == Standing::Sole && new.standing == Standing::Sole {
        let place = |known: &Known| match inputs {
            1 => format!("in line {}", known.line),
            _ => format!("in line {} of input {}", known.line, known.input + 1),
        };
        let (first, second) = (place(old), place(&new));
        let reason = format!("symbol `{name}` is defined twice: {first}, and {second}");
        return Err(Refusal::new(new.line, reason));
    }
    if new.standing > old.standing {
        *old = new;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(input: usize, linkage: Linkage, defined: bool, bytes: u64) -> Symbol<'static> {
        Symbol {
            input,
            line: 7,
            name: "x",
            linkage,
            defined,
            bytes,
        }
    }

    #[test]
    fn linkage_says_which_definition_counts() {
        use Linkage::{Common, Extern, Static, Visible, Weak};
        let mut names = Names::new(5);
        names.add(symbol(0, Extern, false, 0), 0).unwrap();
        assert_eq!(names.get(0, "x"), Some(0), "declared only");
        names.add(symbol(1, Weak, true, 0), 1).unwrap();
        names.add(symbol(2, Static, true, 0), 2).unwrap();
        assert_eq!(names.get(0, "x"), Some(1));
        assert_eq!(names.get(2, "x"), Some(2));
        assert_eq!(names.get(4, "x"), None, "not declared there");
        names.add(symbol(3, Common, true, 4), 3).unwrap();
        names.add(symbol(3, Common, true, 8), 4).unwrap();
        names.add(symbol(3, Common, true, 6), 5).unwrap();
        assert_eq!(names.get(1, "x"), Some(4));
        names.add(symbol(4, Visible, true, 0), 6).unwrap();
        names.add(symbol(1, Weak, true, 0), 7).unwrap();
        assert_eq!([0, 1, 3, 4].map(|i| names.get(i, "x")), [Some(6); 4]);
        let error = names.add(symbol(3, Visible, true, 0), 8).unwrap_err();
        assert!(error.reason.contains("`x` is defined twice"), "{error}");
        assert!(error.reason.contains("input 5"), "{error}");
        assert!(names.add(symbol(2, Static, true, 0), 9).is_err());
    }
}
