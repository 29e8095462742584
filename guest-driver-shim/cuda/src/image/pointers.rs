//! Managed variables of PTX text (PTX ISA, "Variable and Function Attribute Directive:
//! .attribute").
//!
//! A device has the variables of a module in memory of its own, where the CPU does not reach them.
//! So the text that a device gets has a variable with a pointer beside each managed one, and code
//! that names the managed variable uses the pointer. What loads the text allocates managed memory
//! for the variable, and stores its address in the pointer
//! (`docs/decisions/0048-managed-variables.md`).
//!
//! ```text
//! .global .attribute(.managed) .u32 x = 5;    .global .u32 x = 5;
//!                                             .global .align 8 .u64 causeway_managed_x = x;
//! @%p ld.global.u32 %r1, [x+4];               { .reg .b64 %causeway_managed<1>;
//!                                             ld.global.nc.u64 %causeway_managed0,
//!                                                 [causeway_managed_x];
//!                                             @%p ld.global.u32 %r1, [%causeway_managed0+4]; }
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use super::declarations::{Declared, Item, is_local, items, matching, names};
use super::ptx::{Token, tokens};

/// What the names of pointers begin with.
const PREFIX: &str = "causeway_managed_";
/// Linkages of variables.
const LINKAGES: [&str; 4] = [".extern", ".visible", ".weak", ".common"];

/// Returns the name of the variable with the pointer to a managed variable.
pub(crate) fn pointer_name(variable: &str) -> String {
    format!("{PREFIX}{variable}")
}

/// A managed variable that a text defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Defined {
    pub(super) name: String,
    /// Whether other texts that are linked with this one do not see it.
    pub(super) is_local: bool,
}

/// Returns the text with pointers for managed variables, and the managed variables that the text
/// defines. Returns `None` if the text uses no managed variables. The compiler's messages about the
/// new text have the line numbers of the old one.
///
/// # Errors
/// Pointers cannot express a part of the text, or a declaration does not end. The error says which.
pub(super) fn with_pointers(text: &str) -> Result<Option<(String, Vec<Defined>)>, String> {
    // Most modules have none.
    if !text.contains(".managed") {
        return Ok(None);
    }
    let tokens = tokens(text);
    let Some(items) = items(&tokens) else {
        // The compiler names the line, unless it takes the text: then a variable would be where the
        // CPU does not reach it.
        return match tokens.iter().any(|token| token.text == ".managed") {
            true => Err(String::from("a declaration does not end")),
            false => Ok(None),
        };
    };
    let mut rewriting = Rewriting::new(&tokens);
    for item in &items {
        rewriting.declare(item);
    }
    for item in &items {
        match item {
            Item::Variable(range) => rewriting.check_initializer(range)?,
            Item::Function { header, body } => rewriting.function(header, body)?,
        }
    }
    if rewriting.managed.is_empty() {
        return Ok(None);
    }
    Ok(Some((applied(text, rewriting.edits), rewriting.defined)))
}

/// Returns text with parts replaced.
fn applied(text: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    // Stable: those at one place stay in their order.
    edits.sort_by_key(|(range, _)| range.start);
    let mut edited = String::with_capacity(text.len() + edits.len() * 64);
    let mut behind = 0;
    for (range, new) in edits {
        edited.push_str(&text[behind..range.start]);
        edited.push_str(&new);
        let lines = text[range.clone()].matches('\n');
        lines.for_each(|line| edited.push_str(line));
        behind = range.end;
    }
    edited.push_str(&text[behind..]);
    edited
}

/// A text that is being rewritten.
struct Rewriting<'t> {
    tokens: &'t [Token<'t>],
    managed: BTreeSet<&'t str>,
    defined: Vec<Defined>,
    /// Parts of the text, in bytes, and what comes in their place.
    edits: Vec<(Range<usize>, String)>,
}

