//! Attributes of the device (`CUdevice_attribute`): those of an H200 where programs ask, and the
//! stand-in's own where they differ.

use crate::settings::Settings;

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`
pub(crate) const MULTIPROCESSOR_COUNT: i32 = 16;
/// `CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM`
pub(crate) const HOST_POINTERS: i32 = 91;
/// `CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED`
pub(crate) const READ_ONLY_REGISTER: i32 = 113;
/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`
pub(crate) const POSIX_HANDLES: i32 = 103;
/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED`
pub(crate) const FABRIC_HANDLES: i32 = 128;
/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`
pub(crate) const VIRTUAL_MEMORY: i32 = 102;
/// `CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED`
pub(crate) const HOST_REGISTER: i32 = 99;
/// Major and minor compute capability.
pub(crate) const CAPABILITY: [i32; 2] = [75, 76];
/// One past the last attribute that this version of the API knows.
const END: i32 = 149;
/// Shared memory of a block without asking for more.
pub(crate) const SHARED_BYTES: u32 = 48 << 10;

/// The value of an attribute; `None` if the API has no such attribute.
pub(crate) fn value(settings: &Settings, attribute: i32, device: usize) -> Option<i32> {
    if let Some(given) = settings.attributes.get(&attribute) {
        return Some(*given);
    }
    if !(1..END).contains(&attribute) {
        return None;
    }
    Some(match attribute {
        MULTIPROCESSOR_COUNT => i32::try_from(settings.multiprocessors).unwrap_or(i32::MAX),
        // Bus of the device; domain and device number are 0.
        33 => device as i32 + 1,
        _ => usual(attribute),
    })
}

fn usual(attribute: i32) -> i32 {
    match attribute {
        // Threads of a block, and its dimensions; dimensions of a grid.
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => SHARED_BYTES as i32,
        9 => 64 << 10,
        // Threads of a warp.
        10 => 32,
        11 => i32::MAX,
        // Registers of a block, and of a multiprocessor.
        12 | 82 => 65536,
        // Clocks of multiprocessors and memory in kHz.
        13 => 1_980_000,
        36 => 3_201_000,
        14 | 30 => 512,
        // Bus width in bits, second-level cache in bytes.
        37 => 6144,
        38 => 60 << 20,
        39 => 2048,
        40 => 3,
        51 => 32,
        75 => 9,
        76 => 0,
        81 => 228 << 10,
        // Shared memory of a block that asks for it.
        97 => 227 << 10,
        106 => 32,
        108 => 37 << 20,
        109 => 128 << 20,
        111 => 1024,
        // Handle types of memory pools: POSIX.
        119 => 1,
        126 => 4,
        // No NUMA node of its own; the host's first is the nearest.
        131 => -1,
        other => i32::from(is_supported(other)),
    }
}

/// Attributes that say yes or no.
fn is_supported(attribute: i32) -> bool {
    // Copies beside kernels, mapped host memory, several kernels at once, error correction, unified
    // addresses, priorities, caches, preemption: as on the card.
    let basic = matches!(attribute, 15 | 19 | 31 | 32 | 35 | 41 | 78 | 79 | 80 | 90);
    // Host pointers for registered memory; words written and waited for by streams; registration of
    // host memory.
    let host = matches!(attribute, 91..=94 | 99 | 113 | 122 | 123);
    // Virtual memory, POSIX handles, compression, RDMA; fabric handles, which creation then
    // refuses without a channel; multicast query.
    let memory = matches!(attribute, 102 | 103 | 107 | 110 | 116 | 128 | 141);
    basic || host || memory
}
