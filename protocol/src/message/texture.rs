//! Structures of messages about arrays, and about textures and surfaces, by which kernels access
//! arrays and memory.

use crate::wire::structures;

/// Number of dimensions that an array has at most.
pub const ARRAY_DIMENSIONS: usize = 3;

/// Bits of [`CreateArray::flags`], with the values of `CUDA_ARRAY3D_…`.
pub mod array_flags {
    /// The depth is a number of layers (`CUDA_ARRAY3D_LAYERED`).
    pub const LAYERED: u32 = 1 << 0;
    /// Surfaces can be made of the array (`CUDA_ARRAY3D_SURFACE_LDST`).
    pub const SURFACE: u32 = 1 << 1;
    /// The array is a cube, whose six faces are the depth; with [`LAYERED`], several cubes
    /// (`CUDA_ARRAY3D_CUBEMAP`).
    pub const CUBEMAP: u32 = 1 << 2;
    /// Textures of the array can gather (`CUDA_ARRAY3D_TEXTURE_GATHER`).
    pub const GATHER: u32 = 1 << 3;
    /// All bits.
    pub const ALL: u32 = LAYERED | SURFACE | CUBEMAP | GATHER;
}

/// Bits of [`CreateTexture::flags`], with the values of `CU_TRSF_…`.
pub mod texture_flags {
    /// Elements are read as integers, not as fractions of the largest one
    /// (`CU_TRSF_READ_AS_INTEGER`).
    pub const INTEGERS: u32 = 1 << 0;
    /// Coordinates go from 0 to 1 (`CU_TRSF_NORMALIZED_COORDINATES`).
    pub const NORMALIZED: u32 = 1 << 1;
    /// Elements are colours by sRGB (`CU_TRSF_SRGB`).
    pub const SRGB: u32 = 1 << 4;
    /// No optimization of trilinear filters (`CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION`).
    pub const EXACT_TRILINEAR: u32 = 1 << 5;
    /// Filters of cubes reach over edges (`CU_TRSF_SEAMLESS_CUBEMAP`).
    pub const SEAMLESS: u32 = 1 << 6;
    /// All bits.
    pub const ALL: u32 = INTEGERS | NORMALIZED | SRGB | EXACT_TRILINEAR | SEAMLESS;
}

crate::wire::wire_enum! {
    /// What a texture or a surface is made of.
    pub enum TextureSource: u32 {
        /// A texture of an array.
        Array = 0,
        /// A texture of memory in one row, which kernels read by the numbers of its elements.
        Linear = 1,
        /// A texture of memory in rows.
        Rows = 2,
        /// A surface of an array.
        Surface = 3,
    }
}

structures! {
    /// Size and format of an array.
    pub struct CreateArray {
        /// Handle of the address space whose packets and kernels use the array.
        pub space: u32,
        /// Bit set of [`crate::message::array_flags`].
        pub flags: u32,
        /// Elements in a row, not zero.
        pub width: u64,
        /// Rows; zero for an array of one dimension.
        pub height: u64,
        /// Slices, layers or faces; zero for an array of less than three dimensions.
        pub depth: u64,
        /// Format of a channel (`CUarray_format`).
        pub format: u32,
        /// Channels of an element: 1, 2 or 4.
        pub channels: u32,
    } = 40

    /// Handle of the new array.
    pub struct ArrayReply {
        /// Handle of the array; never zero.
        pub handle: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// Memory that the array takes, in bytes.
        pub bytes: u64,
    } = 16

    /// A texture or surface to be made.
    pub struct CreateTexture {
        /// Handle of the address space whose kernels use it.
        pub space: u32,
        /// What it is made of, a [`crate::message::TextureSource`].
        pub source: u32,
        /// Handle of the array, of the same address space; zero for memory.
        pub array: u32,
        /// Bit set of [`crate::message::texture_flags`]. Zero for a surface, as is all that
        /// follows but for the reserved word.
        pub flags: u32,
        /// GPU virtual address of the memory; zero for an array.
        pub address: u64,
        /// Size of the memory in bytes if it is one row; elements in a row if it is rows; else
        /// zero.
        pub width: u64,
        /// Number of rows; zero for anything but rows.
        pub height: u64,
        /// Distance between two rows in bytes; zero for anything but rows.
        pub pitch: u64,
        /// Format of a channel of the memory (`CUarray_format`); zero for an array.
        pub format: u32,
        /// Channels of an element of the memory: 1, 2 or 4; zero for an array.
        pub channels: u32,
        /// What coordinates outside mean in each dimension (`CUaddress_mode`).
        pub address_modes: [u32; ARRAY_DIMENSIONS],
        /// How elements are filtered (`CUfilter_mode`).
        pub filter: u32,
        /// Largest anisotropy.
        pub anisotropy: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// The four channels outside, as numbers of 32 bits (`float`).
        pub border: [u32; 4],
    } = 96

    /// Handle of the new texture or surface, and the number by which kernels know it.
    pub struct TextureReply {
        /// Handle; never zero.
        pub handle: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// The number that kernels get as a parameter (`CUtexObject`, `CUsurfObject`).
        pub object: u64,
    } = 16
}
