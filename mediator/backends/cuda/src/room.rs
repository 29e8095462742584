//! How much of each GPU is free, for those who place VMs.

use crate::driver::{Context, CudaError, Device, Driver, Groups};
use crate::survey::SurveyError;

/// What a GPU has free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Product name of the GPU, such as `NVIDIA H200`.
    pub name: String,
    /// Memory that no process uses, in bytes, while one more process has a CUDA context.
    pub free_bytes: u64,
    /// Number of groups of the wanted number of multiprocessors that the GPU can be split into,
    /// whether other processes use them or not; `None` if no number is wanted.
    pub groups: Option<u32>,
}

/// Asks the driver what each GPU has free, counted by PCI address. `sms` is the number of
/// multiprocessors that each user wants for itself. A GPU on which no context can be created has
/// nothing free.
///
/// Creates a context on each GPU, for a moment, and the driver starts threads for that: call this
/// in a process that ends soon.
///
/// # Errors
/// [`SurveyError::Load`] if there is no usable driver, [`SurveyError::Driver`] if it does not tell
/// about its GPUs.
pub fn rooms(sms: Option<u32>) -> Result<Vec<Room>, SurveyError> {
    let driver = Driver::get()?;
    let count = Device::count(driver)?;
    let rooms = (0..count).map(|index| room(Device::get(driver, index)?, sms));
    Ok(rooms.collect::<Result<_, CudaError>>()?)
}

fn room(device: Device, sms: Option<u32>) -> Result<Room, CudaError> {
    let name = device.name()?;
    let free = Context::primary(device).and_then(|context| context.free_bytes());
    let groups = sms.map(|sms| Ok(Groups::split(device, sms)?.count()));
    let nothing = |what| {
        let name = &name;
        move |error: &CudaError| log::debug!("{name}: no {what} is free: {error}")
    };
    Ok(Room {
        free_bytes: free.inspect_err(nothing("memory")).unwrap_or(0),
        groups: groups.map(|count: Result<u32, CudaError>| {
            let count = count.inspect_err(nothing("group of multiprocessors"));
            count.unwrap_or(0)
        }),
        name,
    })
}
