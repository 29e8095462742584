//! Arrays (CUDA driver API, "Memory Management": `cuArray…`), and the tables of textures and
//! surfaces. How arrays are copied is in [`crate::memory`].
//!
//! Packets name an array by a handle that a message ends, so an array is destroyed only when nobody
//! holds it any more and all work that was submitted is done. Until then, it is among those that
//! have [ended](Arrays::end).

mod calls;
mod elements;

use std::sync::Arc;

use causeway_protocol::message::{CreateArray, Status};
use causeway_protocol::registers::features;
use causeway_shim_linux::shim;
use parking_lot::Mutex;

use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::handles::Handles;
use crate::structures::ArrayDescription3d;
use crate::texture::Textures;

pub(crate) use elements::{Elements, element_bytes, integers};

/// An array.
pub(crate) struct Array {
    /// Handle of its context.
    context: usize,
    /// As the program gave it.
    pub(crate) given: ArrayDescription3d,
    /// The same, as copies need it.
    pub(crate) elements: Elements,
    /// What the device has.
    pub(crate) object: shim::Array<'static>,
}

/// All arrays, textures and surfaces of a device.
#[derive(Default)]
pub(crate) struct Arrays {
    table: Mutex<Handles<Array>>,
    /// Arrays that have no handle any more. Work of graphs may still hold them.
    ended: Mutex<Vec<Arc<Array>>>,
    pub(crate) textures: Textures,
    pub(crate) surfaces: Textures,
}

impl Arrays {
    /// Ends the arrays, textures and surfaces of a context, whose work has ended.
    pub(crate) fn end_of_context(&self, driver: &Driver, context: usize) {
        self.textures.end_of_context(context);
        self.surfaces.end_of_context(context);
        let ended = self.table.lock().take(|array| array.context == context);
        self.ended.lock().extend(ended);
        // A fault shows in later calls, too.
        let _ = self.destroy_ended(driver);
    }

    /// Takes the handle from an array, and destroys the arrays that have ended and that no graph
    /// holds. Waits for the work that was submitted, as NVIDIA's driver does.
    fn end(&self, driver: &Driver, handle: usize) -> Answer {
        let ended = self.table.lock().remove(handle);
        self.ended.lock().push(ended.ok_or(Code::INVALID_HANDLE)?);
        self.destroy_ended(driver)
    }

    /// Destroys the arrays that have ended and that nobody else holds.
    fn destroy_ended(&self, driver: &Driver) -> Answer {
        let unused: Vec<Arc<Array>> = self
            .ended
            .lock()
            .extract_if(.., |array| Arc::get_mut(array).is_some())
            .collect();
        if unused.is_empty() {
            return Ok(());
        }
        // A holder submits its packets before it drops the array. After a fault, the device executes
        // no packet.
        let drained = driver.rings.drain(driver);
        drop(unused);
        drained
    }
}

/// Refuses what the session has no arrays for, as functions without an implementation do.
pub(crate) fn check_supported(driver: &Driver) -> Answer {
    match driver.has(features::ARRAYS) {
        true => Ok(()),
        false => Err(Code::NOT_SUPPORTED),
    }
}

/// Returns the array of a handle, of whatever device.
pub(crate) fn find(driver: &'static Driver, handle: usize) -> Option<Arc<Array>> {
    driver.owner_of(handle).arrays.table.lock().get(handle)
}

/// Returns the array of a handle for work of `driver`'s device.
///
/// # Errors
/// `INVALID_VALUE` if there is no such array, `NOT_SUPPORTED` if it is another device's.
pub(crate) fn find_on(driver: &'static Driver, handle: u64) -> Answer<Arc<Array>> {
    let handle = handle as usize;
    let found = find(driver, handle).ok_or(Code::INVALID_VALUE)?;
    match driver.owns(handle) {
        true => Ok(found),
        false => Err(Code::NOT_SUPPORTED),
    }
}

/// Creates an array in a context. Returns its handle.
fn create(driver: &'static Driver, context: &Context, given: ArrayDescription3d) -> Answer<usize> {
    check_supported(driver)?;
    driver.captures.check_unsafe()?;
    let elements = Elements::of(&given)?;
    // Graphs that have ended may have held some.
    driver.arrays.destroy_ended(driver)?;
    let request = CreateArray {
        space: 0,
        flags: given.flags,
        width: given.width,
        height: given.height,
        depth: given.depth,
        format: given.format,
        channels: given.channels,
    };
    let made = driver.space.create_array(&request);
    let object = made.map_err(|error| {
        log::debug!("cannot create an array: {error}");
        code_of(driver, error.status())
    })?;
    let handle = driver.fresh_handle();
    let array = Array {
        context: context.handle,
        given,
        elements,
        object,
    };
    driver.arrays.table.lock().put(handle, Arc::new(array));
    Ok(handle)
}

/// Returns the result that the refusal of an array or a texture means.
pub(crate) fn code_of(driver: &Driver, status: Status) -> Code {
    match status {
        Status::DeviceLost => driver.fail(Code::DEVICE_UNAVAILABLE),
        Status::Unsupported | Status::BadOpcode => Code::NOT_SUPPORTED,
        status if status.is_shortage() => Code::OUT_OF_MEMORY,
        status => meaning(status).unwrap_or_else(|| {
            let sticky = driver.check_sticky().err();
            sticky.unwrap_or(Code::UNKNOWN)
        }),
    }
}

/// Returns what a refusal says about the caller's values.
const fn meaning(status: Status) -> Option<Code> {
    match status {
        Status::BadRange
        | Status::BadAlignment
        | Status::MemoryFault
        | Status::BadMemory
        | Status::BadHandle => Some(Code::INVALID_VALUE),
        _ => None,
    }
}
