//! Images of code: what programs give to `cuModuleLoadData`, `cuLibraryLoadData` and
//! `cuLinkAddData`.
//!
//! An image is PTX text, an ELF file for NVIDIA GPUs (a cubin), a fat binary of both, a structure
//! that points to a fat binary, or what `cuLinkComplete` of this library has returned. A program
//! does not say how long it is; the image does. What the device gets is PTX text, a cubin or linked
//! inputs: the choice and the decompression are made here.

mod archive;
mod compression;
mod declarations;
mod device_functions;
mod elf;
mod fatbin;
mod linked;
mod managed;
mod pointers;
mod ptx;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::boundary::{In, Text};
use crate::error::{Answer, Code};

pub(crate) use archive::containers;
pub(crate) use linked::Compilation;
pub(crate) use pointers::pointer_name;

/// Images and what is in them, at most, in bytes.
pub(crate) const BYTES_MAX: u64 = 512 << 20;

/// What the device can load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Compute capability: 90 is 9.0.
    pub(crate) architecture: u32,
    /// Whether the device executes cubins, not only PTX.
    pub(crate) takes_machine_code: bool,
    /// The newest version of PTX that the device takes.
    pub(crate) ptx_version_max: (u32, u32),
}

/// Code that the device can load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// PTX text.
    Text(String),
    /// A cubin for this device.
    Machine(Vec<u8>),
    /// Several that are linked when they are loaded, or one that is to be compiled in this way.
    Linked(Vec<Self>, Compilation),
}

/// A kernel as an image describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Threads in x, y and z that every block must have (`.reqntid`), if that is known.
    pub(crate) required_threads: Option<[u32; 3]>,
}

/// Bytes of an image.
pub(crate) trait Source {
    /// Returns `count` bytes from `offset`; `None` if they lie beyond the end, where that is known.
    fn read(&self, offset: u64, count: u64) -> Option<Vec<u8>>;

    /// Returns the bytes before the first NUL.
    fn text(&self) -> Answer<Vec<u8>>;

    /// Returns whether the image begins with `magic`. Reads no byte beyond the first that differs.
    fn starts_with(&self, magic: &[u8]) -> bool {
        let mut offsets = (0..).zip(magic);
        offsets.all(|(offset, byte)| self.read(offset, 1).is_some_and(|read| read[0] == *byte))
    }
}

impl Source for &[u8] {
    fn read(&self, offset: u64, count: u64) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(count).ok()?)?;
        Some(self.get(start..end)?.to_vec())
    }

    fn text(&self) -> Answer<Vec<u8>> {
        let end = self.iter().position(|byte| *byte == 0);
        Ok(self[..end.unwrap_or(self.len())].to_vec())
    }
}

/// An image in the caller's memory, at this address. It is as long as its content says.
pub(crate) struct Caller(pub(crate) usize);

impl Source for Caller {
    fn read(&self, offset: u64, count: u64) -> Option<Vec<u8>> {
        // Anything longer is no image, but garbage taken for one.
        if offset.checked_add(count)? > BYTES_MAX {
            return None;
        }
        let mut bytes = vec![0; count as usize];
        let start = In::<u8>::at(self.0.checked_add(offset as usize)?);
        start.copy_to(&mut bytes).ok()?;
        Some(bytes)
    }

    fn text(&self) -> Answer<Vec<u8>> {
        Text::at(self.0).bytes()
    }
}

/// A part of a larger image, from an offset on.
struct Part<'s, S>(&'s S, u64);

impl<S: Source> Source for Part<'_, S> {
    fn read(&self, offset: u64, count: u64) -> Option<Vec<u8>> {
        self.0.read(self.1.checked_add(offset)?, count)
    }

    fn text(&self) -> Answer<Vec<u8>> {
        Err(Code::INVALID_IMAGE)
    }
}

fn u16_at(source: &impl Source, offset: u64) -> Option<u16> {
    let bytes = source.read(offset, 2)?;
    Some(u16::from_le_bytes(*bytes.first_chunk()?))
}

fn u32_at(source: &impl Source, offset: u64) -> Option<u32> {
    let bytes = source.read(offset, 4)?;
    Some(u32::from_le_bytes(*bytes.first_chunk()?))
}

