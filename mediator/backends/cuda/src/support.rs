//! The attributes of a GPU, which the driver is asked for once.

use std::collections::BTreeMap;

use crate::driver::{CudaError, Device};

macro_rules! attributes {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal, $symbol:literal;)*) => {
        /// A device attribute that matters here; its number is that of `CUdevice_attribute` in
        /// cuda.h.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Attribute { $($(#[doc = $doc])* $name = $number,)* }

        impl Attribute {
            /// All of them, in the order of a report.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns its name in cuda.h, without the prefix `CU_DEVICE_ATTRIBUTE_`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $symbol,)* }
            }
        }
    };
}

attributes! {
    /// Memory behind handles can be mapped at chosen addresses.
    VirtualMemory = 102, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED";
    /// Such memory can be exported as a file descriptor.
    PosixDescriptor = 103, "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED";
    /// Such memory can be exported to other machines.
    Fabric = 128, "HANDLE_TYPE_FABRIC_SUPPORTED";
    /// Other PCI devices can reach such memory.
    Rdma = 110, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED";
    /// Memory can be allocated compressible.
    Compression = 107, "GENERIC_COMPRESSION_SUPPORTED";
    /// The GPU supports multicast objects, which several GPUs reach at once.
    Multicast = 132, "MULTICAST_SUPPORTED";
    /// The host's NUMA node next to the GPU.
    HostNuma = 134, "HOST_NUMA_ID";
    /// Host memory can be allocated behind handles.
    HostNumaVirtualMemory = 141, "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED";
    /// Streams can store 64-bit words (by the second version of these calls; 93 is that of the
    /// first).
    StreamStores64 = 122, "CAN_USE_64_BIT_STREAM_MEM_OPS";
    /// Host memory can be registered.
    HostRegister = 99, "HOST_REGISTER_SUPPORTED";
    /// Host memory can be registered so that the GPU only reads it.
    HostRegisterReadOnly = 113, "READ_ONLY_HOST_REGISTER_SUPPORTED";
    /// Registered memory has the same address on both sides.
    SameAddresses = 91, "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM";
    /// Host and GPU share one address space.
    UnifiedAddressing = 41, "UNIFIED_ADDRESSING";
    /// Kernels can access all memory of the process.
    Pageable = 88, "PAGEABLE_MEMORY_ACCESS";
    /// Number of multiprocessors.
    Multiprocessors = 16, "MULTIPROCESSOR_COUNT";
    /// Most threads that a multiprocessor holds at once.
    ThreadsPerMultiprocessor = 39, "MAX_THREADS_PER_MULTIPROCESSOR";
    /// Most threads of a block.
    ThreadsPerBlock = 1, "MAX_THREADS_PER_BLOCK";
    /// Threads of a warp.
    Warp = 10, "WARP_SIZE";
    /// Most shared memory of a block in bytes, if the kernel asks for it.
    SharedOptIn = 97, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN";
    /// Most shared memory of a block in bytes, unless the kernel asks for more.
    Shared = 8, "MAX_SHARED_MEMORY_PER_BLOCK";
    /// Number of copy engines.
    CopyEngines = 40, "ASYNC_ENGINE_COUNT";
    /// Compute capability, major.
    CapabilityMajor = 75, "COMPUTE_CAPABILITY_MAJOR";
    /// Compute capability, minor.
    CapabilityMinor = 76, "COMPUTE_CAPABILITY_MINOR";
}

/// What one GPU supports, as its CUDA device attributes say.
#[derive(Clone, Debug)]
pub struct Support {
    values: BTreeMap<Attribute, Result<i32, CudaError>>,
}

impl Support {
    /// Asks the driver.
    pub(crate) fn query(gpu: Device) -> Self {
        let ask = |attribute: &Attribute| (*attribute, gpu.attribute(*attribute as u32));
        Self {
            values: Attribute::ALL.iter().map(ask).collect(),
        }
    }

    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// The driver does not know the attribute.
    pub fn value(&self, attribute: Attribute) -> Result<i32, CudaError> {
        let value = self.values.get(&attribute).cloned();
        value.unwrap_or(Ok(0))
    }

    /// Returns the value as a count; 0 if the driver does not know it.
    pub fn count(&self, attribute: Attribute) -> u32 {
        let value = self.value(attribute).unwrap_or(0);
        u32::try_from(value).unwrap_or(0)
    }

    /// Returns whether the value is not 0.
    pub fn has(&self, attribute: Attribute) -> bool {
        self.count(attribute) != 0
    }

    /// Returns ten times the major compute capability plus the minor: 90 for sm_90.
    pub fn architecture(&self) -> u32 {
        self.count(Attribute::CapabilityMajor) * 10 + self.count(Attribute::CapabilityMinor)
    }

    /// Returns the first attribute without which the back end does not work, if one is missing.
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
