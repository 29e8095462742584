//! Kernels of modules: what a launch has to know of them, and the table that finds them.

use std::borrow::Cow;
use std::ffi::{CString, c_char};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use causeway_protocol::message::{Parameter, Status, UNKNOWN_ATTRIBUTE, kernel_flags};
use causeway_protocol::packet::{LaunchShape, PARAMETER_BYTES_USUAL};
use causeway_protocol::registers::features;
use causeway_shim_linux::shim;
use parking_lot::{Mutex, RwLock};

use crate::boundary::In;
use crate::cluster;
use crate::device;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::library;
use crate::module::{self, Loaded};
use crate::parameters::with_block;
use crate::rings::Rings;

/// Numbers of `CUfunction_attribute`.
pub(crate) mod attribute {
    pub(crate) const BLOCK_THREADS_MAX: usize = 0;
    pub(crate) const SHARED_BYTES: usize = 1;
    pub(crate) const REGISTERS: usize = 4;
    pub(crate) const PTX_VERSION: usize = 5;
    pub(crate) const BINARY_VERSION: usize = 6;
    pub(crate) const DYNAMIC_SHARED_BYTES_MAX: usize = 8;
    pub(crate) const SHARED_CARVEOUT: usize = 9;
    /// Sides of the clusters that the kernel requires; 0 if it requires none.
    pub(crate) const CLUSTER: [usize; 3] = [11, 12, 13];
    /// Number of attributes.
    pub(crate) const COUNT: usize = 16;
}

/// Attribute of devices: shared memory of a block without opting in for more, in bytes.
const SHARED_BYTES: u32 = 8;
/// Registers of a block, of all GPUs since compute capability 3.0 (CUDA C++ Programming Guide,
/// "Technical Specifications").
const BLOCK_REGISTERS: u64 = 65_536;
/// Attributes of devices: largest block and grid.
const BLOCK_MAX: [u32; 3] = [2, 3, 4];
const GRID_MAX: [u32; 3] = [5, 6, 7];
const BLOCK_THREADS_MAX: u32 = 1;

/// Handles of the module, the context and the library that a kernel is from. A module of a library
/// belongs to no context; context 0 stands for that, and library 0 for none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) module: usize,
    pub(crate) context: usize,
    pub(crate) library: usize,
}

/// A kernel of a loaded module.
pub(crate) struct Kernel {
    handle: u32,
    /// The `CUfunction` that callers know.
    pub(crate) function: usize,
    /// Size of the parameter block in bytes.
    pub(crate) parameter_bytes: usize,
    /// Offset and size of each parameter.
    pub(crate) layout: Box<[Parameter]>,
    /// Whether some bytes of the block belong to no parameter.
    pub(crate) has_gaps: bool,
    pub(crate) owner: Owner,
    limits: Limits,
    attributes: [AtomicI32; attribute::COUNT],
    name: CString,
    /// For launches of CUDA's first versions.
    pub(crate) prepared: Mutex<PreparedLaunch>,
    /// The code stays loaded as long as work may use it.
    _loaded: Arc<Loaded>,
}

/// What a function keeps for its next launch: CUDA's first versions set it by separate calls.
#[derive(Clone, Default)]
pub(crate) struct PreparedLaunch {
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) parameters: Vec<u8>,
}

/// What launches may not exceed.
#[derive(Clone, Copy, Debug)]
struct Limits {
    grid: [u32; 3],
    block: [u32; 3],
    /// Threads of a block of any kernel.
    threads: u32,
    /// Threads in x, y and z that every block must have.
    required: Option<[u32; 3]>,
    /// Blocks in x, y and z that every cluster must have; zeros if the device has no such clusters.
    cluster: Option<[u32; 3]>,
}

impl Limits {
    /// Returns the limits of a kernel for whose blocks `required` threads are stated, and clusters
    /// of `cluster` blocks.
    fn of(driver: &Driver, required: Option<[u32; 3]>, cluster: [u32; 3]) -> Self {
        let attribute = |number| {
            let value = device::attribute(driver, number);
            value.map_or(u32::MAX, |value| value.max(0).cast_unsigned())
        };
        Self {
            grid: GRID_MAX.map(attribute),
            block: BLOCK_MAX.map(attribute),
            threads: attribute(BLOCK_THREADS_MAX),
            required,
            cluster: match cluster::blocks_of(cluster) {
                0 => None,
                blocks if blocks > device::cluster_blocks_max(driver) => Some([0; 3]),
                _ => Some(cluster),
            },
        }
    }

