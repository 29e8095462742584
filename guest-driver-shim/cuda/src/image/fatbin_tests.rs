use super::*;
use crate::image::compression::tests::compress;
use crate::image::elf::MACHINE;
use crate::image::elf::tests::{cubin, file};
use crate::image::tests::{GPU, PTX, SOFTWARE};
use crate::image::{at, of};

/// An entry to be built.
pub(crate) struct Built<'a> {
    pub(crate) kind: u16,
    pub(crate) architecture: u32,
    header_bytes: u32,
    method: Option<Method>,
    pub(crate) content: &'a [u8],
}

impl<'a> Built<'a> {
    pub(crate) fn ptx(architecture: u32, text: &'a str) -> Self {
        Self {
            kind: KIND_PTX,
            architecture,
            header_bytes: 64,
            method: None,
            content: text.as_bytes(),
        }
    }

    fn elf(architecture: u32, content: &'a [u8]) -> Self {
        Self {
            kind: KIND_ELF,
            content,
            ..Self::ptx(architecture, "")
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let stored = match self.method {
            Some(method) => compress(method, self.content),
            None => self.content.to_vec(),
        };
        let flags = match self.method {
            None => 0x11,
            Some(Method::Lz4) => 0x11 | FLAG_LZ4,
            Some(Method::Zstd) => 0x11 | FLAG_ZSTD,
        };
        let padded = stored.len().next_multiple_of(8);
        let mut entry = vec![0; self.header_bytes as usize];
        entry[..2].copy_from_slice(&self.kind.to_le_bytes());
        entry[2..4].copy_from_slice(&0x101_u16.to_le_bytes());
        entry[4..8].copy_from_slice(&self.header_bytes.to_le_bytes());
        entry[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        entry[28..32].copy_from_slice(&self.architecture.to_le_bytes());
        entry[40..48].copy_from_slice(&flags.to_le_bytes());
        if self.method.is_some() {
            entry[16..20].copy_from_slice(&(stored.len() as u32).to_le_bytes());
            entry[56..64].copy_from_slice(&(self.content.len() as u64).to_le_bytes());
        }
        entry.extend_from_slice(&stored);
        entry.resize(self.header_bytes as usize + padded, 0);
        entry
    }
}

pub(crate) fn fatbin(entries: &[Built<'_>]) -> Vec<u8> {
    let body: Vec<u8> = entries.iter().flat_map(Built::bytes).collect();
    let size = (body.len() as u64).to_le_bytes();
    [MAGIC, &[1, 0, 16, 0], &size, &body].concat()
}

fn chosen(image: &[u8], target: &Target) -> Answer<Image> {
    of(&image, target)
}

fn version(minor: u32) -> String {
    format!(".version 8.{minor}\n.target sm_70\n")
}

#[test]
fn a_cubin_for_the_gpu_is_preferred_to_text() {
    let (older, own) = (cubin(80), cubin(90));
    let image = fatbin(&[
        Built::ptx(80, PTX),
        Built::elf(80, &older),
        Built::elf(90, &own),
    ]);
    assert_eq!(chosen(&image, &GPU), Ok(Image::Machine(own)));
    assert_eq!(chosen(&image, &SOFTWARE), Ok(Image::Text(PTX.into())));
}

#[test]
fn the_newest_text_that_the_device_takes_is_chosen() {
    let (first, second, third) = (version(1), version(2), version(3));
    let image = fatbin(&[
        Built::ptx(75, &first),
        Built::ptx(90, &second),
        Built::ptx(100, &third),
    ]);
    assert_eq!(chosen(&image, &SOFTWARE), Ok(Image::Text(second)));
    let only_newer = fatbin(&[Built::ptx(100, &third)]);
    assert_eq!(chosen(&only_newer, &SOFTWARE), Err(Code::NO_BINARY_FOR_GPU));
    assert_eq!(chosen(&fatbin(&[]), &GPU), Err(Code::NO_BINARY_FOR_GPU));
}

/// A cubin that calls what only PTX gets.
fn calling() -> Vec<u8> {
    let symbols = (".strtab", 3, &b"\0k\0cudaGraphSetConditional\0"[..]);
    file(MACHINE, 90, &[(".text.k", 1, b"code"), symbols])
}

#[test]
fn text_is_chosen_where_a_cubin_would_make_the_device_fault() {
    let code = calling();
    let with = |text| fatbin(&[Built::ptx(80, text), Built::elf(90, &code)]);
    assert_eq!(chosen(&with(PTX), &GPU), Ok(Image::Text(PTX.into())));
    let refused = |image: &[u8]| chosen(image, &GPU).and_then(|image| image.check(&GPU));
    let only = fatbin(&[Built::ptx(100, PTX), Built::elf(90, &code)]);
    for image in [only, with("no text of PTX")] {
        assert_eq!(refused(&image), Err(Code::NOT_SUPPORTED));
    }
}

#[test]
fn text_comes_before_machine_code_with_managed_variables() {
    let code = crate::image::managed::tests::cubin_with_symbol(1, 4);
    let image = fatbin(&[Built::ptx(80, PTX), Built::elf(90, &code)]);
    assert_eq!(chosen(&image, &GPU), Ok(Image::Text(PTX.into())));
    let only = chosen(&fatbin(&[Built::elf(90, &code)]), &GPU);
    let checked = only.and_then(|image| image.check(&GPU));
    assert_eq!(checked, Err(Code::NOT_SUPPORTED));
}

#[test]
fn relocatable_text_is_linked_where_the_linked_cubin_would_make_the_device_fault() {
    let code = calling();
    let linked = fatbin(&[Built::elf(90, &code)]);
    let part = fatbin(&[Built::ptx(80, PTX), Built::elf(90, &code)]);
    let array = [part.as_ptr() as usize, 0];
    let given = wrapper(2, linked.as_ptr() as usize, array.as_ptr() as usize);
    let found = at(given.as_ptr() as usize, &GPU);
    assert_eq!(found, Ok(Image::Text(PTX.into())));
    let alone = wrapper(2, linked.as_ptr() as usize, 0);
    let found = at(alone.as_ptr() as usize, &GPU);
    assert_eq!(found, Ok(Image::Machine(code)));
}

#[test]
fn entries_are_found_behind_headers_of_any_size_and_decompressed() {
    let text = PTX.repeat(50);
    let code = cubin(90);
    for header_bytes in [64, 80, 112, 120] {
        for method in [None, Some(Method::Lz4), Some(Method::Zstd)] {
            let image = fatbin(&[
                Built {
                    header_bytes,
                    method,
                    ..Built::ptx(50, &text)
                },
                Built {
                    header_bytes,
                    method,
                    ..Built::elf(90, &code)
                },
            ]);
            let found = (chosen(&image, &SOFTWARE), chosen(&image, &GPU));
            let wanted = (Image::Text(text.clone()), Image::Machine(code.clone()));
            assert_eq!(
                found,
                (Ok(wanted.0), Ok(wanted.1)),
                "{header_bytes} {method:?}"
            );
        }
    }
}

#[test]
fn cut_images_are_refused() {
    for method in [None, Some(Method::Lz4), Some(Method::Zstd)] {
        let entry = Built {
            method,
            ..Built::ptx(80, PTX)
        };
        let image = fatbin(&[entry]);
        for end in MAGIC.len()..image.len() {
            assert_eq!(
                chosen(&image[..end], &GPU),
                Err(Code::INVALID_IMAGE),
                "{end}"
            );
        }
    }
}

#[test]
fn no_entry_is_larger_than_it_says_nor_than_any_image() {
    let bomb = vec![b' '; 8 << 20];
    for method in [Method::Lz4, Method::Zstd] {
        let entry = Built {
            method: Some(method),
            ..Built::ptx(80, "")
        };
        let image = fatbin(&[Built {
            content: &bomb,
            ..entry
        }]);
        let with_size = |bytes: u64| {
            let mut image = image.clone();
            image[16 + 56..16 + 64].copy_from_slice(&bytes.to_le_bytes());
            chosen(&image, &GPU)
        };
        for bytes in [0, 100, (8 << 20) - 1, BYTES_MAX + 1, u64::MAX] {
            assert_eq!(with_size(bytes), Err(Code::INVALID_IMAGE), "{bytes}");
        }
    }
}

#[test]
fn content_that_is_not_what_the_header_says_is_refused() {
    // Encrypted content is one of these.
    let image = fatbin(&[Built::elf(90, b"neither ELF nor compressed")]);
    assert_eq!(chosen(&image, &GPU), Err(Code::INVALID_IMAGE));
    let image = fatbin(&[Built::ptx(90, "no text of PTX")]);
    assert_eq!(chosen(&image, &GPU), Err(Code::INVALID_IMAGE));
    let other = cubin(80);
    let image = fatbin(&[Built::elf(90, &other[..40])]);
    assert_eq!(chosen(&image, &GPU), Err(Code::INVALID_IMAGE));
}

fn wrapper(version: u32, container: usize, behind: usize) -> Vec<u64> {
    let magic = u64::from(u32::from_le_bytes([0xb1, 0x43, 0x62, 0x46]));
    vec![
        magic | u64::from(version) << 32,
        container as u64,
        behind as u64,
    ]
}

#[test]
fn a_wrapper_leads_to_its_container() {
    let image = fatbin(&[Built::ptx(80, PTX)]);
    for version in [1, 2] {
        let wrapper = wrapper(version, image.as_ptr() as usize, 0);
        let found = at(wrapper.as_ptr() as usize, &SOFTWARE);
        assert_eq!(found, Ok(Image::Text(PTX.into())));
    }
    for bad in [wrapper(3, image.as_ptr() as usize, 0), wrapper(1, 0, 0)] {
        let found = at(bad.as_ptr() as usize, &SOFTWARE);
        assert_eq!(found, Err(Code::INVALID_IMAGE));
    }
}

#[test]
fn relocatable_containers_are_linked_where_the_linked_one_does_not_suit() {
    let code = cubin(90);
    let (first, second) = (version(1), version(2));
    let linked = fatbin(&[Built::elf(90, &code)]);
    let parts = [
        fatbin(&[Built::ptx(80, &first)]),
        fatbin(&[Built::ptx(80, &second)]),
    ];
    let array = [parts[0].as_ptr() as usize, parts[1].as_ptr() as usize, 0];
    let wrapper = wrapper(2, linked.as_ptr() as usize, array.as_ptr() as usize);
    let address = wrapper.as_ptr() as usize;
    assert_eq!(at(address, &GPU), Ok(Image::Machine(code)));
    let texts = vec![Image::Text(first), Image::Text(second)];
    assert_eq!(
        at(address, &SOFTWARE),
        Ok(Image::Linked(texts, Compilation::default()))
    );
}
