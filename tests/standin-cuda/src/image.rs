//! Module images: PTX text, ELF files for a device, and fat binaries of both.
//!
//! The stand-in executes no machine code. An ELF file for it has the PTX that it was made of in a
//! section of its own.

/// Section with the PTX text in the cubins of the stand-in.
const PTX_SECTION: &str = ".causeway.ptx";
/// `EM_CUDA`
const MACHINE: u16 = 190;
const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
/// Magic numbers of a fat binary, and of the structure that names one.
const FAT_MAGIC: u32 = 0xba55_ed50;
const FAT_WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// A cubin for compute capability `capability` (90 is 9.0) that the stand-in can execute: it holds
/// `ptx`.
///
/// `global_bytes` and `constant_bytes` are the sizes of the sections that a loader gives memory to:
/// variables in global and in constant memory.
pub fn cubin(ptx: &str, capability: u32, global_bytes: u64, constant_bytes: u64) -> Vec<u8> {
    const PROGBITS: u32 = 1;
    const STRINGS: u32 = 3;
    const NOBITS: u32 = 8;
    const ALLOC: u64 = 2;
    const WRITE: u64 = 1;
    let names = format!("\0{PTX_SECTION}\0.nv.global\0.nv.constant3\0.shstrtab\0");
    let name = |wanted: &str| names.find(wanted).unwrap_or(0) as u32;
    let text = [ptx.as_bytes(), b"\0"].concat();
    let text_at = HEADER_BYTES as u64;
    let names_at = text_at + text.len() as u64;
    let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
    let mut image = vec![0; HEADER_BYTES];
    image[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\x33\x07\0\0\0\0\0\0\0");
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &2_u16.to_le_bytes());
    put(18, &MACHINE.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(40, &sections_at.to_le_bytes());
    put(48, &(capability | capability << 16).to_le_bytes());
    put(52, &(HEADER_BYTES as u16).to_le_bytes());
    put(58, &(SECTION_BYTES as u16).to_le_bytes());
    put(60, &5_u16.to_le_bytes());
    put(62, &4_u16.to_le_bytes());
    image.extend_from_slice(&text);
    image.extend_from_slice(names.as_bytes());
    image.resize(sections_at as usize, 0);
    let sections = [
        (0, 0, 0, 0, 0),
        (name(PTX_SECTION), PROGBITS, 0, text_at, text.len() as u64),
        (
            name(".nv.global"),
            NOBITS,
            ALLOC | WRITE,
            text_at,
            global_bytes,
        ),
        // The content of constants is in the PTX.
        (
            name(".nv.constant3"),
            NOBITS,
            ALLOC,
            text_at,
            constant_bytes,
        ),
        (name(".shstrtab"), STRINGS, 0, names_at, names.len() as u64),
    ];
    for (name, kind, flags, offset, bytes) in sections {
        let mut header = [0; SECTION_BYTES];
        header[..4].copy_from_slice(&u32::to_le_bytes(name));
        header[4..8].copy_from_slice(&u32::to_le_bytes(kind));
        header[8..16].copy_from_slice(&u64::to_le_bytes(flags));
        header[24..32].copy_from_slice(&u64::to_le_bytes(offset));
        header[32..40].copy_from_slice(&u64::to_le_bytes(bytes));
        header[48] = 1;
        image.extend_from_slice(&header);
    }
    image
}

/// A fat binary of images: whether each is a cubin (else PTX text), its compute capability, and its
/// bytes.
pub fn fatbin(images: &[(bool, u32, &[u8])]) -> Vec<u8> {
    const ENTRY_BYTES: u32 = 64;
    let mut body = Vec::new();
    for (is_cubin, capability, bytes) in images {
        let padded = bytes.len().next_multiple_of(8);
        let mut header = [0; ENTRY_BYTES as usize];
        let kind = if *is_cubin { 2_u16 } else { 1 };
        header[..2].copy_from_slice(&kind.to_le_bytes());
        header[2..4].copy_from_slice(&0x101_u16.to_le_bytes());
        header[4..8].copy_from_slice(&ENTRY_BYTES.to_le_bytes());
        header[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        header[28..32].copy_from_slice(&capability.to_le_bytes());
        body.extend_from_slice(&header);
        body.extend_from_slice(bytes);
        body.resize(body.len() + padded - bytes.len(), 0);
    }
    let mut image = Vec::new();
    image.extend_from_slice(&FAT_MAGIC.to_le_bytes());
    image.extend_from_slice(&1_u16.to_le_bytes());
    image.extend_from_slice(&16_u16.to_le_bytes());
    image.extend_from_slice(&(body.len() as u64).to_le_bytes());
    image.extend_from_slice(&body);
    image
}

/// What an image turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// PTX text.
    Ptx(String),
    /// Nothing in it is for this device.
    OtherDevice,
    /// Machine code for this device.
    MachineCode,
    /// None of the formats.
    Unknown,
}

/// Bytes of an image, the length of which only its content tells. Unsafe in C as well: the client
/// promises that the image is as long as it says.
pub(crate) trait Bytes {
    /// `count` bytes from an offset; `None` beyond the end, where that is known.
    fn get(&self, offset: u64, count: u64) -> Option<Vec<u8>>;
}

impl Bytes for &[u8] {
    fn get(&self, offset: u64, count: u64) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(count).ok()?)?;
        Some(<[u8]>::get(self, start..end)?.to_vec())
    }
}

