//! The driver and its GPUs, with what they can do: for `causeway doctor`.

use std::sync::Arc;

use crate::driver::{
    Context, CudaError, Device, Driver, HandleKind, LoadError, Physical, PhysicalOptions,
};
use crate::support::Support;

/// The driver and its GPUs.
#[derive(Debug)]
pub struct Survey {
    /// Version of CUDA that the driver is for: 1000 times the major and 10 times the minor number.
    pub version: i32,
    /// The GPUs, in the driver's order.
    pub gpus: Vec<GpuSurvey>,
}

/// One GPU.
#[derive(Debug)]
pub struct GpuSurvey {
    /// The product's name.
    pub name: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Free memory in bytes.
    pub free_bytes: u64,
    /// Its attributes.
    pub support: Support,
    /// The results of trials.
    pub trials: Trials,
}

/// The results of allocating the smallest possible amount of memory in several ways.
#[derive(Debug)]
pub struct Trials {
    /// With a fabric handle, which other machines can import.
    pub fabric: Result<(), CudaError>,
    /// As compressible memory.
    pub compressible: Result<(), CudaError>,
    /// And exporting it as a file descriptor.
    pub export: Result<(), CudaError>,
}

/// Asks the driver for all GPUs and their attributes, and tries what attributes do not tell.
///
/// # Errors
/// `Load` if there is no usable driver, `Driver` if a call of it fails.
pub fn survey() -> Result<Survey, SurveyError> {
    let driver = Driver::get()?;
    let count = Device::count(driver)?;
    let gpus: Result<_, CudaError> = (0..count).map(|index| gpu(driver, index)).collect();
    Ok(Survey {
        version: driver.version(),
        gpus: gpus?,
    })
}

/// A GPU, as it is known without a context on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuIdentity {
    /// The product's name.
    pub name: String,
    /// Its UUID, by which other interfaces such as Vulkan know it, too.
    pub uuid: [u8; 16],
    /// Version of CUDA that the driver is for: 1000 times the major and 10 times the minor number.
    pub driver_version: i32,
}

/// Returns the GPUs in the driver's order. It makes no context, so it takes no GPU memory.
///
/// # Errors
/// `Load` if there is no usable driver, `Driver` if a call of it fails.
pub fn identities() -> Result<Vec<GpuIdentity>, SurveyError> {
    let driver = Driver::get()?;
    let identity = |index| {
        let device = Device::get(driver, index)?;
        Ok(GpuIdentity {
            name: device.name()?,
            uuid: device.uuid()?,
            driver_version: driver.version(),
        })
    };
    (0..Device::count(driver)?).map(identity).collect()
}

/// Why the GPUs are not known.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// There is no usable driver.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A call of the driver failed.
    #[error(transparent)]
    Driver(#[from] CudaError),
}

fn gpu(driver: &'static Driver, index: u32) -> Result<GpuSurvey, CudaError> {
    let device = Device::get(driver, index)?;
    let context = Context::primary(device)?;
    let descriptor = PhysicalOptions::EXPORTABLE;
    let fabric = PhysicalOptions {
        handle: HandleKind::Fabric,
        ..descriptor
    };
    let compressible = PhysicalOptions {
        compressible: true,
        ..descriptor
    };
    Ok(GpuSurvey {
        name: device.name()?,
        memory_bytes: device.memory_bytes()?,
        free_bytes: context.free_bytes()?,
        support: Support::query(device),
        trials: Trials {
            fabric: allocate(&context, fabric).map(drop),
            compressible: allocate(&context, compressible).map(drop),
            export: allocate(&context, descriptor)
                .and_then(|memory| memory.export())
                .map(drop),
        },
    })
}

fn allocate(context: &Arc<Context>, options: PhysicalOptions) -> Result<Physical, CudaError> {
    let bytes = Physical::granularity_bytes(context, options)?;
    Physical::create(context, bytes, options)
}
