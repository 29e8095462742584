//! Fat binaries: containers with code for several architectures.
//!
//! NVIDIA does not document the layout; this is what `fatbinary` of CUDA 11 to 13 writes and
//! `cuobjdump` reads. A container has a header (magic, version, size of the header, size of all
//! entries), then entries, each with a header of its own. Compilers put a structure with pointers
//! before containers, which programs pass to the driver.

use super::compression::{Method, decompress};
use super::{
    BYTES_MAX, Caller, Compilation, Image, Part, Source, Target, elf, text, u16_at, u32_at, u64_at,
};
use crate::error::{Answer, Code};

/// The first bytes of a container: the number 0xBA55ED50, little-endian.
pub(super) const MAGIC: &[u8] = &[0x50, 0xed, 0x55, 0xba];
/// The first bytes of a structure that points to containers: the number 0x466243B1.
pub(super) const WRAPPER_MAGIC: &[u8] = &[0xb1, 0x43, 0x62, 0x46];
/// Least size of a container's header, in bytes.
const HEADER_BYTES: u16 = 16;
/// Least size of an entry's header, in bytes.
const ENTRY_HEADER_BYTES: u64 = 64;
/// Entries of a container, and containers of a wrapper, at most.
const ENTRIES_MAX: usize = 1024;
/// Kinds of entries.
const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
/// Flags of entries.
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// An entry of a container.
#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: u16,
    architecture: u32,
    flags: u64,
    /// Where the content is, and its length with padding, in bytes.
    at: u64,
    bytes: u64,
    /// Length of the compressed content in bytes; 0 if it is not compressed.
    compressed_bytes: u64,
    uncompressed_bytes: u64,
}

impl Entry {
    fn parse(source: &impl Source, at: u64) -> Option<Self> {
        let header = u64::from(u32_at(source, at.checked_add(4)?)?);
        if header < ENTRY_HEADER_BYTES {
            return None;
        }
        let bytes = u64_at(source, at + 8)?;
        Some(Self {
            kind: u16_at(source, at)?,
            architecture: u32_at(source, at + 28)?,
            flags: u64_at(source, at + 40)?,
            at: at.checked_add(header)?,
            bytes,
            compressed_bytes: u64::from(u32_at(source, at + 16)?),
            uncompressed_bytes: u64_at(source, at + 56)?,
        })
    }

    /// Returns how good the entry is for the device, better ones greater; `None` if it is not for
    /// the device.
    fn rank(&self, target: &Target) -> Option<(bool, u32)> {
        let suits = match self.kind {
            KIND_ELF => {
                target.takes_machine_code && elf::runs_on(self.architecture, target.architecture)
            }
            KIND_PTX => self.architecture <= target.architecture,
            _ => false,
        };
        suits.then_some((self.kind == KIND_ELF, self.architecture))
    }

    /// Returns the content, decompressed.
    fn content(&self, source: &impl Source) -> Option<Vec<u8>> {
        let method = match (self.flags & FLAG_ZSTD, self.flags & FLAG_LZ4) {
            (0, 0) => return source.read(self.at, self.bytes),
            (0, _) => Method::Lz4,
            _ => Method::Zstd,
        };
        if self.compressed_bytes > self.bytes {
            return None;
        }
        let compressed = source.read(self.at, self.compressed_bytes)?;
        decompress(method, &compressed, self.uncompressed_bytes)
    }

    fn image(&self, source: &impl Source) -> Answer<Image> {
        let content = self.content(source).ok_or(Code::INVALID_IMAGE)?;
        if self.kind == KIND_PTX {
            return text(content);
        }
        let content = &&content[..];
        match content.starts_with(elf::MAGIC) {
            true => super::machine(content, &Target::any(self.architecture)),
            false => Err(Code::INVALID_IMAGE),
        }
    }
}

impl Target {
    /// A GPU that executes code for `architecture`.
    const fn any(architecture: u32) -> Self {
        Self {
            architecture,
            takes_machine_code: true,
            ptx_version_max: (u32::MAX, 0),
        }
    }
}

