//! Fat binaries: a container with code for several architectures.
//!
//! The layout is not documented by NVIDIA; this is what `fatbinary` of CUDA 11 to 13 writes and
//! `cuobjdump` reads: a header of 16 bytes (magic, version 1, size of the header, size of all
//! entries), then entries, each with a header of its own (kind, size of the header, size of what
//! follows, size if compressed, architecture) and its content.

use causeway_mediator::backend::ModuleError;
use object::ReadRef as _;

use super::elf::{self, Cubin};
use super::refusal::refused;
use super::{Image, ptx, u16_at, u32_at, u64_at};

/// The first bytes of a fat binary: the number 0xBA55ED50, little-endian.
pub(super) const MAGIC: &[u8] = &[0x50, 0xed, 0x55, 0xba];
/// Size of the header, in bytes.
const HEADER_BYTES: u16 = 16;
/// Entries, at most.
const ENTRIES_MAX: usize = 1024;
/// Least size of an entry's header, in bytes.
const ENTRY_HEADER_BYTES: usize = 64;
/// Kinds of entries.
const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;

/// A fat binary of which every header was checked: all entries lie inside the image.
#[derive(Debug)]
pub(super) struct Fatbin<'a> {
    entries: Vec<Entry<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    kind: u16,
    architecture: u32,
    compressed: bool,
    content: &'a [u8],
}

impl<'a> Fatbin<'a> {
    /// Returns the fat binary in `bytes`, after every header was checked against the length of the
    /// image.
    ///
    /// # Errors
    /// [`ModuleError`]: a header, or an entry that it describes, lies outside.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ModuleError> {
        let malformed = || refused("the fat binary is malformed: a header points beyond its end");
        let header = u64::from(u16_at(bytes, 6).ok_or_else(malformed)?);
        let size = u64_at(bytes, 8).ok_or_else(malformed)?;
        if header < u64::from(HEADER_BYTES) {
            return Err(malformed());
        }
        let rest = bytes.read_bytes_at(header, size);
        let mut rest = rest.map_err(|()| malformed())?;
        let mut entries = Vec::new();
        while !rest.is_empty() && entries.len() < ENTRIES_MAX {
            let (entry, behind) = entry(rest).ok_or_else(malformed)?;
            entries.push(entry);
            rest = behind;
        }
        Ok(Self { entries })
    }

    /// Returns the entry that suits a GPU of `architecture` best: a cubin for it, or else PTX. It
    /// is returned without the fat binary around it: of several entries, the driver might take one
    /// that was not looked at. Compressed entries suit no GPU, because their headers and symbols
    /// cannot be checked here; the guest's `libcuda.so.1` decompresses them.
    ///
    /// # Errors
    /// [`ModuleError`]: no entry suits the GPU, or the cubin is malformed.
    pub(super) fn choose(&self, architecture: u32) -> Result<Image<'a>, ModuleError> {
        let suits = |entry: &&Entry<'_>| match entry.kind {
            _ if entry.compressed => false,
            KIND_ELF => elf::runs_on(entry.architecture, architecture),
            KIND_PTX => entry.architecture <= architecture,
            _ => false,
        };
        let rank = |entry: &&Entry<'_>| (entry.kind == KIND_ELF, entry.architecture);
        let best = self.entries.iter().filter(suits).max_by_key(rank);
        match best {
            Some(entry) if entry.kind == KIND_ELF => {
                let cubin = Cubin::parse(entry.content)?;
                cubin.check_architecture(architecture)?;
                Ok(Image::Cubin(cubin))
            }
            Some(entry) => ptx(entry.content).map(Image::Ptx),
            None => Err(refused(format!(
                "the fat binary has {}, this GPU is sm_{architecture}: \
                 add PTX or a cubin for sm_{architecture}{}",
                self.list(),
                self.way_out(),
            ))),
        }
    }

    /// Returns what to do about compressed entries.
    fn way_out(&self) -> &'static str {
        match self.entries.iter().any(|entry| entry.compressed) {
            true => " that is not compressed (`nvcc --no-compress`)",
            false => "",
        }
    }

    fn list(&self) -> String {
        let name = |entry: &Entry<'_>| {
            let compressed = if entry.compressed {
                " (compressed)"
            } else {
                ""
            };
            match entry.kind {
                KIND_PTX => format!("PTX for compute_{}{compressed}", entry.architecture),
                KIND_ELF => format!("a cubin for sm_{}{compressed}", entry.architecture),
                kind => format!("an entry of kind {kind}"),
            }
        };
        let names: Vec<String> = self.entries.iter().take(16).map(name).collect();
        match names.is_empty() {
            true => String::from("nothing"),
            false => names.join(", "),
        }
    }
}

