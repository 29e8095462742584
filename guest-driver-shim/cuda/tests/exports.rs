//! The library as programs find it: its symbols, and how `cuGetProcAddress` finds them.
#![allow(unsafe_code)] // Loads a C library.

use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};

/// What the library has to export: NVIDIA's names in lines, with versions behind them.
const EXPORTS: &str = include_str!("../exports.txt");

/// Names of NVML without which programs do not start: `nvtop` 3.3, NCCL 2.28 and PyTorch 2.9 look
/// them up, some by their first versions.
const NVML: [&str; 41] = [
    "nvmlInit",
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlErrorString",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByPciBusId",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemotePciInfo",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkCapability",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetPcieThroughput",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses",
];

/// Returns the path of the library, which cargo builds beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.with_file_name("libcauseway_libcuda.so")
}

fn names() -> BTreeSet<&'static str> {
    let words = EXPORTS.lines().map(|line| line.split(' ').next().unwrap());
    words.collect()
}

#[test]
fn the_library_exports_what_nvidias_exports_and_nvml_and_nothing_else() {
    let image = std::fs::read(library()).unwrap();
    let file = object::File::parse(&*image).unwrap();
    let symbols = file.dynamic_symbols();
    let exported = symbols.filter(|symbol| symbol.is_definition());
    let exported: Vec<String> = exported.map(|s| s.name().unwrap().to_owned()).collect();
    let exported = exported.iter().map(String::as_str);
    let (of_nvml, exported): (BTreeSet<_>, BTreeSet<_>) =
        exported.partition(|name| name.starts_with("nvml"));
    let lacking: Vec<_> = NVML
        .iter()
        .filter(|name| !of_nvml.contains(**name))
        .collect();
    assert!(lacking.is_empty(), "not exported: {lacking:?}");
    let wanted = names();
    let lacking: Vec<_> = wanted.difference(&exported).collect();
    let additional: Vec<_> = exported.difference(&wanted).collect();
    assert!(lacking.is_empty(), "not exported: {lacking:?}");
    assert!(additional.is_empty(), "exported, too: {additional:?}");
    assert_eq!(wanted.len(), 682);
}

type Call = extern "C" fn() -> u32;
type Table = extern "C" fn(*mut usize, *const [u8; 16]) -> u32;
type Find = extern "C" fn(*const i8, *mut usize, i32, u64, *mut u32) -> u32;

/// The loaded library.
struct Loaded(*mut c_void);

impl Loaded {
    fn open() -> Self {
        let path = CString::new(library().to_str().unwrap()).unwrap();
        // SAFETY: the library's initialization does nothing.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "cannot load {path:?}");
        Self(handle)
    }

    fn symbol(&self, name: &str) -> usize {
        let text = CString::new(name).unwrap();
        // SAFETY: the library stays loaded, and the text ends in NUL.
        let address = unsafe { libc::dlsym(self.0, text.as_ptr()) } as usize;
        assert_ne!(address, 0, "{name}");
        address
    }

    /// Calls `cuGetProcAddress_v2`. Returns its result, the address and the status.
    fn find(&self, name: &str, version: i32, flags: u64) -> (u32, usize, u32) {
        // SAFETY: the function has this type.
        let find: Find = unsafe { std::mem::transmute(self.symbol("cuGetProcAddress_v2")) };
        let name = CString::new(name).unwrap();
        let (mut address, mut status) = (1, 99);
        let code = find(name.as_ptr(), &mut address, version, flags, &mut status);
        (code, address, status)
    }
}

#[test]
fn every_function_is_found_by_its_name_and_version() {
    let library = Loaded::open();
    let mut found = 0;
    for line in EXPORTS.lines() {
        let mut words = line.split(' ');
        let (symbol, Some(version)) = (words.next().unwrap(), words.next()) else {
            continue;
        };
        let per_thread = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
        let base = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let base = match base.rsplit_once("_v") {
            Some((base, digit)) if digit.parse::<u32>().is_ok() => base,
            _ => base,
        };
        let version: i32 = version.parse().unwrap();
        let flags = if per_thread { 2 } else { 1 };
        let wanted = (0, library.symbol(symbol), 0);
        assert_eq!(library.find(base, version, flags), wanted, "{line}");
        found += 1;
    }
    assert!(found > 650);
}

#[test]
fn what_is_not_found_leaves_a_null_pointer_and_the_reason() {
    let library = Loaded::open();
    for (name, version, flags, wanted) in [
        ("cuNoSuchFunction", 13000, 0, (0, 0, 1)),
        ("cuMemAlloc_v2", 13000, 0, (0, 0, 1)),
        ("cuLaunchKernelEx", 11050, 0, (0, 0, 2)),
        ("", 13000, 0, (0, 0, 1)),
        ("cuInit", -1, 0, (0, 0, 2)),
        ("cuInit", 13010, 0, (1, 0, 1)),
        ("cuInit", 13000, 4, (1, 0, 1)),
    ] {
        assert_eq!(
            library.find(name, version, flags),
            wanted,
            "{name} {version}"
        );
    }
}

#[test]
fn tables_that_are_not_documented_are_not_found() {
    let library = Loaded::open();
    // SAFETY: the function has this type.
    let table: Table = unsafe { std::mem::transmute(library.symbol("cuGetExportTable")) };
    let mut address = 1;
    assert_eq!(table(&mut address, &[7; 16]), 500);
    assert_eq!(address, 0);
}

#[test]
fn a_function_without_an_implementation_needs_an_initialized_driver() {
    let library = Loaded::open();
    for name in ["cuGLInit", "cuEGLApiInit"] {
        // SAFETY: the function's arguments may be anything, because it does not look at them.
        let call: Call = unsafe { std::mem::transmute(library.symbol(name)) };
        assert_eq!(call(), 3, "{name}");
    }
}

#[test]
fn the_log_names_a_missing_function_once_and_counts_its_calls() {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("log-{}", std::process::id()));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "call_what_is_missing", "--ignored"])
        .env("CAUSEWAY_CUDA_LOG", &log)
        .env_remove("CAUSEWAY_CUDA_LOG_LEVEL")
        .status();
    assert!(child.unwrap().success());
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    let wanted = "libcuda: warn: cuGLInit is not implemented: the program gets \
                  CUDA_ERROR_NOT_SUPPORTED (801)\n\
                  libcuda: warn: at the end: 3 calls of cuGLInit, which is not implemented\n";
    assert_eq!(text, wanted);
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn call_what_is_missing() {
    let library = Loaded::open();
    // SAFETY: the function does not look at its arguments.
    let call: Call = unsafe { std::mem::transmute(library.symbol("cuGLInit")) };
    for _ in 0..3 {
        assert_eq!(call(), 3);
    }
}
