//! NVML: what monitors ask, in a process that uses CUDA, too.

#![allow(unsafe_code, reason = "calls a C library")]

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const UNINITIALIZED: u32 = 1;
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NOT_FOUND: u32 = 6;
const INSUFFICIENT_SIZE: u32 = 7;
const VERSION_MISMATCH: u32 = 25;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Process {
    pid: u32,
    bytes: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

#[repr(C)]
struct PciInfo {
    legacy_id: [c_char; 16],
    numbers: [u32; 5],
    id: [c_char; 32],
}

/// `nvmlSystemDriverBranchInfo_t`
#[repr(C)]
struct DriverBranch {
    version: u32,
    name: [u8; 80],
}

unsafe extern "C" {
    fn nvmlInit_v2() -> u32;
    fn nvmlInitWithFlags(flags: u32) -> u32;
    fn nvmlShutdown() -> u32;
    fn nvmlErrorString(code: u32) -> *const c_char;
    fn nvmlSystemGetDriverVersion(text: *mut c_char, room: u32) -> u32;
    fn nvmlSystemGetDriverBranch(info: *mut DriverBranch, room: u32) -> u32;
    fn nvmlDeviceGetPciInfoExt(device: usize, info: *mut [u32; 16]) -> u32;
    fn nvmlSystemGetNVMLVersion(text: *mut c_char, room: u32) -> u32;
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut i32) -> u32;
    fn nvmlSystemGetProcessName(pid: u32, text: *mut c_char, room: u32) -> u32;
    fn nvmlDeviceGetCount_v2(count: *mut u32) -> u32;
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut usize) -> u32;
    fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, device: *mut usize) -> u32;
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut usize) -> u32;
    fn nvmlDeviceGetIndex(device: usize, index: *mut u32) -> u32;
    fn nvmlDeviceGetName(device: usize, text: *mut c_char, room: u32) -> u32;
    fn nvmlDeviceGetUUID(device: usize, text: *mut c_char, room: u32) -> u32;
    fn nvmlDeviceGetPciInfo_v3(device: usize, info: *mut PciInfo) -> u32;
    fn nvmlDeviceGetMemoryInfo(device: usize, info: *mut [u64; 3]) -> u32;
    fn nvmlDeviceGetMemoryInfo_v2(device: usize, info: *mut [u64; 5]) -> u32;
    fn nvmlDeviceGetUtilizationRates(device: usize, rates: *mut [u32; 2]) -> u32;
    fn nvmlDeviceGetTemperature(device: usize, sensor: u32, value: *mut u32) -> u32;
    fn nvmlDeviceGetPowerUsage(device: usize, value: *mut u32) -> u32;
    fn nvmlDeviceGetMaxClockInfo(device: usize, kind: u32, value: *mut u32) -> u32;
    fn nvmlDeviceGetCudaComputeCapability(device: usize, major: *mut i32, minor: *mut i32) -> u32;
    fn nvmlDeviceGetP2PStatus(one: usize, other: usize, index: u32, status: *mut u32) -> u32;
    fn nvmlDeviceGetTopologyCommonAncestor(one: usize, other: usize, level: *mut u32) -> u32;
    fn nvmlDeviceGetFieldValues(device: usize, count: i32, values: *mut [u32; 10]) -> u32;
    fn nvmlDeviceGetComputeRunningProcesses_v3(d: usize, n: *mut u32, into: *mut Process) -> u32;
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(d: usize, n: *mut u32, into: *mut Process) -> u32;
    fn cuDeviceGetPCIBusId(text: *mut c_char, room: i32, device: i32) -> u32;
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> u32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> u32;
    fn cuCtxSynchronize() -> u32;
}

/// Calls a function with pointers to live variables of the size that NVML says, and compares its
/// result.
macro_rules! answers {
    ($code:expr, $call:expr) => {
        // SAFETY: as above; null pointers and forged handles are refused before they are used.
        assert_eq!(unsafe { $call }, $code, "{}", stringify!($call))
    };
}

