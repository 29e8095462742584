//! Embeds the CUDA runtime library of `guest-driver-shim/cudart`, which this crate's build script
//! builds.

/// The library, an ELF shared object with the name (`DT_SONAME`) `libcudart.so.13`.
pub const IMAGE: &[u8] = include_bytes!(env!("CAUSEWAY_LIBCUDART"));

/// The same as `libcudart_static.a`, an archive with one object, which nvcc puts into programs.
pub const ARCHIVE: &[u8] = include_bytes!(env!("CAUSEWAY_LIBCUDART_STATIC"));

#[cfg(test)]
mod tests {
    use super::{ARCHIVE, IMAGE};

    fn contains(image: &[u8], name: &str) -> bool {
        let text = format!("\0{name}\0");
        image
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    }

    #[test]
    fn the_libraries_have_what_code_of_nvcc_calls() {
        assert_eq!(&IMAGE[..5], b"\x7fELF\x02");
        assert!(contains(IMAGE, "libcudart.so.13"));
        assert_eq!(&ARCHIVE[..8], b"!<arch>\n");
        let names = [
            "__cudaRegisterFatBinary",
            "__cudaLaunchKernel_ptsz",
            "cudaMalloc",
        ];
        for name in names {
            assert!(contains(IMAGE, name) && contains(ARCHIVE, name), "{name}");
        }
    }
}