impl<'t> Rewriting<'t> {
    const fn new(tokens: &'t [Token<'t>]) -> Self {
        Self {
            tokens,
            managed: BTreeSet::new(),
            defined: Vec::new(),
            edits: Vec::new(),
        }
    }

    fn replace(&mut self, range: Range<usize>, new: impl Into<String>) {
        self.edits.push((range, new.into()));
    }

    /// Gives the managed variables that an item declares a pointer each.
    fn declare(&mut self, item: &Item) {
        let Item::Variable(range) = item else { return };
        let tokens = &self.tokens[range.clone()];
        let Some(attribute) = managed_attribute(tokens) else {
            return;
        };
        let linkage = tokens.iter().find(|token| LINKAGES.contains(&token.text));
        let linkage = linkage.map_or("", |token| token.text);
        let (start, end) = (tokens[attribute.start].at, tokens[attribute.end - 1].end());
        self.replace(start..end, "");
        let end = tokens[tokens.len() - 1].end();
        for declared in names(tokens) {
            let name = declared.name;
            // The value keeps the variable, which nothing else refers to, in the module.
            let value = match linkage {
                ".extern" | ".common" => String::new(),
                _ => format!(" = {name}"),
            };
            let pointer = pointer_name(name);
            let declaration = format!(" {linkage} .global .align 8 .u64 {pointer}{value};");
            self.replace(end..end, declaration);
            if linkage != ".extern" {
                self.defined.push(Defined {
                    name: name.to_owned(),
                    is_local: linkage.is_empty(),
                });
            }
            self.managed.insert(name);
        }
    }

    /// Refuses a variable whose initial value is the address of a managed one.
    fn check_initializer(&self, range: &Range<usize>) -> Result<(), String> {
        let tokens = &self.tokens[range.clone()];
        let mut value = tokens.iter().skip_while(|token| token.text != "=");
        match value.find(|token| self.managed.contains(token.text)) {
            None => Ok(()),
            Some(found) => Err(format!(
                "the initial value of a variable is the address of the managed variable {}",
                found.text
            )),
        }
    }

    fn function(&mut self, header: &Range<usize>, body: &Range<usize>) -> Result<(), String> {
        let is_managed = |token: &Token<'_>| self.managed.contains(token.text);
        let body_tokens = &self.tokens[body.clone()];
        let has_own = managed_attribute(body_tokens).is_some();
        if !has_own && !body_tokens.iter().any(is_managed) {
            return Ok(());
        }
        let mut scopes = vec![parameters(&self.tokens[header.clone()])];
        let mut at = body.start;
        while at < body.end {
            let rest = &self.tokens[at..body.end];
            match rest[0].text {
                "{" => scopes.push(Vec::new()),
                "}" => drop(scopes.pop()),
                ";" => {}
                ".loc" => {
                    at += location(rest);
                    continue;
                }
                _ if is_label(rest) => at += 1,
                _ => {
                    let length = rest.iter().position(|token| token.text == ";");
                    let end = at + length.unwrap_or(rest.len());
                    self.statement(at..end, &mut scopes)?;
                    at = end;
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// Rewrites a statement, the semicolon behind which is not part of the range.
    fn statement(
        &mut self,
        range: Range<usize>,
        scopes: &mut Vec<Vec<Declared<'t>>>,
    ) -> Result<(), String> {
        let tokens = &self.tokens[range.clone()];
        if is_local(tokens[0].text) {
            if managed_attribute(tokens).is_some() {
                return Err("a function has a managed variable of its own".to_owned());
            }
            self.check_initializer(&range)?;
            match scopes.last_mut() {
                Some(scope) => scope.extend(names(tokens)),
                None => scopes.push(names(tokens)),
            }
            return Ok(());
        }
        // Other directives name no variables.
        if tokens[0].text.starts_with('.') {
            return Ok(());
        }
        self.instruction(range, |name| {
            let mut declared = scopes.iter().flatten();
            declared.any(|declared| declared.is(name))
        })
    }

    /// Rewrites an instruction, which has a scope of its own then: with the registers that hold the
    /// pointers. They are loaded before the guard of the instruction.
    fn instruction(
        &mut self,
        range: Range<usize>,
        is_shadowed: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        let (mut brackets, mut loads, mut count) = (0_usize, String::new(), 0);
        let start = self.tokens[range.start].at;
        let mut uses = Vec::new();
        for at in range.clone() {
            let token = self.tokens[at];
            match token.text {
                "[" => brackets += 1,
                "]" => brackets = brackets.saturating_sub(1),
                name if self.managed.contains(name) && !is_shadowed(name) => {
                    let behind = &self.tokens[at + 1..range.end];
                    let register = format!("%causeway_managed{count}");
                    let end = load(&mut loads, &register, token, (behind, brackets != 0))?;
                    uses.push((token.at..end, register));
                    count += 1;
                }
                _ => {}
            }
        }
        if count == 0 {
            return Ok(());
        }
        let open = format!("{{ .reg .b64 %causeway_managed<{count}>; {loads}");
        self.replace(start..start, open);
        self.edits.append(&mut uses);
        // Behind the semicolon.
        let last = self.tokens.get(range.end);
        let end = last.map_or(self.tokens[range.end - 1].end(), Token::end);
        self.replace(end..end, " }");
        Ok(())
    }
}

/// Adds the instructions that put the address of a managed variable into a register. `behind` are
/// the tokens behind its name, which may be in brackets. Returns where in the text the part ends
/// for which the register stands.
fn load(
    loads: &mut String,
    register: &str,
    variable: Token<'_>,
    (behind, is_in_brackets): (&[Token<'_>], bool),
) -> Result<usize, String> {
    let (name, pointer) = (variable.text, pointer_name(variable.text));
    let _ = write!(loads, "ld.global.nc.u64 {register}, [{pointer}]; ");
    match behind.first().map(|token| token.text) {
        Some("[") => Err(format!("the managed variable {name} has a subscript")),
        // Only in brackets, registers have offsets.
        Some("+") if !is_in_brackets => {
            let (sum, end) = offset(&behind[1..]);
            let _ = write!(loads, "add.s64 {register}, {register}, {sum}; ");
            Ok(end.unwrap_or(variable.end()))
        }
        _ => Ok(variable.end()),
    }
}

/// Returns the offset that begins here, and where it ends in the text.
fn offset(tokens: &[Token<'_>]) -> (String, Option<usize>) {
    let is_part = |token: &&Token<'_>| {
        let first = token.text.chars().next();
        let is_number = first.is_some_and(|first| first.is_ascii_digit());
        is_number || matches!(token.text, "+" | "-" | "*" | "(" | ")")
    };
    let part = || tokens.iter().take_while(is_part);
    let sum = part().map(|token| token.text).collect();
    (sum, part().last().map(Token::end))
}

/// Returns where an attribute of a declaration says that a variable is managed.
fn managed_attribute(tokens: &[Token<'_>]) -> Option<Range<usize>> {
    let start = tokens.iter().position(|token| token.text == ".attribute")?;
    let end = matching(tokens, start + 1, ("(", ")"))? + 1;
    let mut inside = tokens[start..end].iter();
    inside
        .any(|token| token.text == ".managed")
        .then_some(start..end)
}

/// Returns the names of the parameters of a function.
fn parameters<'t>(header: &[Token<'t>]) -> Vec<Declared<'t>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < header.len() {
        if let Some(end) = matching(header, at, ("(", ")")) {
            found.extend(names(&header[at + 1..end]));
            at = end;
        }
        at += 1;
    }
    found
}

/// Returns whether a label begins here. Names of instructions have colons in pairs.
fn is_label(tokens: &[Token<'_>]) -> bool {
    let is = |at: usize, mark: &str| tokens.get(at).is_some_and(|token| token.text == mark);
    is(1, ":") && !is(2, ":")
}

/// Returns the number of tokens of a `.loc`, which has no semicolon.
fn location(tokens: &[Token<'_>]) -> usize {
    let mut count = 1;
    while let Some(token) = tokens.get(count) {
        match token.text {
            // The name of a section's label follows.
            "function_name" => count += 1,
            "inlined_at" | "," | "+" => {}
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {}
            _ => break,
        }
        count += 1;
    }
    count.min(tokens.len())
}

#[cfg(test)]
#[path = "pointers_tests.rs"]
mod tests;
