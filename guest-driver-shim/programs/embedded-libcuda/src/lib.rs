//! Embeds the CUDA driver library of `guest-driver-shim/cuda`, which this crate's build script
//! builds.

/// The library, an ELF shared object with the name (`DT_SONAME`) `libcuda.so.1`.
pub const IMAGE: &[u8] = include_bytes!(env!("CAUSEWAY_LIBCUDA"));

#[cfg(test)]
mod tests {
    use super::IMAGE;

    #[test]
    fn the_library_is_a_shared_object_for_x86_64() {
        assert_eq!(&IMAGE[..5], b"\x7fELF\x02");
        let field = |at: usize| u16::from_le_bytes(IMAGE[at..at + 2].try_into().unwrap());
        assert_eq!(field(16), 3, "not ET_DYN");
        assert_eq!(field(18), 62, "not for x86-64");
        let contains = |text: &[u8]| IMAGE.windows(text.len()).any(|bytes| bytes == text);
        assert!(contains(b"\0libcuda.so.1\0"));
        assert!(contains(b"\0cuInit\0"));
    }
}
