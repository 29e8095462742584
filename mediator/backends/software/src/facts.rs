//! What the device tells about itself: CUDA device attributes (CUDA driver API, "Device
//! Management", `CUdevice_attribute`).
//!
//! Limits that the engine has are those of a GPU with compute capability 9.0, so that programs
//! which are tuned for one run. What the engine cannot do (mipmaps, clusters, multicast) is
//! reported as absent.

use causeway_mediator::backend::{Attributes, DeviceFacts};

use crate::limits::{BLOCK_THREADS_MAX, CAPABILITY, SHARED_BYTES_MAX, SHARED_BYTES_USUAL};

/// Identifies the first device of the software back end, like the UUID of a GPU. The last byte is
/// another one for each other device.
const UUID: [u8; 16] = *b"CausewaySoftware";
/// Version of CUDA whose PTX and whose API the engine follows: 13.0.
const CUDA_VERSION: u32 = 13_000;
/// Number of the last attribute of CUDA 13.0.
const LAST: usize = 148;

/// Attributes that are not zero and that are the same for every configuration, by number.
#[rustfmt::skip]
const ATTRIBUTES: [(usize, i32); 87] = [
    // Threads of a block, its dimensions, the dimensions of a grid (`GRID_MAX` and `BLOCK_MAX` of
    // the mediator).
    (1, BLOCK_THREADS_MAX.cast_signed()), (2, 1024), (3, 1024), (4, 64),
    (5, i32::MAX), (6, 65_535), (7, 65_535),
    // Shared memory of a block as it is, and with opting in; of a multiprocessor.
    (8, SHARED_BYTES_USUAL.cast_signed()), (97, SHARED_BYTES_MAX.cast_signed()),
    (81, SHARED_BYTES_MAX.cast_signed()),
    // Constant memory, longest pitch, registers of a block and of a multiprocessor.
    (9, 64 << 10), (11, i32::MAX), (12, 65_536), (82, 65_536),
    // `%clock` counts nanoseconds; this is in kHz.
    (13, 1_000_000),
    // Alignments by which the pitch of two-dimensional memory is chosen.
    (14, 512), (51, 32),
    // Largest textures of one, two and three dimensions, and of layers.
    (21, 131_072), (22, 131_072), (23, 65_536), (24, 16_384), (25, 16_384), (26, 16_384),
    (27, 32_768), (28, 32_768), (29, 2048), (42, 32_768), (43, 2048),
    // Largest textures of which elements are gathered, of cubes, and of layers of cubes.
    (44, 1), (45, 32_768), (46, 32_768), (52, 32_768), (53, 32_768), (54, 2046),
    // Largest surfaces, in the same order; alignment of surfaces.
    (55, 32_768), (56, 131_072), (57, 65_536), (58, 16_384), (59, 16_384), (60, 16_384),
    (61, 32_768), (62, 2048), (63, 32_768), (64, 32_768), (65, 2048),
    (66, 32_768), (67, 32_768), (68, 2046), (30, 512),
    // Largest textures of memory: elements of one row; elements, rows and bytes between rows.
    (69, 1 << 28), (70, 131_072), (71, 65_000), (72, 2_097_120),
    // No other shape of the largest texture of three dimensions.
    (47, 0), (48, 0), (49, 0),
    // Mapped host memory; several kernels at once; one address space with the host; priorities are
    // accepted.
    (19, 1), (31, 1), (41, 1), (78, 1),
    // Threads and blocks of a multiprocessor.
    (39, 2048), (106, 32),
    (75, CAPABILITY / 10), (76, CAPABILITY % 10),
    // Loads are cached.
    (79, 1), (80, 1),
    // Managed memory, which host and kernels may access at once, with atomic operations, because
    // both are the same processor.
    (83, 1), (86, 1), (89, 1), (101, 1),
    (87, 2),
    // Registration of host memory, also read-only.
    (99, 1), (113, 1),
    // Blocks of a grid can wait for each other.
    (95, 1),
    // Memory at chosen addresses, descriptors of it, memory pools.
    (102, 1), (103, 1), (115, 1),
    // Stores and waits of streams.
    (122, 1),
    (126, 1),
    // No NUMA node of its own or next to it is known.
    (131, -1), (134, -1),
    // Kept by name for readers: none of these is supported.
    (17, 0), (18, 0), (32, 0), (88, 0), (91, 0), (120, 0),
];

/// Returns the facts about device number `device`, which `attributes` describes.
pub(crate) fn of(device: u32, attributes: &Attributes) -> DeviceFacts {
    let mut facts = DeviceFacts::of(attributes);
    for number in 1..=LAST {
        facts.set(number, 0);
    }
    for (number, value) in ATTRIBUTES {
        facts.set(number, value);
    }
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    facts.set(10, number(attributes.warp_threads));
    facts.set(16, number(attributes.compute_units));
    let mut uuid = UUID;
    uuid[15] = uuid[15].wrapping_add(device as u8);
    DeviceFacts {
        name: format!("Causeway {}", attributes.name),
        uuid,
        pci: [0, 0, device],
        capability: [9, 0],
        cuda_version: CUDA_VERSION,
        ..facts
    }
}

#[cfg(test)]
mod tests {
    use causeway_mediator::backend::Backend;

    use super::*;
    use crate::backend::{Config, Software};

    #[test]
    fn attributes_agree_with_the_limits_of_the_engine() {
        let software = Software::new(Config {
            memory_bytes: 1 << 20,
            cores: Some(3),
            ..Config::default()
        });
        let facts = software.device_facts();
        let value = |number: usize| facts.attributes[number - 1];
        let limits = software.attributes();
        assert_eq!(value(1), Some(limits.block_threads_max.cast_signed()));
        assert_eq!(value(10), Some(32));
        assert_eq!(value(16), Some(3));
        assert_eq!(value(97), Some(limits.shared_bytes_max.cast_signed()));
        assert_eq!((value(75), value(76)), (Some(9), Some(0)));
        assert_eq!(facts.capability, [9, 0]);
        assert_eq!(value(95), Some(1), "all blocks of a grid can meet");
        assert_eq!((value(69), value(72)), (Some(1 << 28), Some(2_097_120)));
        assert_eq!(value(73), Some(0), "there are no mipmaps");
        assert_eq!(value(LAST), Some(0));
        assert_eq!(
            value(LAST + 1),
            None,
            "an attribute that CUDA 13.0 does not have"
        );
        assert!(facts.name.len() <= 128);
    }

    #[test]
    fn no_attribute_is_listed_twice() {
        let mut numbers = ATTRIBUTES.map(|(number, _)| number).to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ATTRIBUTES.len());
        assert!(numbers.iter().all(|number| (1..=LAST).contains(number)));
    }
}
