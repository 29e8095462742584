//! What the driver says that the GPU can do. Asked once, before anything is relied on.

use std::collections::BTreeMap;

use crate::driver::{CudaError, Device};

macro_rules! attributes {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal, $symbol:literal;)*) => {
        /// A device attribute that matters here; its number is that of `CUdevice_attribute` in cuda.h.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Attribute { $($(#[doc = $doc])* $name = $number,)* }

        impl Attribute {
            /// All of them, in the order of a report.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As cuda.h calls it, without the prefix `CU_DEVICE_ATTRIBUTE_`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $symbol,)* }
            }
        }
    };
}

attributes! {
    /// Memory behind handles, mapped where one likes.
    VirtualMemory = 102, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED";
    /// Such memory can be exported as a file descriptor.
    PosixDescriptor = 103, "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED";
    /// Such memory can be exported to other machines.
    Fabric = 128, "HANDLE_TYPE_FABRIC_SUPPORTED";
    /// Other PCI devices can reach such memory.
    Rdma = 110, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED";
    /// Memory can be allocated compressible.
    Compression = 107, "GENERIC_COMPRESSION_SUPPORTED";
    /// Objects that several GPUs reach at once.
    Multicast = 132, "MULTICAST_SUPPORTED";
    /// The host's NUMA node next to the GPU.
    HostNuma = 134, "HOST_NUMA_ID";
    /// Host memory behind handles.
    HostNumaVirtualMemory = 141, "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED";
    /// Streams can store 64-bit words.
    StreamStores64 = 93, "CAN_USE_64_BIT_STREAM_MEM_OPS";
    /// Host memory can be registered.
    HostRegister = 99, "HOST_REGISTER_SUPPORTED";
    /// Host memory can be registered so that the GPU only reads it.
    HostRegisterReadOnly = 113, "READ_ONLY_HOST_REGISTER_SUPPORTED";
    /// Registered memory has the same address on both sides.
    SameAddresses = 91, "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM";
    /// One address space for host and GPU.
    UnifiedAddressing = 41, "UNIFIED_ADDRESSING";
    /// Kernels reach all memory of the process.
    Pageable = 88, "PAGEABLE_MEMORY_ACCESS";
    /// Multiprocessors.
    Multiprocessors = 16, "MULTIPROCESSOR_COUNT";
    /// Threads that a multiprocessor holds at once.
    ThreadsPerMultiprocessor = 39, "MAX_THREADS_PER_MULTIPROCESSOR";
    /// Threads of a block.
    ThreadsPerBlock = 1, "MAX_THREADS_PER_BLOCK";
    /// Threads of a warp.
    Warp = 10, "WARP_SIZE";
    /// Shared memory of a block in bytes, if the kernel asks for it.
    SharedOptIn = 97, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN";
    /// Shared memory of a block in bytes.
    Shared = 8, "MAX_SHARED_MEMORY_PER_BLOCK";
    /// Copy engines.
    CopyEngines = 40, "ASYNC_ENGINE_COUNT";
    /// Compute capability, major.
    CapabilityMajor = 75, "COMPUTE_CAPABILITY_MAJOR";
    /// Compute capability, minor.
    CapabilityMinor = 76, "COMPUTE_CAPABILITY_MINOR";
}

/// The attributes of one GPU.
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

    /// What the driver said; an error for attributes that it does not know.
    pub fn value(&self, attribute: Attribute) -> Result<i32, CudaError> {
        let value = self.values.get(&attribute).cloned();
        value.unwrap_or(Ok(0))
    }

    /// The value as a count; 0 if the driver does not know it.
    pub fn count(&self, attribute: Attribute) -> u32 {
        let value = self.value(attribute).unwrap_or(0);
        u32::try_from(value).unwrap_or(0)
    }

    /// Whether the value is not 0.
    pub fn has(&self, attribute: Attribute) -> bool {
        self.count(attribute) != 0
    }

    /// Ten times the major compute capability and the minor: 90 for sm_90.
    pub fn architecture(&self) -> u32 {
        self.count(Attribute::CapabilityMajor) * 10 + self.count(Attribute::CapabilityMinor)
    }

    /// The first attribute without which the back end does not work, if one is missing.
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
