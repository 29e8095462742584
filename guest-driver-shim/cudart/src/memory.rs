//! Allocations (CUDA Runtime API, "Memory Management").

use causeway_cuda_abi::boundary::Out;
use causeway_cuda_abi::error::{Answer, Code};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::context::{answer, device_of_context};
use crate::driver::driver;
use crate::shapes::{Extent, Pitched};

#[unsafe(no_mangle)]
extern "C" fn cudaMalloc(address: Out<usize>, bytes: usize) -> u32 {
    answer(|| {
        // As NVIDIA's: the pointer is null if this fails.
        address.set(0)?;
        if bytes == 0 {
            return Ok(());
        }
        let mut allocated = 0_usize;
        driver!(cuMemAlloc_v2(&raw mut allocated, bytes))?;
        address.set(allocated)
    })
}

/// Freeing nothing is allowed; programs do it to have a context.
#[unsafe(no_mangle)]
extern "C" fn cudaFree(address: usize) -> u32 {
    let mut device = 0_i32;
    let device = &raw mut device;
    answer(|| match address {
        0 => driver!(cuCtxGetDevice(device)),
        _ => driver!(cuMemFree_v2(address)),
    })
}

/// Rows of the pitch that the device wants.
fn allocate_rows(width: usize, rows: usize) -> Answer<(usize, usize)> {
    /// Bytes of the largest access that rows must be aligned for: 4, 8 or 16.
    const ACCESS: u32 = 16;
    let (mut address, mut pitch) = (0_usize, 0_usize);
    driver!(cuMemAllocPitch_v2(
        &raw mut address,
        &raw mut pitch,
        width,
        rows,
        ACCESS
    ))?;
    Ok((address, pitch))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMallocPitch(
    address: Out<usize>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
) -> u32 {
    answer(|| {
        pitch.set(0)?;
        address.set(0)?;
        if width == 0 || height == 0 {
            return Ok(());
        }
        let allocated = allocate_rows(width, height)?;
        pitch.set(allocated.1)?;
        address.set(allocated.0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMalloc3D(into: Out<Pitched>, extent: Extent) -> u32 {
    answer(|| {
        into.set(Pitched::default())?;
        let rows = extent.height.checked_mul(extent.depth);
        let rows = rows.ok_or(Code::OUT_OF_MEMORY)?;
        let (address, pitch) = match extent.width == 0 || rows == 0 {
            true => (0, 0),
            false => allocate_rows(extent.width, rows)?,
        };
        into.set(Pitched {
            address,
            pitch,
            row_bytes: extent.width,
            rows: extent.height,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostAlloc(address: Out<usize>, bytes: usize, flags: u32) -> u32 {
    answer(|| {
        // As NVIDIA's: the pointer is null if this fails.
        address.set(0)?;
        if bytes == 0 {
            return Ok(());
        }
        let mut allocated = 0_usize;
        driver!(cuMemHostAlloc(&raw mut allocated, bytes, flags))?;
        address.set(allocated)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMallocHost(address: Out<usize>, bytes: usize) -> u32 {
    cudaHostAlloc(address, bytes, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaFreeHost(address: usize) -> u32 {
    answer(|| match address {
        0 => Ok(()),
        _ => driver!(cuMemFreeHost(address)),
    })
}

/// `cudaPointerAttributes` of CUDA 12.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct PointerAttributes {
    /// `enum cudaMemoryType`: 0 unregistered, 1 host, 2 device, 3 managed.
    memory_type: u32,
    device: i32,
    device_address: usize,
    host_address: usize,
}

/// The same in CUDA 13.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct LongPointerAttributes {
    attributes: PointerAttributes,
    reserved: [u64; 8],
}

#[unsafe(no_mangle)]
extern "C" fn cudaPointerGetAttributes(into: Out<LongPointerAttributes>, address: usize) -> u32 {
    answer(|| {
        into.set(LongPointerAttributes {
            attributes: pointer_attributes(address)?,
            reserved: [0; 8],
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuda12_PointerGetAttributes(into: Out<PointerAttributes>, address: usize) -> u32 {
    answer(|| into.set(pointer_attributes(address)?))
}

/// What the driver says of an address. Of one that it does not know, the API says so as well:
/// that is no error.
fn pointer_attributes(address: usize) -> Answer<PointerAttributes> {
    /// Of `enum CUpointer_attribute`.
    const MEMORY_TYPE: u32 = 2;
    const DEVICE_POINTER: u32 = 3;
    const HOST_POINTER: u32 = 4;
    const IS_MANAGED: u32 = 8;
    const DEVICE_ORDINAL: u32 = 9;
    /// `cudaMemoryTypeManaged`.
    const MANAGED: u32 = 3;
    /// `cudaInvalidDeviceId`.
    const NO_DEVICE: i32 = -2;
    let mut it = PointerAttributes::default();
    let mut is_managed = 0_u32;
    let attributes = [
        MEMORY_TYPE,
        DEVICE_POINTER,
        HOST_POINTER,
        IS_MANAGED,
        DEVICE_ORDINAL,
    ];
    let places = [
        (&raw mut it.memory_type) as usize,
        (&raw mut it.device_address) as usize,
        (&raw mut it.host_address) as usize,
        (&raw mut is_managed) as usize,
        (&raw mut it.device) as usize,
    ];
    // Without a context, the driver does not say all.
    device_of_context()?;
    driver!(cuPointerGetAttributes(
        attributes.len() as u32,
        attributes.as_ptr(),
        places.as_ptr(),
        address
    ))?;
    if it.memory_type == 0 {
        it.device = NO_DEVICE;
        it.host_address = address;
    } else if is_managed & 0xff != 0 {
        it.memory_type = MANAGED;
    }
    Ok(it)
}