/// Calls a function that writes a text of at most 96 bytes.
macro_rules! text {
    ($function:ident $(, $argument:expr)*) => {{
        let mut text = [0; 96];
        answers!(0, $function($($argument,)* text.as_mut_ptr(), 96));
        // SAFETY: the call has put a NUL.
        unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().to_owned()
    }};
}

/// Tests take turns: the library counts its initializations.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    causeway_cuda_tests::library();
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Initializes the library. Returns the turn and the device.
fn device() -> (MutexGuard<'static, ()>, usize) {
    let turn = turn();
    answers!(0, nvmlInit_v2());
    let mut device = 0;
    answers!(0, nvmlDeviceGetHandleByIndex_v2(0, &mut device));
    (turn, device)
}

#[test]
fn initializations_are_counted() {
    let _turn = turn();
    // Tests that failed may have left some.
    // SAFETY: any thread may call it at any time.
    while unsafe { nvmlShutdown() } == 0 {}
    let mut count = 7;
    answers!(UNINITIALIZED, nvmlDeviceGetCount_v2(&mut count));
    answers!(UNINITIALIZED, nvmlDeviceGetPowerUsage(1, &mut count));
    answers!(UNINITIALIZED, nvmlShutdown());
    answers!(INVALID_ARGUMENT, nvmlInitWithFlags(4));
    answers!(0, nvmlInit_v2());
    answers!(0, nvmlInitWithFlags(1));
    answers!(0, nvmlShutdown());
    answers!(0, nvmlDeviceGetCount_v2(&mut count));
    assert_eq!(count, 1);
    answers!(0, nvmlShutdown());
    answers!(UNINITIALIZED, nvmlDeviceGetCount_v2(&mut count));
    // SAFETY: the text is the library's.
    let text = unsafe { CStr::from_ptr(nvmlErrorString(UNINITIALIZED)) };
    assert_eq!(text, c"Uninitialized");
}

#[test]
fn the_device_is_the_one_of_cuda() {
    let (_turn, device) = device();
    let name = text!(nvmlDeviceGetName, device);
    assert_eq!(
        name.starts_with("Causeway software"),
        causeway_cuda_tests::is_on_software(),
        "{name}"
    );
    let mut bus = [0; 16];
    answers!(0, cuDeviceGetPCIBusId(bus.as_mut_ptr(), 16, 0));
    let (mut same, mut index) = (0, 9);
    answers!(0, nvmlDeviceGetHandleByPciBusId_v2(bus.as_ptr(), &mut same));
    assert_eq!(same, device);
    let uuid = text!(nvmlDeviceGetUUID, device);
    assert_eq!((uuid.len(), &uuid[..4]), (40, "GPU-"));
    let id = std::ffi::CString::new(uuid).unwrap();
    answers!(0, nvmlDeviceGetHandleByUUID(id.as_ptr(), &mut same));
    let bare = &id.as_c_str()[4..];
    same = 0;
    answers!(0, nvmlDeviceGetHandleByUUID(bare.as_ptr(), &mut same));
    answers!(0, nvmlDeviceGetIndex(same, &mut index));
    assert_eq!((same, index), (device, 0));
    let (mut major, mut minor, mut version) = (0, 7, 0);
    answers!(
        0,
        nvmlDeviceGetCudaComputeCapability(device, &mut major, &mut minor)
    );
    answers!(0, nvmlSystemGetCudaDriverVersion_v2(&mut version));
    assert_eq!((major, minor, version), (9, 0, 13_000));
    let mut info = PciInfo {
        legacy_id: [1; 16],
        numbers: [1; 5],
        id: [1; 32],
    };
    answers!(0, nvmlDeviceGetPciInfo_v3(device, &mut info));
    // SAFETY: the call has put NULs.
    let ids = unsafe {
        [
            CStr::from_ptr(info.legacy_id.as_ptr()),
            CStr::from_ptr(info.id.as_ptr()),
        ]
    };
    // SAFETY: the call has put a NUL.
    let name = unsafe { CStr::from_ptr(bus.as_ptr()) }.to_str().unwrap();
    assert_eq!(
        ids.map(|id| id.to_str().unwrap()),
        [name, &format!("0000{name}")]
    );
    let mut more = [1; 16];
    answers!(25, nvmlDeviceGetPciInfoExt(device, &mut more));
    more[0] = 1 << 24 | 64;
    answers!(0, nvmlDeviceGetPciInfoExt(device, &mut more));
    assert_eq!((more[1], more[6..8].to_vec()), (0, vec![3, 2]));
    assert_eq!(more[8..10], [u32::from_le_bytes(*b"0000"); 2]);
    let mut branch = DriverBranch {
        version: 0,
        name: [1; 80],
    };
    answers!(25, nvmlSystemGetDriverBranch(&mut branch, 80));
    branch.version = 1 << 24 | 84;
    answers!(7, nvmlSystemGetDriverBranch(&mut branch, 4));
    answers!(0, nvmlSystemGetDriverBranch(&mut branch, 80));
    assert_eq!(branch.name[..5], *b"r0_1\0");
    assert_eq!(text!(nvmlSystemGetDriverVersion), "0.1.0");
    assert_eq!(text!(nvmlSystemGetNVMLVersion), "13.0.1.0");
    let own = text!(nvmlSystemGetProcessName, std::process::id());
    assert!(own.contains("nvml"), "{own}");
}

