//! Properties of devices (CUDA Runtime API, "Device Management", `cudaDeviceProp`).

use causeway_cuda_abi::boundary::Out;
use causeway_cuda_abi::error::{Answer, Code};

use crate::context::{answer, start};
use crate::driver::driver;

/// `cudaDeviceProp` of CUDA 13: 1,008 bytes.
type Properties = [u8; 1008];

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

/// Those of them whose fields are `size_t`, not `int`.
const SIZES: [u32; 9] = [8, 9, 11, 14, 30, 51, 81, 97, 111];

/// Gives each field its place and its bytes, one behind the other as C aligns them, and returns
/// their end.
fn place_fields(mut put: impl FnMut(usize, usize, u32)) -> usize {
    let mut at = FIELDS_AT;
    for &attribute in FIELDS {
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
        into.set(properties(device)?)
    })
}

fn properties(device: i32) -> Answer<Properties> {
    let mut it: Properties = [0; 1008];
    let place = it.as_mut_ptr();
    driver!(cuDeviceGetName(place, NAME_BYTES as i32, device))?;
    let mut uuid = [0_u8; UUID_BYTES];
    driver!(cuDeviceGetUuid_v2(&raw mut uuid, device))?;
    let mut memory_bytes = 0_usize;
    driver!(cuDeviceTotalMem_v2(&raw mut memory_bytes, device))?;
    put(&mut it, NAME_BYTES, &uuid);
    put(&mut it, MEMORY_AT, &memory_bytes.to_le_bytes());
    place_fields(|at, bytes, number| {
        // No attribute is negative but a NUMA node that is none, which is an `int`.
        let value = i64::from(attribute(number, device)).to_le_bytes();
        put(&mut it, at, &value[..bytes]);
    });
    Ok(it)
}

fn put(it: &mut Properties, at: usize, bytes: &[u8]) {
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

    #[test]
    fn fields_lie_where_the_header_has_them() {
        let mut found = Vec::new();
        let end = place_fields(|at, _, attribute| {
            // Shared memory of a block that opts in, whether MPS is on.
            if [97, 133].contains(&attribute) {
                found.push(at);
            }
        });
        // `offsetof` of sharedMemPerBlockOptin, mpsEnabled and reserved.
        assert_eq!(found, [672, 764]);
        assert_eq!(end, 784);
    }
}
