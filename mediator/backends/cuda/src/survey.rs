//! What there is, found out by asking and by trying: for `causeway doctor`.

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
    /// Memory that nobody uses, in bytes.
    pub free_bytes: u64,
    /// What the driver says of it.
    pub support: Support,
    /// What was tried.
    pub trials: Trials,
}

/// What came of trying to allocate the least possible amount of memory.
#[derive(Debug)]
pub struct Trials {
    /// With a handle that reaches other machines.
    pub fabric: Result<(), CudaError>,
    /// In compressible form.
    pub compressible: Result<(), CudaError>,
    /// And to export it as a file descriptor.
    pub export: Result<(), CudaError>,
}

/// Asks the driver, and tries.
///
/// # Errors
/// There is no driver, or it does not work.
pub fn survey() -> Result<Survey, SurveyError> {
    let driver = Driver::get()?;
    let count = Device::count(driver)?;
    let gpus: Result<_, CudaError> = (0..count).map(|index| gpu(driver, index)).collect();
    Ok(Survey {
        version: driver.version(),
        gpus: gpus?,
    })
}

/// A GPU, without having touched it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuIdentity {
    /// The product's name.
    pub name: String,
    /// What identifies it to other interfaces, such as Vulkan.
    pub uuid: [u8; 16],
    /// Version of CUDA that the driver is for: 1000 times the major and 10 times the minor number.
    pub driver_version: i32,
}

/// The GPUs there are, in the driver's order. Makes no context, so that it costs no memory of theirs.
///
/// # Errors
/// There is no driver, or it does not work.
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

/// Why nothing was found out.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// There is no driver to ask.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The driver does not answer.
    #[error(transparent)]
    Driver(#[from] CudaError),
}

fn gpu(driver: &'static Driver, index: u32) -> Result<GpuSurvey, CudaError> {
    let device = Device::get(driver, index)?;
    let context = Context::primary(device)?;
    let descriptor = PhysicalOptions {
        handle: HandleKind::Descriptor,
        compressible: false,
    };
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