#[test]
fn memory_and_processes_are_those_of_the_session() {
    let (_turn, device) = device();
    let (mut before, mut after) = ([0; 3], [0; 3]);
    let mut wide = [0; 5];
    wide[0] = 0x0200_0028;
    let mut all = 0;
    answers!(0, nvmlDeviceGetMemoryInfo(device, &mut before));
    let mut address = 0;
    answers!(0, cuMemAlloc_v2(&mut address, 96 << 20));
    answers!(0, nvmlDeviceGetMemoryInfo(device, &mut after));
    answers!(0, nvmlDeviceGetMemoryInfo_v2(device, &mut wide));
    answers!(0, cuDeviceTotalMem_v2(&mut all, 0));
    let [total, free, used] = after;
    assert_eq!((total, free + used), (all as u64, all as u64));
    assert!(used - before[2] >= 96 << 20, "{before:?} {after:?}");
    assert_eq!(wide[1..], [total, 0, free, used]);

    let (mut count, mut list) = (0, [Process::default(); 2]);
    let into = list.as_mut_ptr();
    answers!(
        INSUFFICIENT_SIZE,
        nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, into)
    );
    assert_eq!((count, list[0].pid), (1, 0));
    count = 2;
    answers!(
        0,
        nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, into)
    );
    let [own, _] = list;
    assert_eq!((count, own.pid), (1, std::process::id()));
    assert!((96 << 20..=used).contains(&own.bytes), "{own:?} of {used}");
    assert_eq!(
        (own.gpu_instance, own.compute_instance),
        (u32::MAX, u32::MAX)
    );
    answers!(
        0,
        nvmlDeviceGetGraphicsRunningProcesses_v3(device, &mut count, into)
    );
    assert_eq!(count, 0);
}

#[test]
fn the_device_is_busy_while_there_is_work() {
    let (_turn, device) = device();
    let mut rates = [0; 2];
    let mut address = 0;
    answers!(0, cuMemAlloc_v2(&mut address, 16 << 20));
    answers!(0, nvmlDeviceGetUtilizationRates(device, &mut rates));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(400) {
        answers!(0, cuMemsetD8_v2(address, 1, 16 << 20));
        answers!(0, cuCtxSynchronize());
    }
    answers!(0, nvmlDeviceGetUtilizationRates(device, &mut rates));
    assert!((1..=100).contains(&rates[0]), "{rates:?}");
    std::thread::sleep(Duration::from_millis(200));
    answers!(0, nvmlDeviceGetUtilizationRates(device, &mut rates));
    std::thread::sleep(Duration::from_millis(200));
    answers!(0, nvmlDeviceGetUtilizationRates(device, &mut rates));
    assert_eq!(rates, [0, 0], "nothing has run meanwhile");
}

