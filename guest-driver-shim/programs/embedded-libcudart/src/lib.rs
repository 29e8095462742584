//! Embeds the CUDA runtime library of `guest-driver-shim/cudart`, which this crate's build script
//! builds.

/// The library, an ELF shared object with the name (`DT_SONAME`) `libcudart.so.13`.
pub const IMAGE: &[u8] = include_bytes!(env!("CAUSEWAY_LIBCUDART"));

#[cfg(test)]
mod tests {
    use super::IMAGE;

    #[test]
    fn the_library_has_what_code_of_nvcc_calls() {
        assert_eq!(&IMAGE[..5], b"\x7fELF\x02");
        let contains = |text: &[u8]| IMAGE.windows(text.len()).any(|bytes| bytes == text);
        let names: [&[u8]; 4] = [
            b"\0libcudart.so.13\0",
            b"\0__cudaRegisterFatBinary\0",
            b"\0__cudaLaunchKernel_ptsz\0",
            b"\0cudaMalloc\0",
        ];
        for name in names {
            assert!(contains(name), "{}", String::from_utf8_lossy(name));
        }
    }
}
