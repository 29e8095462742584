//! Looking for functions by name and version (CUDA driver API, "Driver Entry Point Access").

use std::sync::Once;

use crate::boundary::{In, Out, Text};
use crate::driver::answer;
use crate::error::Code;
use crate::exports::{SYMBOLS, Symbol};

/// The newest version of CUDA whose functions this library exports. Programs that ask for a newer
/// one are refused, as with a driver of this version.
const NEWEST: u32 = 13000;

/// `CU_GET_PROC_ADDRESS_SUCCESS`
const FOUND: u32 = 0;
/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`
const NOT_FOUND: u32 = 1;
/// `CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT`
const TOO_OLD: u32 = 2;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD: u64 = 2;
/// This one and `CU_GET_PROC_ADDRESS_LEGACY_STREAM`.
const FLAGS: u64 = 3;

/// Returns the newest version of `name` that CUDA had in `version`. The version for per-thread
/// default streams is preferred if `is_per_thread`, and never chosen otherwise. Fails with the
/// status of the search.
fn find(name: &str, version: u32, is_per_thread: bool) -> Result<&'static Symbol, u32> {
    let first = SYMBOLS.partition_point(|symbol| symbol.base < name);
    let all = &SYMBOLS[first..];
    let all = &all[..all.partition_point(|symbol| symbol.base == name)];
    let of_kind = |kind: bool| all.iter().filter(move |s| s.is_per_thread == kind);
    let newest = |kind| of_kind(kind).rfind(|symbol| symbol.version <= version);
    let preferred = is_per_thread.then(|| newest(true)).flatten();
    let known = of_kind(false).next().is_some() || is_per_thread && of_kind(true).next().is_some();
    let found = preferred.or_else(|| newest(false));
    found.ok_or(if known { TOO_OLD } else { NOT_FOUND })
}

/// Finds a function. What is not found leaves a null pointer, and is a success if the caller gets
/// the reason: so does NVIDIA's driver.
#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    name: Text,
    function: Out<usize>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> u32 {
    answer(|| {
        function.set(0)?;
        status.set_if_wanted(NOT_FOUND);
        let name = name.bytes()?;
        let version = u32::try_from(version).unwrap_or(0);
        if flags > FLAGS || version > NEWEST {
            return Err(Code::INVALID_VALUE);
        }
        // Another encoding is no function's name.
        let name = std::str::from_utf8(&name).unwrap_or_default();
        match find(name, version, flags & PER_THREAD != 0) {
            Ok(symbol) => {
                status.set_if_wanted(FOUND);
                function.set(symbol.address())
            }
            Err(why) => status.set(why).map_err(|_| Code::NOT_FOUND),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(name: Text, function: Out<usize>, version: i32, flags: u64) -> u32 {
    cuGetProcAddress_v2(name, function, version, flags, Out::at(0))
}

/// Finds no table: what they hold is not documented. Who asks first is told what that means, since
/// NVIDIA's runtime library gives up without saying why.
#[unsafe(no_mangle)]
extern "C" fn cuGetExportTable(table: Out<usize>, _id: In<[u8; 16]>) -> u32 {
    static TOLD: Once = Once::new();
    answer(|| {
        table.set(0)?;
        TOLD.call_once(|| {
            // It comes before cuInit.
            crate::start_log();
            log::error!(
                "the program asks for functions that NVIDIA does not document, as NVIDIA's \
                 libcudart does, which accepts only NVIDIA's driver; build the program with \
                 `nvcc -cudart shared`, or link Causeway's libcudart_static.a (`causeway cuda \
                 --install DIR --nvcc-flags`, for CUDA 12 `--nvcc-flags=12`)"
            );
        });
        Err(Code::NOT_FOUND)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the version of CUDA that introduced what is found.
    fn version_of(name: &str, version: u32, is_per_thread: bool) -> Result<(u32, bool), u32> {
        find(name, version, is_per_thread).map(|symbol| (symbol.version, symbol.is_per_thread))
    }

    #[test]
    fn the_table_can_be_searched() {
        let keys = SYMBOLS.iter().map(|s| (s.base, s.is_per_thread, s.version));
        assert!(keys.is_sorted());
        assert!(SYMBOLS.iter().all(|symbol| symbol.version <= NEWEST));
        assert!(SYMBOLS.len() > 650);
    }

    #[test]
    fn the_newest_version_that_is_old_enough_is_found() {
        for (name, asked, introduced) in [
            ("cuInit", 2000, 2000),
            ("cuMemAlloc", 2000, 2000),
            ("cuMemAlloc", 3010, 2000),
            ("cuMemAlloc", 3020, 3020),
            ("cuMemAlloc", 13000, 3020),
            ("cuCtxCreate", 11030, 3020),
            ("cuCtxCreate", 11040, 11040),
            ("cuCtxCreate", 12050, 12050),
            ("cuGetProcAddress", 11030, 11030),
            ("cuGetProcAddress", 12000, 12000),
            ("cuEventElapsedTime", 12070, 2000),
            ("cuEventElapsedTime", 12080, 12080),
        ] {
            let found = version_of(name, asked, false);
            assert_eq!(found, Ok((introduced, false)), "{name} {asked}");
        }
    }

    #[test]
    fn per_thread_versions_are_found_where_they_are_asked_for_and_exist() {
        let found = |name, version| version_of(name, version, true);
        assert_eq!(found("cuLaunchKernel", 7000), Ok((7000, true)));
        assert_eq!(found("cuLaunchKernel", 6050), Ok((4000, false)));
        assert_eq!(found("cuMemcpyHtoD", 13000), Ok((7000, true)));
        assert_eq!(found("cuMemAlloc", 13000), Ok((3020, false)));
        let legacy = version_of("cuLaunchKernel", 13000, false);
        assert_eq!(legacy, Ok((4000, false)));
    }

    #[test]
    fn names_that_are_unknown_or_too_new_are_told_apart() {
        for name in ["cuMemAlloc_v2", "cuNoSuchFunction", "c", "zz", "cuInit "] {
            assert_eq!(version_of(name, 13000, false), Err(NOT_FOUND), "{name}");
        }
        assert_eq!(version_of("cuLaunchKernelEx", 11050, false), Err(TOO_OLD));
        assert_eq!(version_of("cuInit", 0, true), Err(TOO_OLD));
    }
}
