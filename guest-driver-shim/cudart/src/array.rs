//! Arrays (CUDA Runtime API, "Memory Management"). `cudaArray_t` is the driver's `CUarray`, and the
//! flags are `CUDA_ARRAY3D_…`.

use causeway_cuda_abi::boundary::{In, Out};
use causeway_cuda_abi::error::{Answer, Code};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::channels::{Channels, Format};
use crate::driver::driver;
use crate::shapes::Extent;
use crate::table::calls;

/// `CUDA_ARRAY3D_DESCRIPTOR`. The extent counts elements; dimensions that an array does not have
/// are 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Description {
    extent: Extent,
    format: Format,
    flags: u32,
    padding: u32,
}

calls! {
    fn cudaMallocArray(into: Out<usize>, channels: In<Channels>, width: usize, height: usize,
                       flags: u32)
        => create(into, channels, Extent { width, height, depth: 0 }, flags);
    fn cudaMalloc3DArray(into: Out<usize>, channels: In<Channels>, extent: Extent, flags: u32)
        => create(into, channels, extent, flags);
    fn cudaFreeArray(array: usize) => match array {
        0 => Ok(()),
        _ => driver!(cuArrayDestroy(array)),
    };
    fn cudaFreeMipmappedArray(array: usize) => match array {
        0 => Ok(()),
        _ => driver!(cuMipmappedArrayDestroy(array)),
    };
    fn cudaArrayGetInfo(channels: Out<Channels>, extent: Out<Extent>, flags: Out<u32>,
                        array: usize) => {
        let it = describe(array)?;
        if !channels.is_null() {
            channels.set(it.format.description()?)?;
        }
        extent.set_if_wanted(it.extent);
        flags.set_if_wanted(it.flags);
        Ok(())
    };
    fn cudaGetChannelDesc(channels: Out<Channels>, array: usize)
        => channels.set(describe(array)?.format.description()?);
    fn cudaArrayGetMemoryRequirements(into: usize, array: usize, device: i32)
        = cuArrayGetMemoryRequirements(into, array, device);
    fn cudaDeviceGetTexture1DLinearMaxWidth(into: Out<usize>, channels: In<Channels>, device: i32)
        => {
        let format = channels.get()?.format()?;
        driver!(cuDeviceGetTexture1DLinearMaxWidth(into, format.number, format.channels, device))
    };
}

fn create(into: Out<usize>, channels: In<Channels>, extent: Extent, flags: u32) -> Answer {
    // As NVIDIA's: the array is null if this fails.
    into.set(0)?;
    let description = Description {
        extent,
        format: channels.get()?.format()?,
        flags,
        padding: 0,
    };
    let mut created = 0_usize;
    driver!(cuArray3DCreate_v2(&raw mut created, &raw const description))?;
    into.set(created)
}

fn describe(array: usize) -> Answer<Description> {
    // Drivers do not agree on what is wrong with it.
    if array == 0 {
        return Err(Code::INVALID_HANDLE);
    }
    let mut description = Description::new_zeroed();
    driver!(cuArray3DGetDescriptor_v2(&raw mut description, array))?;
    Ok(description)
}

/// Returns the format of an array's elements.
pub fn format_of(array: usize) -> Answer<Format> {
    Ok(describe(array)?.format)
}

/// Returns the bytes of an array's rows, and their number, which is 1 of an array with one
/// dimension.
pub fn rows_of(array: usize) -> Answer<(usize, usize)> {
    let it = describe(array)?;
    let bytes = it.extent.width.checked_mul(it.format.bytes()?.get());
    Ok((bytes.ok_or(Code::INVALID_VALUE)?, it.extent.height.max(1)))
}

/// Returns the size of an array's elements in bytes.
pub fn element_bytes(array: usize) -> Answer<usize> {
    Ok(describe(array)?.format.bytes()?.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_is_as_large_as_that_of_the_header() {
        assert_eq!(size_of::<Description>(), 40);
    }
}
