//! What the device is: asked for once, at `cuInit`.

use causeway_protocol::message::{DEVICE_ATTRIBUTES, UNKNOWN_ATTRIBUTE};
use causeway_protocol::registers::features;
use causeway_shim_linux::shim::{Attributes, Device, DeviceFacts, Status};

use crate::error::{Answer, Code};

/// Oldest driver that a host before protocol 1.3 uses: CUDA 12.4.
const OLD_HOST_CUDA_VERSION: u32 = 12_040;
/// Capability that is assumed for a host before protocol 1.3: PTX for it runs on all later GPUs.
const OLD_HOST_CAPABILITY: [u32; 2] = [7, 0];
/// Version of CUDA without a driver behind the device.
const NO_DRIVER: i32 = i32::MAX;

/// Attributes that are the same for all GPUs of the last ten years: dimensions of blocks and grids,
/// constant memory, pitch, registers, alignments, and one address space with the host.
const COMMON: [(u32, i32); 16] = [
    (2, 1024),
    (3, 1024),
    (4, 64),
    (5, i32::MAX),
    (6, 65_535),
    (7, 65_535),
    (9, 64 << 10),
    (11, i32::MAX),
    (12, 65_536),
    (14, 512),
    (19, 1),
    (31, 1),
    (39, 2048),
    (41, 1),
    (51, 32),
    (82, 65_536),
];

/// Attributes of things that this library does not do, whatever the GPU can, with the values that
/// say so.
const ABSENT: [(u32, u32); 22] = [
    // The guest's process has the device for itself: compute mode "default".
    (20, 20),
    // Sizes of textures of mipmapped arrays.
    (73, 74),
    (77, 77),
    // Memory of the process that is not registered; registered memory has an address of its own.
    (88, 88),
    (91, 91),
    // The first version of stores and waits of streams, and waiting for NOR.
    (92, 94),
    (123, 123),
    // Cooperative launches over several devices, flushes of remote writes.
    (96, 96),
    (98, 98),
    // Page tables of the host; handles of Windows; compression.
    (100, 100),
    (104, 105),
    (107, 110),
    // Sparse arrays, semaphores of other APIs, RDMA, pools of others, arrays mapped later.
    (112, 112),
    (114, 114),
    (116, 119),
    (121, 121),
    // DMA-BUF.
    (124, 124),
    // NUMA memory, multicast, other APIs, decompression, memory of the host by `cuMemCreate`.
    (130, 130),
    (132, 133),
    (135, 138),
    (141, 143),
    (145, 148),
];

/// Sizes of textures and surfaces, which there are if the session has arrays.
const OF_ARRAYS: [(u32, u32); 3] = [(21, 29), (42, 49), (52, 72)];

/// `CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED`, and the attribute that decides it:
/// `…_MANAGED_MEMORY`. Memory of both has one address for CPU and GPU.
const HOST_POOLS: (u32, u32) = (144, 83);

