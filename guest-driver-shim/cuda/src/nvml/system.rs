//! Versions and processes (NVML API Reference, "System Queries").

use std::fs;

use zerocopy::FromBytes;

use crate::boundary::Out;
use crate::device;

use super::code::Code;
use super::library::{answer, call, initialized, put_text};

/// Version of this driver library.
const DRIVER_VERSION: &str = env!("CARGO_PKG_VERSION");
/// Version of NVML: that of CUDA whose API is answered, then the driver's.
const VERSION: &str = concat!("13.", env!("CARGO_PKG_VERSION"));

/// Branch of this driver library.
const BRANCH: &str = concat!(
    "r",
    env!("CARGO_PKG_VERSION_MAJOR"),
    "_",
    env!("CARGO_PKG_VERSION_MINOR")
);
/// Version of [`DriverBranch`], as the structure has it.
const DRIVER_BRANCH_V1: u32 = 1 << 24 | size_of::<DriverBranch>() as u32;

/// `nvmlSystemDriverBranchInfo_v1_t`
#[derive(Clone, Copy, FromBytes)]
#[repr(C)]
struct DriverBranch {
    version: u32,
    name: [u8; 80],
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(version: Out<u8>, room: u32) -> u32 {
    initialized(|| put_text(version, room, DRIVER_VERSION))
}

/// Names the branch as NVIDIA's driver names its own: `r`, major and minor version.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverBranch(into: Out<DriverBranch>, room: u32) -> u32 {
    initialized(|| {
        let mut given = into.get()?;
        if given.version != DRIVER_BRANCH_V1 {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let room = given.name.len().min(room as usize);
        if room <= BRANCH.len() {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        given.name = [0; 80];
        given.name[..BRANCH.len()].copy_from_slice(BRANCH.as_bytes());
        Ok(into.set(given)?)
    })
}

/// Needs no initialization, as NVIDIA documents it.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetNVMLVersion(version: Out<u8>, room: u32) -> u32 {
    answer(|| put_text(version, room, VERSION))
}

/// The version that `cuDriverGetVersion` gives once the driver is initialized.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion(version: Out<i32>) -> u32 {
    call(|devices| Ok(version.set(device::version_on(&devices[0]))?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) -> u32 {
    nvmlSystemGetCudaDriverVersion(version)
}

/// The first word of the process's command line, cut to the caller's room.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetProcessName(process: u32, name: Out<u8>, room: u32) -> u32 {
    initialized(|| {
        let line = fs::read(format!("/proc/{process}/cmdline")).map_err(|_| Code::NOT_FOUND)?;
        let word = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let word = String::from_utf8_lossy(word);
        name.set_text(&word, room as usize)?;
        Ok(())
    })
}

/// The calling process has no S-class unit, and nothing leaves out the device.
#[unsafe(no_mangle)]
extern "C" fn nvmlUnitGetCount(count: Out<u32>) -> u32 {
    initialized(|| Ok(count.set(0)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGetExcludedDeviceCount(count: Out<u32>) -> u32 {
    answer(|| Ok(count.set(0)?))
}
