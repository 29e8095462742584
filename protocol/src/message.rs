//! Control messages.
//!
//! A batch is a sequence of messages in the control area. Each message is a [`Header`] and a body
//! of the fixed size that belongs to its opcode: the request, overwritten by the reply (the body is
//! as large as the larger of the two; the rest is zero). Messages are executed in order. The first
//! that fails ends the batch; those after it get [`Status::NotRun`].
//!
//! A handle of [`PREVIOUS`] stands for the handle that the most recent message in the same batch
//! returned: one batch, and so one exit, can allocate memory, map it for the GPU and map it for the
//! CPU.

mod body;
mod code;
mod opcode;
mod status;
mod texture;

pub use body::*;
pub use code::*;
pub use opcode::{OPCODES, Opcode, Operation, message_bytes, operation};
pub use status::{STATUSES, Status};
pub use texture::*;

use crate::wire::{Structure, wire_enum};

/// Descriptions of all structures of messages, for the documentation.
pub const STRUCTURES: &[Structure] = &{
    const CHAPTERS: [&[Structure]; 3] = [body::STRUCTURES, code::STRUCTURES, texture::STRUCTURES];
    const COUNT: usize = CHAPTERS[0].len() + CHAPTERS[1].len() + CHAPTERS[2].len();
    let mut all = [CHAPTERS[0][0]; COUNT];
    let (mut index, mut chapter, mut place) = (0, 0, 0);
    while index < COUNT {
        if place == CHAPTERS[chapter].len() {
            (chapter, place) = (chapter + 1, 0);
        }
        all[index] = CHAPTERS[chapter][place];
        (index, place) = (index + 1, place + 1);
    }
    all
};

/// Placeholder for a handle. The device replaces it with the handle of the object that the latest
/// earlier message of the same batch created.
pub const PREVIOUS: u32 = u32::MAX;
/// Maximum size of a module image (PTX, cubin or fat binary) in bytes.
pub const MODULE_BYTES_MAX: u64 = 512 << 20;
/// Size in bytes of the description of a tensor, for the GPU alone to read (`CUtensorMap`).
pub const TENSOR_MAP_BYTES: usize = 128;
/// Maximum number of dimensions of such a tensor.
pub const TENSOR_RANK_MAX: usize = 5;
/// Maximum length in bytes of the name of a kernel or variable in a message.
pub const KERNEL_NAME_MAX: usize = 512;
/// Number of device attributes in [`DeviceFacts`]: those with the numbers 1 to 160.
pub const DEVICE_ATTRIBUTES: usize = 160;
/// Number of kernel attributes in [`KernelFacts`]: those with the numbers 0 to 15.
pub const KERNEL_ATTRIBUTES: usize = 16;
/// Value of an attribute that the device does not know.
pub const UNKNOWN_ATTRIBUTE: i32 = i32::MIN;
/// Maximum number of bytes of text in one [`OutputReply`].
pub const OUTPUT_BYTES: usize = 2040;
/// Maximum number of kernel parameters that [`KernelReply::layout`] can describe.
pub const PARAMETERS_MAX: usize = 128;
/// Maximum number of GPUs of a run: what the bits of [`Export::gpus`] can name.
pub const GPUS_MAX: u32 = 64;
/// What stands for a rank of `query_gpus` that is not known.
pub const UNKNOWN_RANK: u8 = u8::MAX;
/// Number of ranks in the answer to `query_gpus`.
pub const GPU_RANKS: usize = GPUS_MAX as usize;
/// Length of an export token in bytes.
pub const TOKEN_BYTES: usize = 32;
/// Length of a fabric handle in bytes (`CUmemFabricHandle`).
pub const FABRIC_HANDLE_BYTES: usize = 64;

/// Maximum size of a recording in bytes. A packet has at least 64 bytes, so a recording has at most
/// 16,384 packets.
pub const RECORDING_BYTES_MAX: u64 = 1 << 20;

/// Bit 63 of an address in [`LoadModule`] or [`CreateRecording`]. If this bit is set, the other
/// bits are an offset into the aperture instead of a guest-physical address (since 1.2). All bytes
/// to which the message refers must lie in one mapping of host memory.
pub const APERTURE_ADDRESS: u64 = 1 << 63;

/// GPU virtual addresses that a guest can choose for host memory, if the session has
/// [`crate::registers::features::HOST_ADDRESSES`]. A process that has the memory at the same
/// addresses for its CPU can hand pointers to kernels. The range is free in processes of Linux: it
/// is below libraries, stacks and heaps.
pub const HOST_ADDRESSES: core::ops::Range<u64> = 0x2000_0000_0000..0x2200_0000_0000;

/// Maximum number of fences for which all clients of one session together can have interrupts
/// requested ([`Notify`]) at a time.
pub const NOTIFIES_MAX: u32 = 256;

/// Bits of [`KernelFacts::flags`].
pub mod kernel_flags {
    /// The kernel prints, so launches of it may leave text that the message `read_output` returns.
    pub const PRINTS: u32 = 1 << 0;
}

/// Bits of [`Allocate::flags`].
pub mod allocate_flags {
    /// Allocates memory that the GPU may store compressed. The session must have the feature
    /// [`crate::registers::features::COMPRESSION`].
    pub const COMPRESSIBLE: u32 = 1 << 0;
    /// Allocates memory whose fabric handle the message `export_fabric` returns. Only GPU memory
    /// that CPUs cannot access has one. The session must have the feature
    /// [`crate::registers::features::FABRIC_EXPORT`] (since 1.4).
    pub const FABRIC: u32 = 1 << 1;
}

wire_enum! {
    /// Kinds of memory that a guest can allocate.
    pub enum MemoryKind: u32 {
        /// GPU memory that the guest's CPU cannot access.
        Device = 0,
        /// GPU memory that the guest's CPU can access (write-combining on real hardware).
        DeviceVisible = 1,
        /// Host memory, which the CPU caches and the GPU can access. It is for rings, fences and
        /// data that the guest passes to the device.
        Host = 2,
    }
}

wire_enum! {
    /// What the message `encode_tensor_map` does.
    pub enum TensorMapKind: u32 {
        /// Describe a tensor of which kernels copy boxes (`cuTensorMapEncodeTiled`).
        Tiled = 0,
        /// Describe a tensor of which kernels copy columns of images (`cuTensorMapEncodeIm2col`).
        Im2col = 1,
        /// Put another address in a description (`cuTensorMapReplaceAddress`).
        Replace = 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_values_are_distinct_and_survive_a_round_trip() {
        for (i, opcode) in OPCODES.iter().enumerate() {
            assert_eq!(Opcode::from_wire(*opcode as u16), Some(*opcode));
            assert!(
                OPCODES[i + 1..]
                    .iter()
                    .all(|other| other.name() != opcode.name())
            );
            assert!(message_bytes(*opcode).is_multiple_of(8));
        }
        for status in STATUSES {
            assert_eq!(Status::from_wire(*status as u32), Some(*status));
        }
        assert_eq!(Opcode::from_wire(0), None);
        assert_eq!(Status::from_wire(9999), None);
    }
}
