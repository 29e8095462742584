//! Green contexts, which are CUDA's way to use a part of the GPU's multiprocessors.
//!
//! A green context can be current to only one thread at a time (`cuGreenCtxCreate`), so this back
//! end makes none current: a green context only makes streams, which work in the primary context
//! like all others.

use std::mem::MaybeUninit;
use std::sync::Arc;

use cudarc::driver::sys::{CUdevResource, CUgreenCtx_st};
use parking_lot::Mutex;

use super::{Context, CudaError, Device, Owned};

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: u32 = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`, which CUDA 12 requires.
const DEFAULT_STREAM: u32 = 1;

/// The GPU's multiprocessors, split into groups of equal size.
pub(crate) struct Groups {
    groups: Vec<MaybeUninit<CUdevResource>>,
    /// Number of multiprocessors that the GPU has.
    pub(crate) total: u32,
    /// Number of multiprocessors in each group, which may be more than were asked for.
    pub(crate) each: u32,
}

impl Groups {
    /// Splits the multiprocessors of `device` into as many groups of at least `least` as possible.
    pub(crate) fn split(device: Device, least: u32) -> Result<Self, CudaError> {
        let driver = device.driver;
        let mut all = MaybeUninit::<CUdevResource>::zeroed();
        // SAFETY: stores a resource.
        unsafe { driver.device_get_dev_resource(device.raw, all.as_mut_ptr(), MULTIPROCESSORS) }?;
        let total = count(&all);
        let mut fit = 0;
        // SAFETY: without room for groups, it only says how many there would be.
        unsafe {
            driver.sm_resource_split(
                std::ptr::null_mut(),
                &mut fit,
                all.as_ptr(),
                std::ptr::null_mut(),
                0,
                least,
            )
        }?;
        let fit = fit.min(total);
        let mut groups = vec![MaybeUninit::<CUdevResource>::zeroed(); fit as usize];
        let mut made = fit;
        let mut rest = MaybeUninit::<CUdevResource>::zeroed();
        if fit != 0 {
            // SAFETY: there is room for as many groups as `made` says.
            unsafe {
                driver.sm_resource_split(
                    groups.as_mut_ptr().cast(),
                    &mut made,
                    all.as_ptr(),
                    rest.as_mut_ptr(),
                    0,
                    least,
                )
            }?;
        }
        groups.truncate(made as usize);
        let each = groups.first().map_or(0, count);
        Ok(Self {
            groups,
            total,
            each,
        })
    }

    /// Returns the number of groups.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.groups.len()).unwrap_or(u32::MAX)
    }

    /// Creates a green context of group number `index`; `None` if the GPU has no such group.
    pub(crate) fn create(
        &mut self,
        primary: &Arc<Context>,
        index: u32,
    ) -> Option<Result<GreenContext, CudaError>> {
        let group = self.groups.get_mut(index as usize)?;
        Some(GreenContext::new(primary, group))
    }
}

/// Returns the number of multiprocessors in a resource.
fn count(resource: &MaybeUninit<CUdevResource>) -> u32 {
    // SAFETY: it began as zeros and the driver stored a resource of multiprocessors; only that
    // number is read, not the type, which is an enumeration.
    unsafe { (*resource.as_ptr()).__bindgen_anon_1.sm.smCount }
}

/// A CUDA green context: makes streams that use one group of multiprocessors only.
pub(crate) struct GreenContext {
    pub(super) object: Owned<CUgreenCtx_st>,
    /// Locked while a stream is made: the driver does not lock green contexts.
    pub(super) making: Mutex<()>,
}

// SAFETY: it is used only to make streams, under its lock.
unsafe impl Sync for GreenContext {}

impl GreenContext {
    fn new(
        primary: &Arc<Context>,
        group: &mut MaybeUninit<CUdevResource>,
    ) -> Result<Self, CudaError> {
        let (driver, device) = (primary.enter()?, primary.device().raw);
        let mut description = std::ptr::null_mut();
        // SAFETY: one resource, as the driver made it.
        unsafe { driver.resource_generate_desc(&mut description, group.as_mut_ptr(), 1) }?;
        // SAFETY: stores a new green context.
        let created = unsafe {
            Owned::create(primary, |driver, raw| {
                driver.green_ctx_create(raw, description, device, DEFAULT_STREAM)
            })
        };
        Ok(Self {
            object: created?,
            making: Mutex::new(()),
        })
    }
}
