//! Embeds the CUDA runtime libraries of `guest-driver-shim/cudart`, which this crate's build script
//! builds.

/// The runtime library for programs of one version of CUDA.
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// The version of CUDA, which is that of the library's name (`DT_SONAME`): 13 for
    /// `libcudart.so.13`.
    pub cuda: u32,
    /// The library, an ELF shared object.
    pub image: &'static [u8],
    /// The same as `libcudart_static.a`, an archive with one object, which nvcc puts into programs.
    pub archive: &'static [u8],
}

/// For CUDA 12.
pub const RUNTIME_12: Runtime = Runtime {
    cuda: 12,
    image: include_bytes!(env!("CAUSEWAY_LIBCUDART_12_SHARED")),
    archive: include_bytes!(env!("CAUSEWAY_LIBCUDART_12_STATIC")),
};

/// For CUDA 13.
pub const RUNTIME_13: Runtime = Runtime {
    cuda: 13,
    image: include_bytes!(env!("CAUSEWAY_LIBCUDART_13_SHARED")),
    archive: include_bytes!(env!("CAUSEWAY_LIBCUDART_13_STATIC")),
};

#[cfg(test)]
mod tests {
    use super::{RUNTIME_12, RUNTIME_13, Runtime};

    fn contains(image: &[u8], name: &str) -> bool {
        let text = format!("\0{name}\0");
        image
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    }

    fn check(runtime: Runtime) {
        let Runtime {
            cuda,
            image,
            archive,
        } = runtime;
        assert_eq!(&image[..5], b"\x7fELF\x02");
        assert!(contains(image, &format!("libcudart.so.{cuda}")));
        assert_eq!(&archive[..8], b"!<arch>\n");
        let names = [
            "__cudaRegisterFatBinary",
            "__cudaLaunchKernel_ptsz",
            "cudaMalloc",
            "cudaGetDeviceProperties",
        ];
        for name in names {
            assert!(contains(image, name) && contains(archive, name), "{name}");
        }
    }

    #[test]
    fn the_libraries_have_what_code_of_nvcc_calls() {
        check(RUNTIME_12);
        check(RUNTIME_13);
    }

    #[test]
    fn names_of_cuda_12_are_only_in_its_libraries() {
        for name in ["cudaGetDeviceProperties_v2", "cudaThreadExit"] {
            assert!(contains(RUNTIME_12.image, name), "{name}");
            assert!(contains(RUNTIME_12.archive, name), "{name}");
            assert!(!contains(RUNTIME_13.image, name), "{name}");
        }
        for Runtime { image, .. } in [RUNTIME_12, RUNTIME_13] {
            assert!(!contains(image, "cuda12_ThreadExit"));
        }
    }
}
