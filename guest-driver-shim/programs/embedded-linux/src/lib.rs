//! Embeds the programs for Linux guests, which this crate's build script builds: the workloads of
//! `guest-driver-shim/programs/linux`, and `causeway-info`. All are static executables.

/// Name and ELF image of each program.
const IMAGES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// Returns the names of all embedded programs.
pub fn names() -> impl Iterator<Item = &'static str> {
    IMAGES.iter().map(|(name, _)| *name)
}

/// Returns the ELF image of the program called `name`; `None` if no embedded program has this name.
#[must_use]
pub fn image(name: &str) -> Option<&'static [u8]> {
    let found = IMAGES.iter().find(|(known, _)| *known == name);
    found.map(|(_, image)| *image)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of the program header that names a dynamic loader (ELF-64 Object File Format, version
    /// 1.5).
    const PT_INTERP: u32 = 3;

    #[test]
    fn every_program_is_for_x86_64_and_wants_no_loader() {
        for name in names() {
            let image = image(name).unwrap();
            assert_eq!(&image[..5], b"\x7fELF\x02", "{name}");
            let half = |at: usize| u16::from_le_bytes(image[at..at + 2].try_into().unwrap());
            let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
            assert_eq!(half(18), 62, "{name} is not for x86-64");
            let (first, size, count) = (word(32) as usize, half(54), half(56));
            for header in 0..count {
                let at = first + usize::from(header * size);
                assert_ne!(word(at), PT_INTERP, "{name} is dynamic");
            }
        }
        assert!(names().count() >= 5);
        assert_eq!(image("no such program"), None);
    }
}
