use super::*;

const ENTRY: u64 = 0x100_0000;

/// Returns an ELF executable of one segment at [`ENTRY`], with a PVH note if `pvh` says where it
/// enters.
fn elf(pvh: Option<u32>) -> Vec<u8> {
    let mut image = vec![0; 0x1000];
    image[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let mut put = |offset: usize, bytes: &[u8]| {
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    put(16, &2u16.to_le_bytes()); // Executable.
    put(18, &62u16.to_le_bytes()); // x86-64.
    put(24, &ENTRY.to_le_bytes());
    put(32, &64u64.to_le_bytes()); // Program headers follow.
    put(54, &56u16.to_le_bytes());
    put(56, &2u16.to_le_bytes());
    // Type and flags, offset, virtual and physical address, bytes in file and memory.
    let load = [
        1 | 5 << 32,
        0x800,
        0xffff_ffff_8100_0000,
        ENTRY,
        0x100,
        0x2000,
        0,
    ];
    let note = [4, 0x400, 0, 0, 20, 20, 0];
    for (at, words) in [(64, load), (120, note)] {
        for (i, word) in words.into_iter().enumerate() {
            put(at + 8 * i, &u64::to_le_bytes(word));
        }
    }
    if let Some(entry) = pvh {
        for (i, word) in [4, 4, 18, u32::from_le_bytes(*b"Xen\0"), entry]
            .iter()
            .enumerate()
        {
            put(0x400 + 4 * i, &word.to_le_bytes());
        }
    }
    image
}

/// LZ4's legacy frame around a block that is not compressed, as the kernel's build makes it.
fn lz4(content: &[u8]) -> Vec<u8> {
    let mut block = vec![0xf0];
    let long = content.len() - 15;
    block.extend(std::iter::repeat_n(255, long / 255));
    block.push((long % 255) as u8);
    block.extend(content);
    let mut payload = 0x184c_2102u32.to_le_bytes().to_vec();
    payload.extend((block.len() as u32).to_le_bytes());
    payload.extend(block);
    payload.extend((content.len() as u32).to_le_bytes());
    payload
}

/// Returns a bzImage with one sector of setup code.
fn bzimage(payload: &[u8]) -> Vec<u8> {
    const SYSTEM: usize = 1024;
    let mut image = vec![0; SYSTEM];
    let mut put = |offset: usize, bytes: &[u8]| {
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    let paragraphs = (payload.len() + 16).div_ceil(16);
    put(0x1f1, &[1]);
    put(0x1f4, &(paragraphs as u32).to_le_bytes());
    put(0x201, &[0x6a]);
    put(0x202, b"HdrS");
    put(0x206, &0x020fu16.to_le_bytes());
    put(0x211, &[1]);
    put(0x22c, &0x7fff_ffffu32.to_le_bytes());
    put(0x236, &1u16.to_le_bytes());
    put(0x238, &2047u32.to_le_bytes());
    put(0x248, &16u32.to_le_bytes());
    put(0x24c, &(payload.len() as u32).to_le_bytes());
    put(0x258, &ENTRY.to_le_bytes());
    put(0x260, &0x10_0000u32.to_le_bytes());
    image.resize(SYSTEM + 16, 0);
    image.extend(payload);
    image.resize(SYSTEM + paragraphs * 16, 0);
    image
}

fn recognize(image: Vec<u8>, wanted: Option<BootProtocol>) -> Result<Option<Kernel>, KernelError> {
    Kernel::recognize(image.into(), wanted)
}

fn refused(image: Vec<u8>, wanted: Option<BootProtocol>) -> String {
    recognize(image, wanted).expect_err("refused").to_string()
}

#[test]
fn elf_kernels_are_told_from_bare_guests_by_their_note() {
    assert!(recognize(elf(None), None).unwrap().is_none());
    let kernel = recognize(elf(Some(0x100_0530)), None).unwrap().unwrap();
    assert_eq!(
        (kernel.protocol, kernel.entry),
        (BootProtocol::Pvh, 0x100_0530)
    );
    assert_eq!(kernel.range, ENTRY..ENTRY + 0x2000);
    let kernel = recognize(elf(None), Some(BootProtocol::Linux64))
        .unwrap()
        .unwrap();
    assert_eq!(
        (kernel.protocol, kernel.entry),
        (BootProtocol::Linux64, ENTRY)
    );
    assert!(refused(elf(None), Some(BootProtocol::Pvh)).contains("without the PVH entry point"));
    assert!(refused(elf(None), Some(BootProtocol::BzImage)).contains("ELF"));
}

#[test]
fn what_a_bzimage_contains_is_entered_directly() {
    let kernel = recognize(bzimage(&lz4(&elf(Some(1)))), None)
        .unwrap()
        .unwrap();
    assert_eq!(
        (kernel.protocol, kernel.entry),
        (BootProtocol::Linux64, ENTRY)
    );
    assert_eq!(kernel.initramfs_max, 0x7fff_ffff);
    assert_eq!({ kernel.header.unwrap().version }, 0x020f);
    let Content::Payload { segments, .. } = kernel.content else {
        panic!("it is decompressed");
    };
    let [segment] = &segments[..] else {
        panic!("one segment");
    };
    assert_eq!(
        (segment.file.clone(), segment.address),
        (0x800..0x900, ENTRY)
    );
}

#[test]
fn a_bzimage_boots_as_it_is_if_it_has_to_or_is_to() {
    for (payload, wanted) in [
        (b"\xfd7zXZ\0 and so on".to_vec(), None),
        (lz4(&elf(None)), Some(BootProtocol::BzImage)),
    ] {
        let kernel = recognize(bzimage(&payload), wanted).unwrap().unwrap();
        assert_eq!(
            (kernel.protocol, kernel.entry),
            (BootProtocol::BzImage, ENTRY + 0x200)
        );
        assert_eq!(kernel.range, ENTRY..ENTRY + 0x10_0000);
    }
    for wanted in [BootProtocol::Pvh, BootProtocol::Linux64] {
        let text = refused(bzimage(b"\xfd7zXZ\0 and so on"), Some(wanted));
        assert!(
            text.contains(&format!("cannot be booted as {wanted}")),
            "{text}"
        );
    }
}

#[test]
fn kernels_that_cannot_boot_here_say_why() {
    let whole = bzimage(&lz4(&elf(None)));
    let spoiled = |offset: usize, bytes: &[u8]| {
        let mut image = whole.clone();
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
        refused(image, None)
    };
    assert!(spoiled(0x206, &[0x09, 2]).contains("2.09, which is too old"));
    assert!(spoiled(0x236, &[0]).contains("no 64-bit entry point"));
    assert!(spoiled(0x38, b"ARM\x64").contains("arm64"));
    assert!(spoiled(0x24c, &[0xff; 4]).contains("truncated"));
    let cut = |bytes: usize| refused(whole[..bytes].to_vec(), None);
    assert!(cut(whole.len() - 16).contains("the protected-mode kernel"));
    assert!(cut(0x210).contains("the setup header"));
    let text = refused(bzimage(&lz4(&[7; 100])), None);
    assert!(text.contains("not an ELF image"), "{text}");
}

#[test]
fn what_is_no_kernel_is_told_with_what_it_is_and_the_way_out() {
    for wanted in [None, Some(BootProtocol::Linux64)] {
        assert!(refused(Vec::new(), wanted).contains("the file given with --kernel is empty"));
        let text = refused(b"#!/bin/sh\n".to_vec(), wanted);
        assert!(
            text.contains("neither a Linux kernel") && text.contains("10 bytes"),
            "{text}"
        );
        let text = refused(b"\x1f\x8b\x08\0...".to_vec(), wanted);
        assert!(text.contains("gunzip"), "{text}");
        let mut other = elf(None);
        other[18] = 183;
        assert!(refused(other, wanted).contains("machine 183 (AArch64)"));
        let mut short = elf(None);
        short[4] = 1;
        assert!(refused(short, wanted).contains("class 1"));
    }
}

#[test]
fn no_prefix_of_a_kernel_is_a_panic() {
    let whole = bzimage(&lz4(&elf(Some(1))));
    for bytes in 0..whole.len().min(0x300) {
        let _ = recognize(whole[..bytes].to_vec(), None);
    }
    let elf = elf(Some(1));
    for bytes in 0..elf.len() {
        let _ = recognize(elf[..bytes].to_vec(), Some(BootProtocol::Pvh));
    }
}
