//! Structures about arrays, textures and surfaces.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `CUDA_ARRAY_DESCRIPTOR`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct ArrayDescription {
    pub width: u64,
    pub height: u64,
    pub format: u32,
    pub channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct ArrayDescription3d {
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    pub format: u32,
    pub channels: u32,
    pub flags: u32,
    pub padding: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`
#[derive(Clone, Copy, Debug, Default, FromBytes)]
#[repr(C)]
pub struct ArrayMemory {
    pub bytes: u64,
    pub alignment: u64,
    pub reserved: [u32; 4],
}

/// `CUDA_RESOURCE_DESC`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct ResourceDescription {
    pub kind: u32,
    pub padding: u32,
    /// A union: what is in it depends on `kind`.
    pub content: [u64; 16],
    pub flags: u32,
    pub padding_behind: u32,
}

/// What a [`ResourceDescription`] has of memory in one row (`res.linear`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct LinearResource {
    pub address: u64,
    pub format: u32,
    pub channels: u32,
    pub bytes: u64,
}

/// What a [`ResourceDescription`] has of memory in rows (`res.pitch2D`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RowsResource {
    pub address: u64,
    pub format: u32,
    pub channels: u32,
    pub width: u64,
    pub height: u64,
    pub pitch: u64,
}

/// `CUDA_TEXTURE_DESC`. Numbers of type `float` are their bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct TextureDescription {
    pub address_modes: [u32; 3],
    pub filter: u32,
    pub flags: u32,
    pub anisotropy: u32,
    pub mipmap_filter: u32,
    pub mipmap_bias: u32,
    pub mipmap_level_min: u32,
    pub mipmap_level_max: u32,
    pub border: [u32; 4],
    pub reserved: [u32; 12],
}

/// `CUDA_RESOURCE_VIEW_DESC`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct ResourceView {
    pub format: u32,
    pub padding: u32,
    pub size: [u64; 3],
    pub levels: [u32; 2],
    pub layers: [u32; 2],
    pub reserved: [u32; 16],
}

impl ResourceDescription {
    /// Returns what is in the union, as one of its members. Smaller than the union.
    pub fn read<T: FromBytes>(&self) -> Option<T> {
        let bytes = self.content.as_bytes();
        T::read_from_prefix(bytes).ok().map(|(found, _)| found)
    }

    /// Returns the description of an array (`res.array`).
    pub fn of_array(handle: usize) -> Self {
        let mut content = [0; 16];
        content[0] = handle as u64;
        Self {
            content,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::driver::sys;

    use super::*;

    #[test]
    fn structures_of_arrays_are_those_of_the_header() {
        macro_rules! same_size {
            ($($own:ty = $theirs:ty;)*) => {
                $(assert_eq!(size_of::<$own>(), size_of::<$theirs>(), stringify!($own));)*
            };
        }
        same_size! {
            ArrayDescription = sys::CUDA_ARRAY_DESCRIPTOR;
            ArrayDescription3d = sys::CUDA_ARRAY3D_DESCRIPTOR;
            ArrayMemory = sys::CUDA_ARRAY_MEMORY_REQUIREMENTS;
            ResourceDescription = sys::CUDA_RESOURCE_DESC;
            TextureDescription = sys::CUDA_TEXTURE_DESC;
            ResourceView = sys::CUDA_RESOURCE_VIEW_DESC;
            RowsResource = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4;
            LinearResource = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3;
        }
        assert_eq!(
            offset_of!(ResourceDescription, content),
            offset_of!(sys::CUDA_RESOURCE_DESC, res)
        );
        assert_eq!(
            offset_of!(ResourceDescription, flags),
            offset_of!(sys::CUDA_RESOURCE_DESC, flags)
        );
        assert_eq!(
            offset_of!(TextureDescription, border),
            offset_of!(sys::CUDA_TEXTURE_DESC, borderColor)
        );
        assert_eq!(
            offset_of!(ArrayDescription3d, flags),
            offset_of!(sys::CUDA_ARRAY3D_DESCRIPTOR, Flags)
        );
        assert_eq!(
            offset_of!(ResourceView, layers),
            offset_of!(sys::CUDA_RESOURCE_VIEW_DESC, firstLayer)
        );
    }

    #[test]
    fn a_union_is_read_as_what_it_holds() {
        let mut description = ResourceDescription::of_array(0x5ca_0010);
        assert_eq!(description.read::<u64>(), Some(0x5ca_0010));
        description.content[1] = 4 << 32 | 0x20;
        description.content[2] = 96;
        let linear: LinearResource = description.read().unwrap();
        assert_eq!((linear.format, linear.channels), (0x20, 4));
        assert_eq!((linear.address, linear.bytes), (0x5ca_0010, 96));
    }
}
