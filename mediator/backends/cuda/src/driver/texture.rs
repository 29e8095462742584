//! Texture objects and surface objects: numbers by which kernels access arrays and memory.

use std::sync::Arc;

use causeway_mediator::backend::{AddressMode, Element, Sampling};
use cudarc::driver::sys::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_DESC_st__bindgen_ty_1 as Parts,
    CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_1 as ArrayPart,
    CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3 as LinearPart,
    CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 as RowsPart,
    CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_5 as Reserved, CUDA_TEXTURE_DESC,
    CUaddress_mode, CUfilter_mode, CUresourcetype,
};
use log::Level;

use super::array::format;
use super::{ArrayObject, Context, CudaError, Driver};

/// What a texture or a surface is made of. Its addresses are plain numbers: the driver describes
/// them for the GPU, whose page tables confine the kernels that follow them.
#[derive(Clone, Copy)]
pub(crate) enum Resource<'a> {
    Array(&'a ArrayObject),
    /// One row of memory.
    Linear {
        address: u64,
        bytes: u64,
        element: Element,
    },
    /// Rows of memory: `width` elements and `height` rows, `pitch` bytes apart.
    Rows {
        address: u64,
        width: u64,
        height: u64,
        pitch: u64,
        element: Element,
    },
}

/// A texture object or surface object, until dropped. The caller drops it before the array that it
/// is made of, and after the kernels that use it.
pub(crate) struct TextureObject {
    context: Arc<Context>,
    raw: u64,
    is_surface: bool,
}

impl Resource<'_> {
    /// Returns the description that the driver reads.
    fn described(self) -> CUDA_RESOURCE_DESC {
        let mut parts = Parts {
            reserved: Reserved { reserved: [0; 32] },
        };
        let kind = match self {
            Self::Array(array) => {
                parts.array = ArrayPart {
                    hArray: array.raw(),
                };
                CUresourcetype::CU_RESOURCE_TYPE_ARRAY
            }
            Self::Linear {
                address,
                bytes,
                element,
            } => {
                parts.linear = LinearPart {
                    devPtr: address,
                    format: format(element.format),
                    numChannels: element.channels,
                    sizeInBytes: bytes as usize,
                };
                CUresourcetype::CU_RESOURCE_TYPE_LINEAR
            }
            Self::Rows {
                address,
                width,
                height,
                pitch,
                element,
            } => {
                parts.pitch2D = RowsPart {
                    devPtr: address,
                    format: format(element.format),
                    numChannels: element.channels,
                    width: width as usize,
                    height: height as usize,
                    pitchInBytes: pitch as usize,
                };
                CUresourcetype::CU_RESOURCE_TYPE_PITCH2D
            }
        };
        CUDA_RESOURCE_DESC {
            resType: kind,
            res: parts,
            flags: 0,
        }
    }
}

/// Returns how a texture is sampled, as the driver reads it.
fn described(sampling: &Sampling) -> CUDA_TEXTURE_DESC {
    let mode = |mode| match mode {
        AddressMode::Wrap => CUaddress_mode::CU_TR_ADDRESS_MODE_WRAP,
        AddressMode::Clamp => CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP,
        AddressMode::Mirror => CUaddress_mode::CU_TR_ADDRESS_MODE_MIRROR,
        AddressMode::Border => CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER,
    };
    CUDA_TEXTURE_DESC {
        addressMode: sampling.address_modes.map(mode),
        filterMode: match sampling.is_linear {
            true => CUfilter_mode::CU_TR_FILTER_MODE_LINEAR,
            false => CUfilter_mode::CU_TR_FILTER_MODE_POINT,
        },
        // The protocol has the driver's values.
        flags: sampling.flags,
        maxAnisotropy: sampling.anisotropy,
        // Arrays have no smaller versions of themselves.
        mipmapFilterMode: CUfilter_mode::CU_TR_FILTER_MODE_POINT,
        mipmapLevelBias: 0.0,
        minMipmapLevelClamp: 0.0,
        maxMipmapLevelClamp: 0.0,
        borderColor: sampling.border,
        reserved: [0; 12],
    }
}

impl TextureObject {
    /// Makes a texture of `resource`. The caller keeps its array until the texture is dropped.
    ///
    /// # Errors
    /// The driver's error: that a value is invalid if the device has no such texture.
    pub(crate) fn texture(
        context: &Arc<Context>,
        resource: Resource<'_>,
        sampling: &Sampling,
    ) -> Result<Self, CudaError> {
        let (resource, sampling) = (resource.described(), described(sampling));
        let driver = context.enter()?;
        let (mut raw, view) = (0, std::ptr::null());
        // SAFETY: reads two descriptions, of an array that is live or of addresses, which only the
        // GPU follows; stores a number.
        unsafe {
            driver.tex_object_create(&mut raw, &raw const resource, &raw const sampling, view)
        }?;
        Ok(Self::of(context, raw, false))
    }

    /// Makes a surface of `array`. The caller keeps the array until the surface is dropped.
    ///
    /// # Errors
    /// The driver's error.
    pub(crate) fn surface(context: &Arc<Context>, array: &ArrayObject) -> Result<Self, CudaError> {
        let resource = Resource::Array(array).described();
        let driver = context.enter()?;
        let mut raw = 0;
        // SAFETY: reads a description of an array that is live, and stores a number.
        unsafe { driver.surf_object_create(&mut raw, &raw const resource) }?;
        Ok(Self::of(context, raw, true))
    }

    fn of(context: &Arc<Context>, raw: u64, is_surface: bool) -> Self {
        Self {
            context: Arc::clone(context),
            raw,
            is_surface,
        }
    }

    /// Returns the number by which kernels know the object.
    pub(crate) fn number(&self) -> u64 {
        self.raw
    }
}

impl Drop for TextureObject {
    fn drop(&mut self) {
        // SAFETY: live, and not used again.
        let destroy = |driver: &Driver| unsafe {
            match self.is_surface {
                true => driver.surf_object_destroy(self.raw),
                false => driver.tex_object_destroy(self.raw),
            }
        };
        let what = "a texture or a surface";
        self.context.release(Level::Debug, what, destroy);
    }
}