    /// Checks everything but what the kernel itself needs. Returns the threads of a block.
    fn check(&self, shape: LaunchShape) -> Answer<u32> {
        let exceeds = |given: [u32; 3], max: [u32; 3]| {
            given.contains(&0) || given.iter().zip(max).any(|(given, max)| *given > max)
        };
        if exceeds(shape.grid, self.grid) || exceeds(shape.block, self.block) {
            return Err(Code::INVALID_VALUE);
        }
        if self
            .required
            .is_some_and(|required| required != shape.block)
        {
            return Err(Code::INVALID_VALUE);
        }
        if let Some(cluster) = self.cluster
            && !cluster::divides(cluster, shape.grid)
        {
            return Err(Code::INVALID_CLUSTER_SIZE);
        }
        let threads: u64 = shape.block.iter().map(|side| u64::from(*side)).product();
        match u32::try_from(threads) {
            Ok(threads) if threads <= self.threads => Ok(threads),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

impl Kernel {
    /// Looks the kernel `name` of loaded code up on the device.
    pub(crate) fn find_in(
        driver: &Driver,
        loaded: &Arc<Loaded>,
        owner: Owner,
        name: &str,
    ) -> Answer<Self> {
        let found = loaded.module().kernel(name);
        let found = found.map_err(|error| match error.status() {
            Status::NoKernel => Code::NOT_FOUND,
            shortage if shortage.is_shortage() => Code::OUT_OF_MEMORY,
            _ => driver.check_sticky().err().unwrap_or(Code::NOT_SUPPORTED),
        })?;
        let parameter_bytes = found.parameter_bytes() as usize;
        if parameter_bytes > PARAMETER_BYTES_USUAL && !driver.has(features::LARGE_PARAMETERS) {
            return Err(Code::NOT_SUPPORTED);
        }
        let entry = loaded.entries().iter().find(|entry| entry.name == name);
        let required = entry.and_then(|entry| entry.required_threads);
        let attributes = attributes(driver, &found);
        let cluster = attribute::CLUSTER.map(|number| attributes[number].max(0).cast_unsigned());
        Ok(Self {
            handle: found.handle(),
            function: 0,
            parameter_bytes,
            layout: found.layout().into(),
            has_gaps: has_gaps(found.layout(), found.parameter_bytes() as usize),
            owner,
            limits: Limits::of(driver, required, cluster),
            attributes: attributes.map(AtomicI32::new),
            name: CString::new(name).map_err(|_| Code::NOT_FOUND)?,
            prepared: Mutex::default(),
            _loaded: Arc::clone(loaded),
        })
    }

    /// Returns the handle that launch packets use.
    pub(crate) const fn handle(&self) -> u32 {
        self.handle
    }

    /// Returns the name, which stays at its address as long as the kernel.
    pub(crate) fn name(&self) -> *const c_char {
        self.name.as_ptr()
    }

    /// Returns the name as text.
    pub(crate) fn name_text(&self) -> Cow<'_, str> {
        self.name.to_string_lossy()
    }

    /// Returns an attribute (`CUfunction_attribute`).
    pub(crate) fn attribute(&self, number: u32) -> Answer<i32> {
        let attribute = self.attributes.get(number as usize);
        let attribute = attribute.ok_or(Code::INVALID_VALUE)?;
        Ok(attribute.load(Ordering::Relaxed))
    }

    /// Returns an attribute that is a size or a number of something.
    pub(crate) fn amount(&self, number: usize) -> u32 {
        self.attributes[number]
            .load(Ordering::Relaxed)
            .max(0)
            .cast_unsigned()
    }

    /// Changes an attribute that the caller has checked.
    pub(crate) fn set_attribute(&self, number: usize, value: i32) {
        self.attributes[number].store(value, Ordering::Relaxed);
    }

    /// Refuses a launch that the device would refuse, or that exceeds what the kernel may have.
    #[inline]
    pub(crate) fn check_shape(&self, shape: LaunchShape) -> Answer {
        let threads = self.limits.check(shape)?;
        if self.exceeds_shared(shape) {
            return Err(Code::INVALID_VALUE);
        }
        match threads > self.amount(attribute::BLOCK_THREADS_MAX) {
            true => Err(self.too_many(threads)),
            false => Ok(()),
        }
    }

    /// Returns whether a block would have more dynamic shared memory than the kernel may have.
    #[inline]
    fn exceeds_shared(&self, shape: LaunchShape) -> bool {
        shape.shared_bytes > self.amount(attribute::DYNAMIC_SHARED_BYTES_MAX)
    }

    /// Returns whether that is the first thing that is wrong with a launch.
    pub(crate) fn only_exceeds_shared(&self, shape: LaunchShape) -> bool {
        self.limits.check(shape).is_ok() && self.exceeds_shared(shape)
    }

    /// Returns the clusters of a launch that asks for these, zeros for none: those which the kernel
    /// requires, if it does.
    ///
    /// # Errors
    /// The launch asks for others.
    pub(crate) fn cluster(&self, asked: [u32; 3]) -> Answer<[u32; 3]> {
        match self.limits.cluster {
            None => Ok(asked),
            Some(required) if asked == [0; 3] || asked == required => Ok(required),
            Some(_) => Err(Code::INVALID_CLUSTER_SIZE),
        }
    }

    /// Returns whether the clusters are part of the code.
    pub(crate) fn requires_clusters(&self) -> bool {
        self.limits.cluster.is_some()
    }

    /// Returns why `threads` threads of a block are too many: there are not so many registers, or
    /// the kernel says so itself (`.maxntid`).
    #[cold]
    fn too_many(&self, threads: u32) -> Code {
        let registers = u64::from(self.amount(attribute::REGISTERS)).next_multiple_of(8);
        match registers * u64::from(threads) > BLOCK_REGISTERS {
            true => Code::LAUNCH_OUT_OF_RESOURCES,
            false => Code::INVALID_VALUE,
        }
    }

    /// Returns the parameter block of a launch, from pointers to each parameter or from extra
    /// options.
    pub(crate) fn gather(&self, parameters: In<usize>, extra: In<usize>) -> Answer<Box<[u8]>> {
        let copy = |block: &[u8]| Ok(block.into());
        with_block(&self.layout, self.parameter_bytes, parameters, extra, copy)
    }
}

/// Returns whether parameters leave bytes of their block out.
fn has_gaps(layout: &[Parameter], bytes: usize) -> bool {
    let sizes = layout.iter().map(|parameter| usize::from(parameter.size));
    sizes.sum::<usize>() != bytes
}

/// Returns the attributes of a kernel, as the host tells them. A host before protocol 1.3 does not;
/// then they are what an unknown kernel is likely to have.
fn attributes(driver: &Driver, kernel: &shim::Kernel<'_>) -> [i32; attribute::COUNT] {
    let mut values = usual_attributes(driver, kernel);
    let Ok(told) = kernel.attributes() else {
        return values;
    };
    if told.flags & kernel_flags::PRINTS != 0 {
        driver.output.expect();
    }
    for (value, told) in values.iter_mut().zip(told.attributes) {
        if told != UNKNOWN_ATTRIBUTE {
            *value = told;
        }
    }
    values
}

fn usual_attributes(driver: &Driver, kernel: &shim::Kernel<'_>) -> [i32; attribute::COUNT] {
    let target = module::target(driver);
    let shared = kernel.shared_bytes() as i32;
    let usual = device::attribute(driver, SHARED_BYTES).unwrap_or(0);
    let mut values = [0; attribute::COUNT];
    values[attribute::BLOCK_THREADS_MAX] = kernel.block_threads_max() as i32;
    values[attribute::SHARED_BYTES] = shared;
    values[attribute::REGISTERS] = 32;
    values[attribute::PTX_VERSION] = target.architecture as i32;
    values[attribute::BINARY_VERSION] = target.architecture as i32;
    values[attribute::DYNAMIC_SHARED_BYTES_MAX] = (usual - shared).max(0);
    values[attribute::SHARED_CARVEOUT] = -1;
    values
}

/// The kernels of all modules. Launches look them up; they change when modules come and go.
///
/// A handle has the index of a slot and how often the slot was used before, so that a stale handle
/// is found out. The bit [`MARK`] keeps handles of kernels apart from those of other objects.
pub(crate) struct Kernels {
    slots: RwLock<Slots>,
    /// What all handles have besides: they tell the device.
    handle_bits: usize,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

struct Slot {
    generation: usize,
    kernel: Option<Arc<Kernel>>,
}

const MARK: usize = 1 << 46;
/// Handles are multiples of 16, as addresses of structures are.
const INDEX_SHIFT: u32 = 4;
const INDEX_BITS: u32 = 20;
const GENERATION_SHIFT: u32 = INDEX_SHIFT + INDEX_BITS;
const GENERATION_MAX: usize = (MARK >> GENERATION_SHIFT) - 1;

const fn handle_of(index: usize, generation: usize) -> usize {
    MARK | generation << GENERATION_SHIFT | index << INDEX_SHIFT
}

impl Kernels {
    pub(crate) fn new(handle_bits: usize) -> Self {
        Self {
            slots: RwLock::default(),
            handle_bits,
        }
    }

    /// Gives a kernel a handle.
    pub(crate) fn insert(&self, mut kernel: Kernel) -> Answer<usize> {
        let mut table = self.slots.write();
        let index = match table.free.pop() {
            Some(index) => index,
            None if table.slots.len() >> INDEX_BITS == 0 => {
                table.slots.push(Slot {
                    generation: 0,
                    kernel: None,
                });
                table.slots.len() - 1
            }
            None => return Err(Code::OUT_OF_MEMORY),
        };
        let slot = &mut table.slots[index];
        kernel.function = handle_of(index, slot.generation) | self.handle_bits;
        let handle = kernel.function;
        slot.kernel = Some(Arc::new(kernel));
        Ok(handle)
    }

    /// Returns the kernel of a handle.
    #[inline]
    pub(crate) fn get(&self, handle: usize) -> Answer<Arc<Kernel>> {
        let index = handle >> INDEX_SHIFT & ((1 << INDEX_BITS) - 1);
        let table = self.slots.read();
        let slot = table.slots.get(index).ok_or(Code::INVALID_HANDLE)?;
        match &slot.kernel {
            Some(kernel) if kernel.function == handle => Ok(Arc::clone(kernel)),
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    /// Ends the handles of a module's kernels.
    pub(crate) fn remove_module(&self, rings: &Rings, module: usize) {
        let mut table = self.slots.write();
        let Slots { slots, free } = &mut *table;
        let mut ended = Vec::new();
        for (index, slot) in slots.iter_mut().enumerate() {
            let is_its = |kernel: &mut Arc<Kernel>| kernel.owner.module == module;
            if let Some(kernel) = slot.kernel.take_if(is_its) {
                ended.push(kernel);
                slot.generation += 1;
                if slot.generation <= GENERATION_MAX {
                    free.push(index);
                }
            }
        }
        drop(table);
        rings.forget_kernels(|kernel| kernel.owner.module == module);
        // The last kernel may unload its module, which waits for work.
        drop(ended);
    }
}

/// Returns the kernel of a handle of a function or a kernel: both are the same here. A kernel of a
/// library, which belongs to no context, is found from each device, which loads it for that.
#[inline]
pub(crate) fn find(driver: &Driver, handle: usize) -> Answer<Arc<Kernel>> {
    match driver.owns(handle) {
        true => driver.modules.kernels.get(handle),
        false => library::kernel_on(driver, handle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        grid: [(1 << 31) - 1, 65535, 65535],
        block: [1024, 1024, 64],
        threads: 1024,
        required: None,
        cluster: None,
    };

    fn checked(limits: Limits, grid: [u32; 3], block: [u32; 3]) -> Answer<u32> {
        limits.check(LaunchShape {
            shared_bytes: 0,
            grid,
            block,
        })
    }

    #[test]
    fn grids_and_blocks_have_limits() {
        assert_eq!(checked(LIMITS, [1 << 30, 65535, 1], [32, 8, 4]), Ok(1024));
        for (grid, block) in [
            ([0, 1, 1], [1, 1, 1]),
            ([1, 1, 1], [1, 0, 1]),
            ([1, 65536, 1], [1, 1, 1]),
            ([1 << 31, 1, 1], [1, 1, 1]),
            ([1, 1, 1], [1025, 1, 1]),
            ([1, 1, 1], [1, 1, 65]),
            ([1, 1, 1], [1024, 2, 1]),
            ([1, 1, 1], [1024, 1024, 64]),
        ] {
            assert_eq!(checked(LIMITS, grid, block), Err(Code::INVALID_VALUE));
        }
    }

    #[test]
    fn a_block_that_the_kernel_requires_is_the_only_one() {
        let limits = Limits {
            required: Some([32, 2, 1]),
            ..LIMITS
        };
        assert_eq!(checked(limits, [1; 3], [32, 2, 1]), Ok(64));
        assert_eq!(
            checked(limits, [1; 3], [64, 1, 1]),
            Err(Code::INVALID_VALUE)
        );
    }

    #[test]
    fn bytes_between_parameters_are_gaps() {
        let parameter = |offset, size| Parameter { offset, size };
        assert!(!has_gaps(&[], 0));
        assert!(!has_gaps(&[parameter(0, 8), parameter(8, 4)], 12));
        assert!(has_gaps(&[parameter(0, 4), parameter(8, 8)], 16));
        assert!(has_gaps(&[parameter(0, 8), parameter(8, 4)], 16));
    }

    #[test]
    fn handles_tell_index_and_generation() {
        let all = [
            (0, 0),
            (1, 0),
            (0, 1),
            ((1 << INDEX_BITS) - 1, GENERATION_MAX),
        ];
        let handles: std::collections::BTreeSet<usize> = all
            .iter()
            .map(|(index, generation)| handle_of(*index, *generation))
            .collect();
        assert_eq!(handles.len(), all.len());
        assert!(
            handles
                .iter()
                .all(|handle| handle & MARK != 0 && handle % 16 == 0)
        );
        assert!(handles.iter().all(|handle| *handle < MARK << 1));
    }

    #[test]
    fn forged_handles_find_nothing() {
        let kernels = Kernels::new(0);
        for handle in [0, 1, 16, MARK, MARK | 16, usize::MAX, handle_of(3, 7)] {
            assert_eq!(kernels.get(handle).err(), Some(Code::INVALID_HANDLE));
        }
    }
}
