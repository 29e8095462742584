//! Asks the driver for its GPUs and tries what they can do, for `causeway doctor`.

use std::sync::Arc;

use causeway_mediator::Link;

use crate::driver::{Context, CudaError, Device, Driver, LoadError, Physical, PhysicalOptions};
use crate::support::Support;

/// What [`survey`] found out about the CUDA driver and its GPUs.
#[derive(Debug)]
pub struct Survey {
    /// Newest version of CUDA that the driver supports, as 1000 times the major number plus 10
    /// times the minor number: 12040 for CUDA 12.4.
    pub version: i32,
    /// What was found out about each GPU, counted by PCI address.
    pub gpus: Vec<GpuSurvey>,
    /// All pairs of them.
    pub pairs: Vec<Pair>,
}

/// Two GPUs of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Their numbers counted by PCI address, the lower one first.
    pub gpus: [u32; 2],
    /// The ways from the first to memory of the second, and from the second to that of the first.
    pub ways: [Way; 2],
}

/// What the driver tells about the way from one GPU to the memory of another. `None` stands for
/// what it does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Whether kernels and copies can take it.
    pub reaches: bool,
    /// Rank among such ways by their performance: 0 is the best.
    pub rank: Option<i32>,
    /// Whether atomic operations work across.
    pub has_atomics: Option<bool>,
}

/// What [`survey`] found out about one GPU.
#[derive(Debug)]
pub struct GpuSurvey {
    /// Product name of the GPU, such as `NVIDIA H200`.
    pub name: String,
    /// PCI address of the GPU, as sysfs names it.
    pub pci_address: String,
    /// Size of the GPU's memory in bytes.
    pub memory_bytes: u64,
    /// Memory that no process uses, in bytes.
    pub free_bytes: u64,
    /// The GPU's CUDA device attributes.
    pub support: Support,
    /// Results of trial allocations, for what the attributes do not tell.
    pub trials: Trials,
}

/// Results of three trials on a GPU. Each trial allocates as little memory as possible, with a
/// different option.
#[derive(Debug)]
pub struct Trials {
    /// `Ok` if memory can be allocated with a fabric handle, which other machines can import;
    /// otherwise the driver's error.
    pub fabric: Result<(), CudaError>,
    /// `Ok` if compressible memory can be allocated; otherwise the driver's error.
    pub compressible: Result<(), CudaError>,
    /// `Ok` if memory can be allocated and then exported as a file descriptor; otherwise the
    /// driver's error.
    pub export: Result<(), CudaError>,
}

/// Asks the driver for all GPUs and their attributes, and allocates memory on each GPU to find out
/// what the attributes do not tell.
///
/// # Errors
/// [`SurveyError::Load`] if there is no usable driver, [`SurveyError::Driver`] if a call of the
/// driver fails.
pub fn survey() -> Result<Survey, SurveyError> {
    let driver = Driver::get()?;
    let count = Device::count(driver)?;
    let gpus: Result<_, CudaError> = (0..count).map(|index| gpu(driver, index)).collect();
    let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| [one, other]));
    let pairs: Result<_, CudaError> = pairs.map(|gpus| pair(driver, gpus)).collect();
    Ok(Survey {
        version: driver.version(),
        gpus: gpus?,
        pairs: pairs?,
    })
}

/// What identifies a GPU, as far as the driver tells it without a CUDA context on the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuIdentity {
    /// Product name of the GPU, such as `NVIDIA H200`.
    pub name: String,
    /// UUID of the GPU. Vulkan reports the same UUID for the same GPU.
    pub uuid: [u8; 16],
    /// PCI address of the GPU, as sysfs names it.
    pub pci_address: String,
    /// Newest version of CUDA that the driver supports, as 1000 times the major number plus 10
    /// times the minor number: 12040 for CUDA 12.4.
    pub driver_version: i32,
}

/// Returns the identities of all GPUs, counted by PCI address. Creates no CUDA context, so it takes
/// no GPU memory.
///
/// # Errors
/// [`SurveyError::Load`] if there is no usable driver, [`SurveyError::Driver`] if a call of the
/// driver fails.
pub fn identities() -> Result<Vec<GpuIdentity>, SurveyError> {
    let driver = Driver::get()?;
    let identity = |index| {
        let device = Device::get(driver, index)?;
        Ok(GpuIdentity {
            name: device.name()?,
            uuid: device.uuid()?,
            pci_address: device.pci_address()?,
            driver_version: driver.version(),
        })
    };
    (0..Device::count(driver)?).map(identity).collect()
}

/// Returns what links two GPUs, given by their numbers, each of which can reach the memory of the
/// other one; `None` if they cannot, or if the driver does not tell. Creates no CUDA context.
pub fn link_of(one: u32, other: u32) -> Option<Link> {
    let ask = || -> Result<[Way; 2], SurveyError> { Ok(pair(Driver::get()?, [one, other])?.ways) };
    let ways = ask().inspect_err(|e| {
        log::debug!("the driver does not tell whether GPUs {one} and {other} can be peers: {e}");
    });
    let ways = ways.ok()?;
    ways.iter().all(|way| way.reaches).then(|| Link {
        has_atomics: ways.iter().all(|way| way.has_atomics == Some(true)),
        rank: ways[0].rank.and_then(|rank| u8::try_from(rank).ok()),
    })
}

/// The reason for which the driver cannot be asked for its GPUs.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The machine has no CUDA driver that this back end can use.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A call of the driver failed.
    #[error(transparent)]
    Driver(#[from] CudaError),
}

fn pair(driver: &'static Driver, gpus: [u32; 2]) -> Result<Pair, CudaError> {
    let [one, other] = gpus.map(|index| Device::get(driver, index));
    let (one, other) = (one?, other?);
    let ways = [way(one, other)?, way(other, one)?];
    Ok(Pair { gpus, ways })
}

fn way(from: Device, to: Device) -> Result<Way, CudaError> {
    /// `CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`
    const RANK: u32 = 1;
    /// `CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED`
    const ATOMICS: u32 = 3;
    let attribute = |number| from.peer_attribute(to, number).ok();
    Ok(Way {
        reaches: from.can_access(to)?,
        rank: attribute(RANK),
        has_atomics: attribute(ATOMICS).map(|value| value != 0),
    })
}

fn gpu(driver: &'static Driver, index: u32) -> Result<GpuSurvey, CudaError> {
    let device = Device::get(driver, index)?;
    let context = Context::primary(device)?;
    let compressible = PhysicalOptions {
        compressible: true,
        ..PhysicalOptions::EXPORTABLE
    };
    Ok(GpuSurvey {
        name: device.name()?,
        pci_address: device.pci_address()?,
        memory_bytes: device.memory_bytes()?,
        free_bytes: context.free_bytes()?,
        support: Support::query(device),
        trials: Trials {
            fabric: allocate(&context, PhysicalOptions::FABRIC).map(drop),
            compressible: allocate(&context, compressible).map(drop),
            export: allocate(&context, PhysicalOptions::EXPORTABLE)
                .and_then(|memory| memory.export())
                .map(drop),
        },
    })
}

fn allocate(context: &Arc<Context>, options: PhysicalOptions) -> Result<Physical, CudaError> {
    let bytes = Physical::granularity_bytes(context, options)?;
    Physical::create(context, bytes, options)
}