#[test]
fn what_the_device_cannot_know_is_not_supported() {
    let (_turn, device) = device();
    let mut value = 77;
    answers!(
        NOT_SUPPORTED,
        nvmlDeviceGetTemperature(device, 0, &mut value)
    );
    answers!(NOT_SUPPORTED, nvmlDeviceGetPowerUsage(device, &mut value));
    if causeway_cuda_tests::is_on_software() {
        answers!(
            NOT_SUPPORTED,
            nvmlDeviceGetMaxClockInfo(device, 2, &mut value)
        );
    }
    assert_eq!(value, 77);
    answers!(0, nvmlDeviceGetP2PStatus(device, device, 0, &mut value));
    assert_eq!(value, 5);
    answers!(
        0,
        nvmlDeviceGetTopologyCommonAncestor(device, device, &mut value)
    );
    assert_eq!(value, 0);
    let mut fields = [[9; 10]; 2];
    answers!(0, nvmlDeviceGetFieldValues(device, 2, fields.as_mut_ptr()));
    assert_eq!(fields.map(|field| field[7]), [NOT_SUPPORTED; 2]);
    assert_eq!(fields.map(|field| (field[6], field[8])), [(9, 9); 2]);
}

#[test]
fn wrong_arguments_are_refused() {
    let (_turn, device) = device();
    let mut text = [3; 96];
    let (mut value, mut count) = (0, 1);
    let room = text.as_mut_ptr();
    for forged in [0, 1, device + 8, usize::MAX] {
        answers!(INVALID_ARGUMENT, nvmlDeviceGetName(forged, room, 96));
        answers!(
            INVALID_ARGUMENT,
            nvmlDeviceGetPowerUsage(forged, &mut count)
        );
        answers!(
            INVALID_ARGUMENT,
            nvmlDeviceGetP2PStatus(device, forged, 0, &mut count)
        );
    }
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetHandleByIndex_v2(1, &mut value)
    );
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetHandleByIndex_v2(0, null_mut())
    );
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetHandleByUUID(null(), &mut value)
    );
    answers!(
        NOT_FOUND,
        nvmlDeviceGetHandleByUUID(c"GPU-1".as_ptr(), &mut value)
    );
    let (other, wrong) = (c"0000:7f:1f.0".as_ptr(), c"nonsense".as_ptr());
    answers!(
        NOT_FOUND,
        nvmlDeviceGetHandleByPciBusId_v2(other, &mut value)
    );
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetHandleByPciBusId_v2(wrong, &mut value)
    );
    answers!(INVALID_ARGUMENT, nvmlDeviceGetName(device, null_mut(), 96));
    answers!(INSUFFICIENT_SIZE, nvmlDeviceGetName(device, room, 4));
    answers!(INSUFFICIENT_SIZE, nvmlDeviceGetUUID(device, room, 40));
    assert_eq!(text, [3; 96], "nothing is written");
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetMemoryInfo(device, null_mut())
    );
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetUtilizationRates(device, null_mut())
    );
    let mut wide = [0x0100_0028, 0, 0, 0, 0];
    answers!(
        VERSION_MISMATCH,
        nvmlDeviceGetMemoryInfo_v2(device, &mut wide)
    );
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetComputeRunningProcesses_v3(device, null_mut(), null_mut())
    );
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, null_mut())
    );
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetFieldValues(device, 0, null_mut())
    );
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetFieldValues(device, 1, null_mut())
    );
    answers!(NOT_FOUND, nvmlSystemGetProcessName(u32::MAX, room, 96));
    answers!(
        INVALID_ARGUMENT,
        nvmlSystemGetProcessName(std::process::id(), room, 0)
    );
}
