//! The function of NVIDIA's device runtime that this library provides: programs declare
//! `cudaGraphSetConditional` and no module defines it (CUDA C++ Programming Guide, "Conditional
//! Graph Nodes").
//!
//! The handle of a condition is the address of a word in memory of the device
//! ([`crate::graph::condition`]), so the function is a store. PTX text gets it in place of its
//! declaration, and so does every back end.

use std::ops::Range;

use super::elf;
use super::ptx::Words;
use crate::error::{Answer, Code};

const NAME: &str = "cudaGraphSetConditional";
/// The definition, which is local to its module, in one line.
const DEFINITION: &str = ".func cudaGraphSetConditional(.param .b64 causeway_condition, \
    .param .b32 causeway_value) { .reg .b64 %causeway_d; .reg .b32 %causeway_r; \
    ld.param.b64 %causeway_d, [causeway_condition]; ld.param.b32 %causeway_r, [causeway_value]; \
    st.volatile.global.b32 [%causeway_d], %causeway_r; ret; }";

/// Returns whether machine code calls the function. The call reaches that of NVIDIA's driver, which
/// takes the address for a handle of its own, and the device faults.
pub(super) fn is_called_by(code: &[u8]) -> bool {
    elf::names_symbol(code, NAME)
}

/// Refuses machine code that calls the function.
pub(super) fn check_machine(code: &[u8]) -> Answer {
    if !is_called_by(code) {
        return Ok(());
    }
    log::warn!("machine code that calls {NAME} is not loaded: compile it to PTX");
    Err(Code::NOT_SUPPORTED)
}

/// Returns text with the definition in place of the first declaration, and nothing in place of
/// others. Lines keep their numbers.
pub(super) fn define(text: String) -> String {
    // Most modules do not have the name.
    if !text.contains(NAME) {
        return text;
    }
    let mut defined = String::with_capacity(text.len() + DEFINITION.len());
    let mut behind = 0;
    for declaration in declarations(&text) {
        defined.push_str(&text[behind..declaration.start]);
        if behind == 0 {
            defined.push_str(DEFINITION);
        }
        let lines = text[declaration.clone()].matches('\n');
        lines.for_each(|line| defined.push_str(line));
        behind = declaration.end;
    }
    defined.push_str(&text[behind..]);
    defined
}

/// Returns where `.extern .func` declares the function, up to the semicolon.
fn declarations(text: &str) -> Vec<Range<usize>> {
    let mut words = Words::of(text);
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let start = text.len() - words.left() - word.len();
        if word != ".extern" || words.next() != Some(".func") || words.next() != Some(NAME) {
            continue;
        }
        if words.find(|word| matches!(*word, ";" | "{")) == Some(";") {
            found.push(start..text.len() - words.left());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As NVRTC writes it.
    const DECLARED: &str = ".version 8.0\n.extern .func cudaGraphSetConditional\n(\n\
        .param .b64 cudaGraphSetConditional_param_0,\n\
        .param .b32 cudaGraphSetConditional_param_1 // ;\n)\n;\n.visible .entry k() { ret; }\n";

    #[test]
    fn a_declaration_becomes_a_definition_on_the_same_lines() {
        let defined = define(DECLARED.to_owned());
        let expected =
            format!(".version 8.0\n{DEFINITION}\n\n\n\n\n\n.visible .entry k() {{ ret; }}\n");
        assert_eq!(defined, expected);
        assert_eq!(define(defined.clone()), defined, "there is one");
    }

    #[test]
    fn a_second_declaration_goes() {
        let (head, rest) = DECLARED.split_at(13);
        let (twice, once) = (format!("{head}{rest}{rest}"), define(DECLARED.to_owned()));
        let defined = define(twice.clone());
        assert_eq!(defined.matches(NAME).count(), 1);
        assert!(defined.starts_with(&once));
        assert_eq!(defined.lines().count(), twice.lines().count());
    }

    #[test]
    fn machine_code_that_calls_it_is_refused() {
        let refused = |symbols: &[u8]| {
            let sections: &[(&str, u32, &[u8])] =
                &[(".text.k", 1, b"code"), (".strtab", 3, symbols)];
            check_machine(&elf::tests::file(elf::MACHINE, 90, sections))
        };
        assert_eq!(
            refused(b"\0k\0cudaGraphSetConditional\0"),
            Err(Code::NOT_SUPPORTED)
        );
        assert_eq!(refused(b"\0cudaGraphSetConditional2\0k\0"), Ok(()));
        assert_eq!(refused(b""), Ok(()));
        assert_eq!(check_machine(b"\x7fELF"), Ok(()));
    }

    #[test]
    fn other_text_stays() {
        for text in [
            ".extern .func other(.param .b64 a);",
            "// .extern .func cudaGraphSetConditional(.param .b64 a);",
            ".visible .func cudaGraphSetConditional(.param .b64 a) { ret; }",
            ".extern .func cudaGraphSetConditional(.param .b64 a",
            ".extern .func cudaGraphSetConditional2(.param .b64 a);",
            ".extern .func (.param .b32 r) cudaGraphSetConditional(.param .b64 a);",
        ] {
            assert_eq!(define(text.to_owned()), text);
        }
    }
}