/// Returns the entry at the beginning of `bytes`, and the bytes behind it.
fn entry(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let kind = u16_at(bytes, 0)?;
    let header = usize::try_from(u32_at(bytes, 4)?).ok()?;
    let size = usize::try_from(u64_at(bytes, 8)?).ok()?;
    let architecture = u32_at(bytes, 28)?;
    if header < ENTRY_HEADER_BYTES {
        return None;
    }
    let end = header.checked_add(size)?;
    let content = bytes.get(header..end)?;
    // What says that it is compressed and is not would reach the driver unseen.
    let compressed = u32_at(bytes, 16)? != 0 && !content.starts_with(elf::MAGIC);
    let entry = Entry {
        kind,
        architecture,
        compressed,
        content,
    };
    Some((entry, &bytes[end..]))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::image::classify;
    use crate::image::elf::tests::cubin;

    pub(in crate::image) fn fatbin(entries: &[(u16, u32, bool, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, architecture, compressed, content) in entries.iter().copied() {
            let mut header = [0; ENTRY_HEADER_BYTES];
            header[..2].copy_from_slice(&kind.to_le_bytes());
            header[4..8].copy_from_slice(&(ENTRY_HEADER_BYTES as u32).to_le_bytes());
            header[8..16].copy_from_slice(&(content.len() as u64).to_le_bytes());
            header[16..20].copy_from_slice(&u32::from(compressed).to_le_bytes());
            header[28..32].copy_from_slice(&architecture.to_le_bytes());
            body.extend_from_slice(&header);
            body.extend_from_slice(content);
        }
        let mut image = MAGIC.to_vec();
        image.extend_from_slice(&[1, 0, 16, 0]);
        image.extend_from_slice(&(body.len() as u64).to_le_bytes());
        image.extend_from_slice(&body);
        image
    }

    const PTX: &[u8] = b".version 7.0\0\0\0\0";

    #[test]
    fn a_cubin_for_the_gpu_is_preferred_to_text() {
        let code = cubin(90, 7, &[(".text.k", 1, 2, 40)]);
        let other = cubin(80, 7, &[(".text.k", 1, 2, 40)]);
        let image = fatbin(&[
            (KIND_PTX, 80, false, PTX),
            (KIND_ELF, 80, false, &other),
            (KIND_ELF, 90, false, &code),
        ]);
        assert!(matches!(
            classify(&image, 90),
            Ok(Image::Cubin(cubin)) if cubin.bytes == code && cubin.loaded_bytes() == 40
        ));
        assert!(matches!(classify(&image, 100), Ok(Image::Ptx(text)) if text == b".version 7.0\0"));
    }

    #[test]
    fn what_is_compressed_never_reaches_the_driver() {
        for (kind, name) in [
            (KIND_ELF, "a cubin for sm_90 (compressed)"),
            (KIND_PTX, "PTX for compute_90 (compressed)"),
        ] {
            // Even text: the driver would decompress it.
            for content in [&b"zzzz"[..], PTX] {
                let compressed = (kind, 90, true, content);
                let text = classify(&fatbin(&[compressed]), 90).unwrap_err().reason;
                for part in [name, "--no-compress"] {
                    assert!(text.contains(part), "{text}");
                }
                let image = fatbin(&[compressed, (KIND_PTX, 80, false, PTX)]);
                assert!(matches!(classify(&image, 90), Ok(Image::Ptx(_))), "{name}");
            }
        }
    }

    #[test]
    fn what_only_says_that_it_is_compressed_is_looked_at() {
        let code = cubin(90, 7, &[(".text.k", 1, 2, 40)]);
        let image = fatbin(&[(KIND_ELF, 90, true, &code)]);
        assert!(matches!(classify(&image, 90), Ok(Image::Cubin(cubin)) if cubin.bytes == code));
        let image = fatbin(&[(KIND_ELF, 90, true, &code[..64])]);
        classify(&image, 90).unwrap_err();
    }

    #[test]
    fn other_architectures_are_listed() {
        let image = fatbin(&[(KIND_ELF, 80, false, b"x"), (KIND_PTX, 100, false, PTX)]);
        let text = classify(&image, 90).unwrap_err().reason;
        for part in ["sm_80", "compute_100", "this GPU is sm_90"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_lie_about_the_architecture_changes_nothing() {
        let code = cubin(80, 7, &[(".text.k", 1, 2, 40)]);
        let image = fatbin(&[(KIND_ELF, 90, false, &code)]);
        let text = classify(&image, 90).unwrap_err().reason;
        assert!(text.contains("the cubin is for sm_80"), "{text}");
    }

    #[test]
    fn cut_images_are_refused() {
        let image = fatbin(&[(KIND_PTX, 80, false, PTX)]);
        for length in MAGIC.len()..image.len() {
            assert!(classify(&image[..length], 90).is_err(), "cut at {length}");
        }
    }
}
