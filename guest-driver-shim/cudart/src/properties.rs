//! Properties of devices (CUDA Runtime API, "Device Management", `cudaDeviceProp`).

use causeway_cuda_abi::boundary::Out;
use causeway_cuda_abi::error::{Answer, Code};

use crate::context::{answer, start};
use crate::driver::driver;

/// `cudaDeviceProp` of CUDA 13, of CUDA 12, and of CUDA 11, which is the beginning of that of
/// CUDA 12.
type Properties = [u8; 1008];
type Properties12 = [u8; 1032];
type Properties11 = [u8; 728];

/// What begins the structure: the name, the UUID, the LUID of Windows and its mask, and the size of
/// the memory.
const NAME_BYTES: usize = 256;
const UUID_BYTES: usize = 16;
const MEMORY_AT: usize = 288;
const FIELDS_AT: usize = 296;

/// Attributes of the device (`enum CUdevice_attribute`) in the order of the fields that follow.
#[rustfmt::skip]
const FIELDS: &[u32] = &[
    // Memory and sizes of launches.
    8, 12, 10, 11, 1, 2, 3, 4, 5, 6, 7, 9, 75, 76,
    // Textures: alignment, then (behind the number of multiprocessors, whether the device is
    // integrated, and whether it maps memory of the host) limits.
    14, 51, 16, 18, 19, 21, 77, 22, 23, 73, 74, 70, 71, 72, 45, 46, 24, 25, 26, 47, 48, 49, 52, 42,
    43, 27, 28, 29, 53, 54,
    // Surfaces.
    55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 30,
    // Kernels at once, ECC, PCI, driver model, copy engines, addresses.
    31, 32, 33, 34, 50, 35, 40, 41,
    // Buses, caches, multiprocessors.
    37, 38, 108, 39, 78, 79, 80, 81, 82,
    // Managed and pageable memory, boards, cooperative launches.
    83, 84, 85, 86, 88, 89, 90, 91, 95, 97, 100, 101, 106, 109, 111,
    // Registered memory, pools, RDMA, clusters, NUMA, MPS.
    99, 112, 113, 114, 115, 116, 117, 118, 119, 121, 125, 120, 129, 130, 131, 133, 134, 139, 140,
    143,
];

/// Fields that only CUDA 12 has: the attribute that comes before each, and its own.
#[rustfmt::skip]
const FIELDS_OF_12: [(u32, u32); 8] = [
    // Clock rate, copies beside kernels, a limit for the time of kernels, compute mode.
    (7, 13), (51, 15), (16, 17), (19, 20),
    // Textures of linear memory, clock rate of the memory, speed of double precision, cooperative
    // launches on several devices.
    (77, 69), (41, 36), (86, 87), (95, 96),
];
/// The last field of CUDA 12: pointers to functions that are the same on the host.
const LAST_OF_12: u32 = 129;

/// Those of them whose fields are `size_t`, not `int`.
const SIZES: [u32; 9] = [8, 9, 11, 14, 30, 51, 81, 97, 111];

/// The fields of CUDA 13.
fn fields() -> impl Iterator<Item = u32> {
    FIELDS.iter().copied()
}

/// The fields of CUDA 12.
fn fields_of_12() -> impl Iterator<Item = u32> {
    let end = FIELDS.iter().position(|field| *field == LAST_OF_12);
    let common = &FIELDS[..end.map_or(FIELDS.len(), |last| last + 1)];
    common.iter().flat_map(|field| {
        let more = FIELDS_OF_12.iter().find(|(before, _)| before == field);
        [*field].into_iter().chain(more.map(|(_, own)| *own))
    })
}

/// Gives each field its place and its bytes, one behind the other as C aligns them, and returns
/// their end.
fn place_fields(
    fields: impl Iterator<Item = u32>,
    mut put: impl FnMut(usize, usize, u32),
) -> usize {
    let mut at = FIELDS_AT;
    for attribute in fields {
        let bytes = if SIZES.contains(&attribute) { 8 } else { 4 };
        at = at.next_multiple_of(bytes);
        put(at, bytes, attribute);
        at += bytes;
    }
    at
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceProperties(into: Out<Properties>, device: i32) -> u32 {
    answer(|| {
        start()?;
        into.set(properties(device, fields())?)
    })
}

/// For programs of CUDA 12 that look for the function of CUDA 11 by its name.
#[unsafe(no_mangle)]
extern "C" fn cuda12_GetDeviceProperties(into: Out<Properties11>, device: i32) -> u32 {
    answer(|| {
        start()?;
        let all: Properties12 = properties(device, fields_of_12())?;
        into.set(*all.first_chunk().ok_or(Code::UNKNOWN)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuda12_GetDeviceProperties_v2(into: Out<Properties12>, device: i32) -> u32 {
    answer(|| {
        start()?;
        into.set(properties(device, fields_of_12())?)
    })
}

fn properties<const BYTES: usize>(
    device: i32,
    fields: impl Iterator<Item = u32>,
) -> Answer<[u8; BYTES]> {
    let mut it = [0; BYTES];
    let place = it.as_mut_ptr();
    driver!(cuDeviceGetName(place, NAME_BYTES as i32, device))?;
    let mut uuid = [0_u8; UUID_BYTES];
    driver!(cuDeviceGetUuid_v2(&raw mut uuid, device))?;
    let mut memory_bytes = 0_usize;
    driver!(cuDeviceTotalMem_v2(&raw mut memory_bytes, device))?;
    put(&mut it, NAME_BYTES, &uuid);
    put(&mut it, MEMORY_AT, &memory_bytes.to_le_bytes());
    place_fields(fields, |at, bytes, number| {
        // No attribute is negative but a NUMA node that is none, which is an `int`.
        let value = i64::from(attribute(number, device)).to_le_bytes();
        put(&mut it, at, &value[..bytes]);
    });
    Ok(it)
}

fn put(it: &mut [u8], at: usize, bytes: &[u8]) {
    it[at..at + bytes.len()].copy_from_slice(bytes);
}

/// An attribute of a device. One that the driver does not know is 0.
fn attribute(number: u32, device: i32) -> i32 {
    let mut value = 0_i32;
    let known = driver!(cuDeviceGetAttribute(&raw mut value, number, device));
    if known.is_ok() { value } else { 0 }
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetAttribute(value: Out<i32>, number: u32, device: i32) -> u32 {
    answer(|| match value.is_null() {
        true => Err(Code::INVALID_VALUE),
        false => driver!(cuDeviceGetAttribute(value, number, device)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns where the fields of `attributes` are, and where all fields end.
    fn places<const N: usize>(
        fields: impl Iterator<Item = u32>,
        attributes: [u32; N],
    ) -> ([usize; N], usize) {
        let mut found = [0; N];
        let end = place_fields(fields, |at, _, attribute| {
            if let Some(n) = attributes.iter().position(|wanted| *wanted == attribute) {
                found[n] = at;
            }
        });
        (found, end)
    }

    /// The numbers are `offsetof` of the fields, and of `reserved`.
    #[test]
    fn fields_lie_where_the_headers_have_them() {
        // Shared memory of a block that opts in, whether MPS is on.
        assert_eq!(places(fields(), [97, 133]), ([672, 764], 784));
        let of_12 = [13, 20, 69, 36, 87, 96, 97, 111, LAST_OF_12];
        let at = [348, 404, 416, 608, 668, 692, 696, 720, 776];
        assert_eq!(places(fields_of_12(), of_12), (at, 780));
    }
}