fn number<const N: usize>(bytes: &impl Bytes, offset: u64) -> Option<[u8; N]> {
    bytes.get(offset, N as u64)?.try_into().ok()
}

fn half(bytes: &impl Bytes, offset: u64) -> Option<u16> {
    number(bytes, offset).map(u16::from_le_bytes)
}

fn word(bytes: &impl Bytes, offset: u64) -> Option<u32> {
    number(bytes, offset).map(u32::from_le_bytes)
}

fn double(bytes: &impl Bytes, offset: u64) -> Option<u64> {
    number(bytes, offset).map(u64::from_le_bytes)
}

/// Whether an image begins as a fat binary, or as what names one; that one's address then.
pub(crate) fn wrapped(bytes: &impl Bytes) -> Option<u64> {
    (word(bytes, 0)? == FAT_WRAPPER_MAGIC).then(|| double(bytes, 8))?
}

/// What is in an ELF file or a fat binary; `None` if it is neither.
pub(crate) fn inspect(bytes: &impl Bytes, capability: u32) -> Option<Image> {
    match word(bytes, 0)? {
        0x464c_457f => Some(elf(bytes, capability).unwrap_or(Image::Unknown)),
        FAT_MAGIC => Some(fat(bytes, capability).unwrap_or(Image::Unknown)),
        _ => None,
    }
}

fn elf(bytes: &impl Bytes, capability: u32) -> Option<Image> {
    if half(bytes, 18)? != MACHINE {
        return None;
    }
    let flags = word(bytes, 48)?;
    // The newer layout of the flags, told by the ABI version, has the capability one byte further
    // up.
    let newer = bytes.get(8, 1)?[0] >= 8;
    let made_for = if newer { flags >> 8 } else { flags } & 0xff;
    if made_for / 10 != capability / 10 || made_for > capability {
        return Some(Image::OtherDevice);
    }
    let (table, size, count) = (double(bytes, 40)?, half(bytes, 58)?, half(bytes, 60)?);
    let section = |index: u16| table.checked_add(u64::from(index) * u64::from(size));
    let names = double(bytes, section(half(bytes, 62)?)?.checked_add(24)?)?;
    for index in 0..count {
        let header = section(index)?;
        let wanted = PTX_SECTION.len() as u64;
        let name = names.checked_add(u64::from(word(bytes, header)?))?;
        if bytes.get(name, wanted).as_deref() == Some(PTX_SECTION.as_bytes()) {
            let (at, length) = (double(bytes, header + 24)?, double(bytes, header + 32)?);
            return text(bytes.get(at, length)?);
        }
    }
    Some(Image::MachineCode)
}

fn text(mut bytes: Vec<u8>) -> Option<Image> {
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes.truncate(end.unwrap_or(bytes.len()));
    String::from_utf8(bytes).ok().map(Image::Ptx)
}

/// A part of a larger image.
struct Part<'b, B>(&'b B, u64);

impl<B: Bytes> Bytes for Part<'_, B> {
    fn get(&self, offset: u64, count: u64) -> Option<Vec<u8>> {
        self.0.get(self.1.checked_add(offset)?, count)
    }
}

/// Machine code for the device is preferred to PTX.
fn fat(bytes: &impl Bytes, capability: u32) -> Option<Image> {
    let header = u64::from(half(bytes, 6)?);
    let end = header.checked_add(double(bytes, 8)?)?;
    let (mut at, mut ptx) = (header, None);
    while at < end {
        let (kind, skip) = (half(bytes, at)?, u64::from(word(bytes, at + 4)?));
        let length = double(bytes, at + 8)?;
        let body = at.checked_add(skip)?;
        match kind {
            2 => match elf_in(bytes, body, capability) {
                Some(Image::OtherDevice) | None => {}
                found => return found,
            },
            1 if word(bytes, at + 28)? <= capability => ptx = text(bytes.get(body, length)?),
            _ => {}
        }
        at = body.checked_add(length)?;
    }
    Some(ptx.unwrap_or(Image::OtherDevice))
}

fn elf_in(bytes: &impl Bytes, at: u64, capability: u32) -> Option<Image> {
    elf(&Part(bytes, at), capability)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubins_are_for_their_architecture() {
        let image = cubin("text", 90, 4, 0);
        assert_eq!(inspect(&&image[..], 90), Some(Image::Ptx("text".into())));
        assert_eq!(inspect(&&image[..], 86), Some(Image::OtherDevice));
        assert_eq!(inspect(&&image[..40], 90), Some(Image::Unknown));
        assert_eq!(inspect(&&b".version 8.0"[..], 90), None);
    }

    #[test]
    fn fat_binaries_offer_what_fits_best() {
        let (older, newer) = (cubin("old", 80, 0, 0), cubin("own", 90, 0, 0));
        let image = fatbin(&[(true, 80, &older), (false, 80, b"ptx"), (true, 90, &newer)]);
        assert_eq!(inspect(&&image[..], 90), Some(Image::Ptx("own".into())));
        assert_eq!(inspect(&&image[..], 120), Some(Image::Ptx("ptx".into())));
        assert_eq!(inspect(&&image[..], 75), Some(Image::OtherDevice));
    }
}