/// Returns the length of a container in bytes; `None` if its header is malformed.
pub(super) fn bytes(source: &impl Source) -> Option<u64> {
    let (header, entries) = (u16_at(source, 6)?, u64_at(source, 8)?);
    if !source.starts_with(MAGIC) || u16_at(source, 4)? != 1 || header < HEADER_BYTES {
        return None;
    }
    let bytes = entries.checked_add(u64::from(header))?;
    (bytes <= BYTES_MAX).then_some(bytes)
}

/// Returns the entries of a container; `None` if a header is malformed or lies outside.
fn entries(source: &impl Source) -> Option<Vec<Entry>> {
    let end = bytes(source)?;
    // Where the length of the image is known, all of the container lies inside.
    source.read(end - 1, 1)?;
    let mut at = u64::from(u16_at(source, 6)?);
    let mut found = Vec::new();
    while at < end {
        let entry = Entry::parse(source, at)?;
        at = entry.at.checked_add(entry.bytes)?;
        if at > end || found.len() == ENTRIES_MAX {
            return None;
        }
        found.push(entry);
    }
    Some(found)
}

/// Returns the code in a container that suits the device best: a cubin of the newest architecture
/// that the device executes, or else the newest PTX. A cubin that would make the device fault is
/// chosen only if there is no PTX.
pub(crate) fn choose(source: &impl Source, target: &Target) -> Answer<Image> {
    let entries = entries(source).ok_or(Code::INVALID_IMAGE)?;
    let best = best(&entries, target).ok_or(Code::NO_BINARY_FOR_GPU)?;
    let image = best.image(source)?;
    if !image.would_fault() {
        return Ok(image);
    }
    let text_only = Target {
        takes_machine_code: false,
        ..*target
    };
    let text = self::best(&entries, &text_only).and_then(|text| text.image(source).ok());
    Ok(text.unwrap_or(image))
}

fn best<'e>(entries: &'e [Entry], target: &Target) -> Option<&'e Entry> {
    let ranked = entries
        .iter()
        .filter_map(|entry| Some((entry.rank(target)?, entry)));
    let best = ranked.max_by_key(|(rank, _)| *rank);
    best.map(|(_, entry)| entry)
}

/// Returns the code that suits the device in what a structure points to. Version 1 of it has one
/// container. Version 2 has one that is linked, and behind it an array of those from which it was
/// linked: these are linked if there is none for the device, or it would make the device fault.
pub(super) fn choose_wrapped(wrapper: &Caller, target: &Target) -> Answer<Image> {
    let version = u32_at(wrapper, 4).ok_or(Code::INVALID_IMAGE)?;
    let pointer = |at: u64| u64_at(wrapper, at).map_or(0, |pointer| pointer as usize);
    let first = match pointer(8) {
        0 => Err(Code::INVALID_IMAGE),
        container => choose(&Caller(container), target),
    };
    match (version, pointer(16), first) {
        (2, array, Err(Code::NO_BINARY_FOR_GPU)) if array != 0 => link_array(array, target),
        (2, array, Ok(image)) if array != 0 && image.would_fault() => {
            let linked = link_array(array, target);
            Ok(linked.unwrap_or(image))
        }
        (1 | 2, _, first) => first,
        _ => Err(Code::INVALID_IMAGE),
    }
}

/// Returns the code of all containers of an array that ends with a null pointer.
fn link_array(array: usize, target: &Target) -> Answer<Image> {
    let pointers = Caller(array);
    let mut inputs = Vec::new();
    for index in 0..ENTRIES_MAX as u64 {
        match u64_at(&Part(&pointers, 8 * index), 0) {
            Some(0) | None => break,
            Some(container) => inputs.push(choose(&Caller(container as usize), target)?),
        }
    }
    match inputs.is_empty() {
        true => Err(Code::NO_BINARY_FOR_GPU),
        false => Image::linked(inputs, Compilation::default()),
    }
}

#[cfg(test)]
#[path = "fatbin_tests.rs"]
pub(crate) mod tests;
