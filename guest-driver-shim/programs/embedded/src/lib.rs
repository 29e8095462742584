//! Embeds the programs for guests that are part of the `causeway` command: the bare guests of
//! `guest-driver-shim/programs/bare`, and the first program of Linux guests. This crate's build
//! script builds them.

/// The static executable of `guest-driver-shim/init`, which an initramfs has as `/init`.
pub const INIT: &[u8] = include_bytes!(env!("CAUSEWAY_INIT"));

/// Name and ELF image of each guest.
const IMAGES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// Names of all embedded guests. The first is the default of `causeway run`.
pub const NAMES: [&str; IMAGES.len()] = {
    let mut names = [""; IMAGES.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = IMAGES[i].0;
        i += 1;
    }
    names
};

/// Returns the ELF image of the guest called `name`; `None` if no embedded guest has this name.
#[must_use]
pub fn image(name: &str) -> Option<&'static [u8]> {
    IMAGES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, image)| *image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guest_is_a_static_elf_image_above_the_boot_structures() {
        for name in NAMES {
            let image = image(name).unwrap();
            assert_eq!(&image[..4], b"\x7fELF", "{name}");
            assert_eq!(image[4], 2, "{name} is not 64-bit");
            let field = |at: usize| u16::from_le_bytes(image[at..at + 2].try_into().unwrap());
            assert_eq!(field(16), 2, "{name} is not ET_EXEC");
            assert_eq!(field(18), 62, "{name} is not for x86-64");
            let entry = u64::from_le_bytes(image[24..32].try_into().unwrap());
            assert!(
                (0x10_0000..0x4000_0000).contains(&entry),
                "{name} enters at {entry:#x}"
            );
        }
        assert_eq!(NAMES[0], "compute");
        assert_eq!(image("no such guest"), None);
    }
}
