//! Managed variables of images. Text gets pointers for them ([`super::pointers`]); machine code,
//! which has their addresses in it, is refused.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::pointers::{Defined, with_pointers};
use super::{Image, elf};
use crate::error::{Answer, Code};

/// Refuses text whose managed variables cannot be expressed.
pub(super) fn check(text: &str) -> Answer {
    with_pointers(text).map(drop).map_err(|why| refused(&why))
}

/// Refuses machine code that has managed variables, whose addresses are in it.
pub(super) fn check_machine(code: &[u8], architecture: u32) -> Answer {
    match elf::has_managed_variables(code) {
        false => Ok(()),
        true => Err(refused(&format!(
            "it is machine code: build the program with PTX in it, nvcc -gencode \
             arch=compute_{architecture},code=compute_{architecture}"
        ))),
    }
}

fn refused(why: &str) -> Code {
    log::error!("cannot load code with managed variables: {why}");
    Code::NOT_SUPPORTED
}

/// Returns an image with pointers for its managed variables, and the names of those.
pub(super) fn of_image(image: &Image) -> Answer<(Cow<'_, Image>, Vec<String>)> {
    let mut defined = Vec::new();
    let with = with_pointers_in(image, &mut defined)?;
    let mut seen = BTreeMap::new();
    for variable in &defined {
        let other = seen.insert(&variable.name, variable.is_local);
        if other.is_some_and(|is_local| is_local || variable.is_local) {
            let name = &variable.name;
            return Err(refused(&format!(
                "several of the linked texts define {name}, and it is local in one of them"
            )));
        }
    }
    let names = seen.into_keys().cloned().collect();
    Ok((with.map_or(Cow::Borrowed(image), Cow::Owned), names))
}

/// Returns an image with pointers, if it has managed variables, and adds those that it defines.
fn with_pointers_in(image: &Image, defined: &mut Vec<Defined>) -> Answer<Option<Image>> {
    match image {
        Image::Text(text) => {
            let with = with_pointers(text).map_err(|why| refused(&why))?;
            Ok(with.map(|(text, mut own)| {
                defined.append(&mut own);
                Image::Text(text)
            }))
        }
        Image::Machine(_) => Ok(None),
        Image::Linked(inputs, how) => {
            let mut all = Vec::with_capacity(inputs.len());
            let mut is_changed = false;
            for input in inputs {
                let with = with_pointers_in(input, defined)?;
                is_changed |= with.is_some();
                all.push(with.map_or(Cow::Borrowed(input), Cow::Owned));
            }
            let linked = || Image::Linked(all.into_iter().map(Cow::into_owned).collect(), *how);
            Ok(is_changed.then(linked))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::image::Compilation;
    use crate::image::elf::tests::file;
    use crate::image::tests::{GPU, PTX};

    const X: &str = ".global .attribute(.managed) .align 4 .u32 x = 5;";

    #[test]
    fn images_without_managed_variables_stay() {
        let image = Image::Text(PTX.to_owned());
        let (same, names) = image.with_pointers().unwrap();
        assert!(matches!(same, Cow::Borrowed(_)) && names.is_empty());
        let linked = Image::Linked(vec![image.clone(), image], Compilation::default());
        assert!(matches!(linked.with_pointers(), Ok((Cow::Borrowed(_), _))));
    }

    #[test]
    fn what_pointers_cannot_express_is_refused() {
        let image = Image::Text(format!("{PTX}{X} .global .u64 y = x;"));
        assert_eq!(image.check(&GPU), Err(Code::NOT_SUPPORTED));
        assert_eq!(image.with_pointers().err(), Some(Code::NOT_SUPPORTED));
    }

    fn names_of(linkages: &[&str]) -> Answer<Vec<String>> {
        let text = |linkage: &&str| Image::Text(format!("{PTX}{linkage} {X}"));
        let inputs = linkages.iter().map(text).collect();
        let linked = Image::Linked(inputs, Compilation::default());
        linked.with_pointers().map(|(_, names)| names)
    }

    #[test]
    fn texts_that_are_linked_share_a_variable_unless_each_has_its_own() {
        let x = Ok(vec!["x".to_owned()]);
        assert_eq!(names_of(&[".visible", ".extern"]), x);
        assert_eq!(names_of(&[".weak", ".weak"]), x);
        assert_eq!(names_of(&["", ".extern"]), x);
        assert_eq!(names_of(&[".extern"]), Ok(Vec::new()));
        assert_eq!(names_of(&["", ""]), Err(Code::NOT_SUPPORTED));
        assert_eq!(names_of(&["", ".visible"]), Err(Code::NOT_SUPPORTED));
    }

    /// Returns a cubin with one symbol of this type and with these bits.
    pub(crate) fn cubin_with_symbol(kind: u8, other: u8) -> Vec<u8> {
        let mut symbols = [0; 48];
        symbols[24 + 4..][..2].copy_from_slice(&[kind, other]);
        file(
            elf::MACHINE,
            90,
            &[(".text.k", 1, b"code"), (".symtab", 2, &symbols)],
        )
    }

    #[test]
    fn machine_code_with_managed_variables_is_refused() {
        for (kind, other, is_refused) in [
            (1, 4, true),
            (0x11, 0xa4, true),
            (1, 0, false),
            (1, 0xa0, false),
            (2, 0x14, false),
        ] {
            let code = cubin_with_symbol(kind, other);
            assert_eq!(
                elf::has_managed_variables(&code),
                is_refused,
                "{kind} {other}"
            );
            assert_eq!(Image::Machine(code).check(&GPU).is_err(), is_refused);
        }
        assert!(!elf::has_managed_variables(b"\x7fELF"));
    }
}
