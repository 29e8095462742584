//! The device attributes of a GPU, which the driver is asked for once.

use std::collections::BTreeMap;

use crate::driver::{CudaError, Device};

macro_rules! attributes {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal, $symbol:literal;)*) => {
        /// A CUDA device attribute that Causeway uses or that `causeway doctor` reports. Its number
        /// is that of `CUdevice_attribute` in cuda.h.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Attribute { $($(#[doc = $doc])* $name = $number,)* }

        impl Attribute {
            /// All attributes of this enumeration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the attribute's name in cuda.h, without the prefix `CU_DEVICE_ATTRIBUTE_`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $symbol,)* }
            }
        }
    };
}

attributes! {
    /// 1 if memory that `cuMemCreate` allocates can be mapped at chosen addresses.
    VirtualMemory = 102, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED";
    /// 1 if memory that `cuMemCreate` allocates can be exported as a file descriptor.
    PosixDescriptor = 103, "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED";
    /// 1 if memory that `cuMemCreate` allocates can be exported to other machines.
    Fabric = 128, "HANDLE_TYPE_FABRIC_SUPPORTED";
    /// 1 if other PCI devices can access memory that `cuMemCreate` allocates.
    Rdma = 110, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED";
    /// 1 if the GPU can compress the content of memory that is allocated for it.
    Compression = 107, "GENERIC_COMPRESSION_SUPPORTED";
    /// 1 if the GPU supports multicast objects: addresses at which several GPUs store at once.
    Multicast = 132, "MULTICAST_SUPPORTED";
    /// Number of the host's NUMA node next to the GPU; -1 if the host has no NUMA nodes.
    HostNuma = 134, "HOST_NUMA_ID";
    /// 1 if `cuMemCreate` can allocate host memory on a chosen NUMA node.
    HostNumaVirtualMemory = 141, "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED";
    /// 1 if streams can store 64-bit words with the second version of `cuStreamWriteValue64`.
    /// Attribute 93 is that of the first version.
    StreamStores64 = 122, "CAN_USE_64_BIT_STREAM_MEM_OPS";
    /// 1 if host memory can be registered, so that the GPU can access it.
    HostRegister = 99, "HOST_REGISTER_SUPPORTED";
    /// 1 if host memory can be registered so that the GPU can read, but not write it.
    HostRegisterReadOnly = 113, "READ_ONLY_HOST_REGISTER_SUPPORTED";
    /// 1 if registered host memory has the same address for CPU and GPU.
    SameAddresses = 91, "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM";
    /// 1 if host and GPU share one address space.
    UnifiedAddressing = 41, "UNIFIED_ADDRESSING";
    /// 1 if kernels can access all memory of the process, without registration.
    Pageable = 88, "PAGEABLE_MEMORY_ACCESS";
    /// Number of multiprocessors.
    Multiprocessors = 16, "MULTIPROCESSOR_COUNT";
    /// Most threads that a multiprocessor executes at once.
    ThreadsPerMultiprocessor = 39, "MAX_THREADS_PER_MULTIPROCESSOR";
    /// Most threads of a block.
    ThreadsPerBlock = 1, "MAX_THREADS_PER_BLOCK";
    /// Number of threads in a warp.
    Warp = 10, "WARP_SIZE";
    /// Most shared memory of a block, in bytes, of a kernel that has asked for more than usual.
    SharedOptIn = 97, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN";
    /// Most shared memory of a block, in bytes, of a kernel that has not asked for more.
    Shared = 8, "MAX_SHARED_MEMORY_PER_BLOCK";
    /// Number of copy engines.
    CopyEngines = 40, "ASYNC_ENGINE_COUNT";
    /// Major number of the compute capability: 9 for sm_90.
    CapabilityMajor = 75, "COMPUTE_CAPABILITY_MAJOR";
    /// Minor number of the compute capability: 0 for sm_90.
    CapabilityMinor = 76, "COMPUTE_CAPABILITY_MINOR";
}

/// What one GPU supports, as its CUDA device attributes say.
#[derive(Clone, Debug)]
pub struct Support {
    values: BTreeMap<Attribute, Result<i32, CudaError>>,
}

impl Support {
    /// Asks the driver for all attributes of `gpu`.
    pub(crate) fn query(gpu: Device) -> Self {
        let ask = |attribute: &Attribute| (*attribute, gpu.attribute(*attribute as u32));
        Self {
            values: Attribute::ALL.iter().map(ask).collect(),
        }
    }

    /// Returns the value of `attribute`, as the driver reported it.
    ///
    /// # Errors
    /// The driver's error if it does not know the attribute.
    pub fn value(&self, attribute: Attribute) -> Result<i32, CudaError> {
        self.values[&attribute].clone()
    }

    /// Returns the value of `attribute` as a count: 0 if the value is negative, or if the driver
    /// does not know the attribute.
    pub fn count(&self, attribute: Attribute) -> u32 {
        let value = self.value(attribute).unwrap_or(0);
        u32::try_from(value).unwrap_or(0)
    }

    /// Returns whether the GPU has what `attribute` stands for: its value is greater than 0.
    pub fn has(&self, attribute: Attribute) -> bool {
        self.count(attribute) != 0
    }

    /// Returns the compute capability as ten times the major number plus the minor number: 90 for
    /// sm_90.
    pub fn architecture(&self) -> u32 {
        self.count(Attribute::CapabilityMajor) * 10 + self.count(Attribute::CapabilityMinor)
    }

    /// Returns the first attribute that the back end needs and the GPU does not have; `None` if the
    /// GPU has all of them.
    pub fn missing(&self) -> Option<Attribute> {
        [
            Attribute::VirtualMemory,
            Attribute::PosixDescriptor,
            Attribute::UnifiedAddressing,
        ]
        .into_iter()
        .find(|attribute| !self.has(*attribute))
    }
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys::CUdevice_attribute as Header;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        use Attribute as A;
        for (attribute, header) in [
            (
                A::VirtualMemory,
                Header::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            ),
            (
                A::PosixDescriptor,
                Header::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            ),
            (
                A::Fabric,
                Header::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
            ),
            (
                A::Rdma,
                Header::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
            ),
            (
                A::Compression,
                Header::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
            ),
            (
                A::Multicast,
                Header::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
            ),
            (A::HostNuma, Header::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID),
            (
                A::HostNumaVirtualMemory,
                Header::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            ),
            (
                A::StreamStores64,
                Header::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
            ),
            (
                A::HostRegister,
                Header::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
            ),
            (
                A::HostRegisterReadOnly,
                Header::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
            ),
            (
                A::SameAddresses,
                Header::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
            ),
            (
                A::UnifiedAddressing,
                Header::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
            ),
            (
                A::Pageable,
                Header::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
            ),
            (
                A::Multiprocessors,
                Header::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            ),
            (
                A::ThreadsPerMultiprocessor,
                Header::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            ),
            (
                A::ThreadsPerBlock,
                Header::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            ),
            (A::Warp, Header::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
            (
                A::SharedOptIn,
                Header::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            ),
            (
                A::Shared,
                Header::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
            ),
            (
                A::CopyEngines,
                Header::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
            ),
            (
                A::CapabilityMajor,
                Header::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            ),
            (
                A::CapabilityMinor,
                Header::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            ),
        ] {
            assert_eq!(attribute as u32, header as u32, "{}", attribute.name());
            let named = format!("{header:?}");
            // One attribute has two names.
            let alias = named.contains("VIRTUAL_ADDRESS_MANAGEMENT");
            assert!(alias || named.ends_with(attribute.name()), "{named}");
        }
        assert_eq!(A::ALL.len(), 23, "every one is looked at");
    }
}