fn u64_at(source: &impl Source, offset: u64) -> Option<u64> {
    let bytes = source.read(offset, 8)?;
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

/// Returns the code at `address` in the caller's memory that suits the device.
pub(crate) fn at(address: usize, target: &Target) -> Answer<Image> {
    if address == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let source = Caller(address);
    match source.starts_with(fatbin::WRAPPER_MAGIC) {
        true => fatbin::choose_wrapped(&source, target),
        false => of(&source, target),
    }
}

/// Returns the code in `source` that suits the device. Structures with pointers are refused.
pub(crate) fn of(source: &impl Source, target: &Target) -> Answer<Image> {
    if source.starts_with(fatbin::MAGIC) {
        fatbin::choose(source, target)
    } else if source.starts_with(elf::MAGIC) {
        machine(source, target)
    } else if source.starts_with(linked::MAGIC) {
        linked::inputs(source, target)
    } else {
        text(source.text()?)
    }
}

fn machine(source: &impl Source, target: &Target) -> Answer<Image> {
    let architecture = elf::architecture(source).ok_or(Code::INVALID_IMAGE)?;
    if !target.takes_machine_code || !elf::runs_on(architecture, target.architecture) {
        return Err(Code::NO_BINARY_FOR_GPU);
    }
    let bytes = elf::bytes(source).ok_or(Code::INVALID_IMAGE)?;
    source
        .read(0, bytes)
        .map(Image::Machine)
        .ok_or(Code::INVALID_IMAGE)
}

/// Returns PTX text, with the functions that the library provides; what follows a NUL in it is
/// dropped.
fn text(mut bytes: Vec<u8>) -> Answer<Image> {
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes.truncate(end.unwrap_or(bytes.len()));
    let text = String::from_utf8(bytes).map_err(|_| Code::INVALID_IMAGE)?;
    match ptx::directive(&text, ".version") {
        Some(_) => Ok(Image::Text(device_functions::define(text))),
        None => Err(Code::INVALID_IMAGE),
    }
}

impl Image {
    /// Returns an image of several inputs, which are compiled and linked when it is loaded.
    pub(crate) fn linked(mut inputs: Vec<Self>, how: Compilation) -> Answer<Self> {
        match inputs.len() {
            0 => Err(Code::INVALID_VALUE),
            1 => Ok(inputs.remove(0).compiled(how)),
            count if count <= linked::INPUTS_MAX => Ok(Self::Linked(inputs, how)),
            _ => Err(Code::OUT_OF_MEMORY),
        }
    }

    /// Returns the image as one that is compiled as `how` says. Machine code stays as it is, and so
    /// does what says itself how it is to be compiled.
    pub(crate) fn compiled(self, how: Compilation) -> Self {
        match self {
            Self::Text(_) if how != Compilation::default() => Self::Linked(vec![self], how),
            Self::Linked(inputs, own) if own == Compilation::default() => Self::Linked(inputs, how),
            other => other,
        }
    }

    /// Refuses PTX that is too new for the device or has managed variables that cannot be
    /// expressed, and machine code that would make the device fault, before the device sees them.
    pub(crate) fn check(&self, target: &Target) -> Answer {
        match self {
            Self::Text(text) => {
                ptx::check(text, target)?;
                managed::check(text)
            }
            Self::Machine(code) => {
                device_functions::check_machine(code)?;
                managed::check_machine(code, target.architecture)
            }
            Self::Linked(inputs, _) => inputs.iter().try_for_each(|input| input.check(target)),
        }
    }

    /// Returns the image with pointers for its managed variables, and the names of those.
    pub(crate) fn with_pointers(&self) -> Answer<(Cow<'_, Self>, Vec<String>)> {
        managed::of_image(self)
    }

    /// Returns whether this is machine code that would make the device fault.
    fn would_fault(&self) -> bool {
        match self {
            Self::Machine(code) => {
                device_functions::is_called_by(code) || elf::has_managed_variables(code)
            }
            Self::Text(_) | Self::Linked(..) => false,
        }
    }

    /// Returns the image as the device gets it.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Text(text) => Cow::Borrowed(text.as_bytes()),
            Self::Machine(bytes) => Cow::Borrowed(bytes),
            Self::Linked(inputs, how) => {
                let inputs: Vec<_> = inputs.iter().map(Self::bytes).collect();
                Cow::Owned(linked::pack(&inputs, *how))
            }
        }
    }

    /// Returns the image as `cuLinkComplete` returns it: as the device gets it, text with a NUL.
    pub(crate) fn into_result(self) -> Vec<u8> {
        match self {
            Self::Text(text) => [text.as_bytes(), b"\0"].concat(),
            other => other.bytes().into_owned(),
        }
    }

    /// Returns whether the code is machine code.
    pub(crate) fn is_machine_code(&self) -> bool {
        matches!(self, Self::Machine(_))
    }

    /// Returns the kernels in the image, in its order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = match self {
            Self::Text(text) => ptx::entries(text),
            Self::Machine(bytes) => elf::kernels(bytes).unwrap_or_default(),
            Self::Linked(inputs, _) => inputs.iter().flat_map(Self::entries).collect(),
        };
        // A kernel may be declared before it is defined, and defined by several inputs.
        let mut names = BTreeSet::new();
        entries.retain(|entry| names.insert(entry.name.clone()));
        entries
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) const GPU: Target = Target {
        architecture: 90,
        takes_machine_code: true,
        ptx_version_max: (9, 0),
    };
    pub(crate) const SOFTWARE: Target = Target {
        takes_machine_code: false,
        ..GPU
    };
    pub(crate) const PTX: &str = ".version 8.0\n.target sm_70\n";

    #[test]
    fn text_ends_at_its_nul_and_needs_a_version() {
        let given = [PTX.as_bytes(), b"\0behind"].concat();
        let found = at(given.as_ptr() as usize, &SOFTWARE);
        assert_eq!(found, Ok(Image::Text(PTX.into())));
        assert_eq!(of(&&given[..], &SOFTWARE), Ok(Image::Text(PTX.into())));
        for bad in [&b"hello\0"[..], b"\0", b".version \xff\0", b"\x7fEL\0"] {
            assert_eq!(
                at(bad.as_ptr() as usize, &SOFTWARE),
                Err(Code::INVALID_IMAGE)
            );
        }
        assert_eq!(at(0, &SOFTWARE), Err(Code::INVALID_VALUE));
    }

    #[test]
    fn a_single_input_needs_no_linker() {
        let text = Image::Text(PTX.into());
        let how = Compilation::default();
        assert_eq!(Image::linked(vec![text.clone()], how), Ok(text.clone()));
        assert_eq!(Image::linked(Vec::new(), how), Err(Code::INVALID_VALUE));
        let few = how.registers(24);
        let wanted = Image::Linked(vec![text.clone()], few);
        assert_eq!(Image::linked(vec![text.clone()], few), Ok(wanted.clone()));
        assert_eq!(wanted.clone().compiled(how.registers(8)), wanted);
        let code = Image::Machine(vec![1]);
        assert_eq!(code.clone().compiled(few), code);
        let many = Image::linked(vec![text.clone(); 257], how);
        assert_eq!(many, Err(Code::OUT_OF_MEMORY));
        assert_eq!(text.into_result(), [PTX.as_bytes(), b"\0"].concat());
    }

    #[test]
    fn kernels_are_counted_once() {
        let text = format!("{PTX}.entry a(); .entry b() {{}} .entry a() {{}}");
        let image = Image::Linked(
            vec![Image::Text(text.clone()), Image::Text(text)],
            Compilation::default(),
        );
        let names: Vec<String> = image
            .entries()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            magic in 0usize..4,
            bytes in prop::collection::vec(any::<u8>(), 0..400)
        ) {
            let magics = [fatbin::MAGIC, elf::MAGIC, linked::MAGIC, b"!<arch>\n"];
            let image = [magics[magic], &bytes].concat();
            let _ = of(&&image[..], &GPU);
            let _ = of(&&image[..], &SOFTWARE);
            let _ = containers(&image);
        }
    }
}