/// `CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES`, and the attribute that decides it:
/// `…_MEMORY_POOLS_SUPPORTED`.
const POOL_HANDLES: (u32, u32) = (119, 115);
/// `CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID`: pools of the host take every node for the first.
const HOST_NODE: u32 = 134;
/// `CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED`
const SHARED_EVENTS: u32 = 125;
/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED`
const FABRIC_HANDLES: u32 = 128;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const POSIX: i32 = 1;

/// What the device is, as programs see it.
#[derive(Clone)]
pub(crate) struct Facts {
    facts: DeviceFacts,
}

/// Asks the device what it is.
///
/// # Errors
/// `DEVICE_UNAVAILABLE` if the session is lost.
pub(crate) fn query(device: &Device<'_>, attributes: &Attributes) -> Answer<Facts> {
    let facts = match device.query_device() {
        Ok(facts) => facts,
        Err(error) if error.status() == Status::BadOpcode => of_old_host(attributes),
        Err(error) => {
            log::warn!("cannot ask the Causeway device what it is: {error}");
            return Err(Code::DEVICE_UNAVAILABLE);
        }
    };
    Ok(Facts::new(facts, device.features()))
}

/// Returns what can be known of a device whose host speaks a protocol before 1.3.
fn of_old_host(attributes: &Attributes) -> DeviceFacts {
    let mut facts = DeviceFacts {
        memory_bytes: attributes.memory_bytes,
        capability_major: OLD_HOST_CAPABILITY[0],
        capability_minor: OLD_HOST_CAPABILITY[1],
        cuda_version: OLD_HOST_CUDA_VERSION,
        ..DeviceFacts::default()
    };
    facts.name[..attributes.name.len()].copy_from_slice(&attributes.name);
    let value = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let own = [
        (1, value(attributes.block_threads_max)),
        (8, value(attributes.shared_bytes_max.min(48 << 10))),
        (10, value(attributes.warp_threads)),
        (16, value(attributes.compute_units)),
        (75, value(OLD_HOST_CAPABILITY[0])),
        (76, value(OLD_HOST_CAPABILITY[1])),
        (97, value(attributes.shared_bytes_max)),
    ];
    for (number, value) in COMMON.into_iter().chain(own) {
        facts.attributes[number as usize - 1] = value;
    }
    facts
}

impl Facts {
    /// Notes what the host says, and what this library makes of it. `features` are those of the
    /// session.
    fn new(mut facts: DeviceFacts, features: u64) -> Self {
        let shares = features & features::SHARING != 0;
        let has_fabric = features & (features::FABRIC_EXPORT | features::FABRIC_IMPORT) != 0;
        let has_arrays = features & features::ARRAYS != 0;
        let of_arrays = OF_ARRAYS.iter().filter(|_| !has_arrays);
        for (first, last) in ABSENT.iter().chain(of_arrays).copied() {
            for value in &mut facts.attributes[first as usize - 1..last as usize] {
                // What the host does not know stays unknown.
                if *value != UNKNOWN_ATTRIBUTE {
                    *value = 0;
                }
            }
        }
        let (host_pools, managed) = HOST_POOLS;
        let managed = facts.attributes[managed as usize - 1];
        if facts.attributes[host_pools as usize - 1] != UNKNOWN_ATTRIBUTE {
            facts.attributes[host_pools as usize - 1] = match managed {
                UNKNOWN_ATTRIBUTE => 0,
                managed => i32::from(managed != 0),
            };
        }
        // Programs take no node for a system on which pools of the host cannot be shared.
        let has_host_pools = facts.attributes[host_pools as usize - 1] == 1;
        let node = &mut facts.attributes[HOST_NODE as usize - 1];
        if has_host_pools && *node == -1 {
            *node = 0;
        }
        let (pool_handles, pools) = POOL_HANDLES;
        if shares && !matches!(facts.attributes[pools as usize - 1], UNKNOWN_ATTRIBUTE | 0) {
            facts.attributes[pool_handles as usize - 1] = POSIX;
        }
        // What the driver of the host has does not count, but what its operator allows.
        let fabric = &mut facts.attributes[FABRIC_HANDLES as usize - 1];
        if *fabric != UNKNOWN_ATTRIBUTE {
            *fabric = i32::from(has_fabric);
        }
        let events = &mut facts.attributes[SHARED_EVENTS as usize - 1];
        if *events != UNKNOWN_ATTRIBUTE {
            *events = i32::from(shares);
        }
        Self { facts }
    }

    /// Returns the value of the attribute `number` of `CUdevice_attribute`; `None` if there is no
    /// such attribute.
    pub(crate) fn attribute(&self, number: u32) -> Option<i32> {
        let index = (number as usize).checked_sub(1)?;
        let value = *self.facts.attributes.get(index)?;
        (value != UNKNOWN_ATTRIBUTE).then_some(value)
    }

    /// Returns the name of the device.
    pub(crate) fn name(&self) -> &str {
        let name = &self.facts.name;
        let used = name.iter().position(|byte| *byte == 0);
        str::from_utf8(&name[..used.unwrap_or(name.len())]).unwrap_or("Causeway")
    }

    /// Returns the UUID of the device.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.facts.uuid
    }

    /// Returns the most memory that this process's session can use, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.facts.memory_bytes
    }

    /// Returns major and minor number of the compute capability.
    pub(crate) fn capability(&self) -> [i32; 2] {
        let number = |value: u32| i32::try_from(value).unwrap_or(0);
        [
            number(self.facts.capability_major),
            number(self.facts.capability_minor),
        ]
    }

    /// Returns domain, bus and device number of the device.
    pub(crate) fn pci(&self) -> [u32; 3] {
        let facts = &self.facts;
        [facts.pci_domain, facts.pci_bus, facts.pci_device]
    }

    /// Returns the version of CUDA that the host's driver has; the largest number if there is no
    /// driver.
    pub(crate) fn cuda_version(&self) -> i32 {
        match self.facts.cuda_version {
            0 => NO_DRIVER,
            version => i32::try_from(version).unwrap_or(NO_DRIVER),
        }
    }
}

const _: () = assert!(DEVICE_ATTRIBUTES >= 148, "all attributes of CUDA 13.0");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_does_not_do_is_absent_and_the_rest_is_the_hosts() {
        let mut facts = DeviceFacts {
            attributes: [7; DEVICE_ATTRIBUTES],
            ..DeviceFacts::default()
        };
        facts.attributes[134 - 1] = -1;
        facts.attributes[149 - 1] = UNKNOWN_ATTRIBUTE;
        facts.attributes[95 - 1] = UNKNOWN_ATTRIBUTE;
        let unshared = Facts::new(facts, 0);
        assert_eq!(unshared.attribute(128), Some(0), "fabric handles");
        assert_eq!(unshared.attribute(119), Some(0), "pools of others");
        assert_eq!(unshared.attribute(125), Some(0), "events of others");
        assert_eq!(unshared.attribute(21), Some(0), "textures");
        let all = features::SHARING | features::FABRIC_IMPORT | features::ARRAYS;
        let facts = Facts::new(facts, all);
        assert_eq!(facts.attribute(128), Some(1), "fabric handles");
        assert_eq!(facts.attribute(132), Some(0), "multicast");
        assert_eq!(facts.attribute(120), Some(7), "clusters");
        assert_eq!(facts.attribute(121), Some(0), "arrays mapped later");
        assert_eq!(facts.attribute(119), Some(1), "pools of others");
        assert_eq!(facts.attribute(125), Some(1), "events of others");
        assert_eq!(facts.attribute(1), Some(7));
        assert_eq!(facts.attribute(88), Some(0), "pageable memory");
        assert_eq!(facts.attribute(83), Some(7), "managed memory");
        assert_eq!(facts.attribute(144), Some(1), "pools of memory of the host");
        assert_eq!(facts.attribute(134), Some(0), "the host's node");
        assert_eq!(facts.attribute(122), Some(7), "stores of streams");
        assert_eq!(facts.attribute(21), Some(7), "textures");
        assert_eq!(facts.attribute(73), Some(0), "textures of mipmapped arrays");
        assert_eq!(facts.attribute(95), None, "what the host does not know");
        assert_eq!(facts.attribute(149), None);
        for number in [0, 161, u32::MAX] {
            assert_eq!(facts.attribute(number), None);
        }
    }

    #[test]
    fn an_old_host_is_described_by_its_limits() {
        let mut attributes = Attributes {
            memory_bytes: 1 << 30,
            compute_units: 4,
            warp_threads: 32,
            block_threads_max: 512,
            shared_bytes_max: 100 << 10,
            ..Attributes::default()
        };
        attributes.name[..4].copy_from_slice(b"some");
        let facts = Facts::new(of_old_host(&attributes), features::SHARING);
        assert_eq!(facts.name(), "some");
        assert_eq!(facts.capability(), [7, 0]);
        assert_eq!(facts.cuda_version(), 12_040);
        let values = [1, 5, 8, 10, 16, 97].map(|number| facts.attribute(number));
        let wanted = [512, i32::MAX, 48 << 10, 32, 4, 100 << 10];
        assert_eq!(values, wanted.map(Some));
    }
}
