//! What queues execute, and how that can end.

use std::fmt;
use std::sync::Arc;

use causeway_protocol::message::Status;
use causeway_protocol::packet::{
    ArrayBox, CopyShape, FillShape, LaunchOptions, LaunchShape, launch_flags,
};

use super::{Array, Kernel, Recording};

/// Maximum number of blocks in x, y and z (CUDA C++ Programming Guide, "Technical Specifications
/// per Compute Capability").
const GRID_MAX: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// `CUDA_ERROR_INVALID_CLUSTER_SIZE` of `cuda.h`.
const INVALID_CLUSTER_SIZE: u32 = 912;
/// Maximum number of threads of a block in x, y and z (as above).
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];

/// One piece of work for a queue, which the mediator has validated.
#[derive(Clone, Copy)]
pub enum Work<'a> {
    /// Run a kernel of a module of the queue's address space.
    Launch(Launch<'a>),
    /// Write memory without a kernel.
    Memory(MemoryWork),
    /// Copy between memory and an array.
    Array(ArrayCopy<'a>),
    /// Do all of a recording, in order.
    Replay {
        /// What [`Space::record`](super::Space::record) of the queue's address space returned.
        recording: &'a Arc<dyn Recording>,
    },
}

/// Work that writes memory without a kernel. Its addresses are GPU virtual addresses, which the
/// back end must check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryWork {
    /// Copy bytes between ranges that do not overlap.
    Copy {
        /// GPU address of the first byte that is written.
        destination: u64,
        /// GPU address of the first byte that is read.
        source: u64,
        /// Number of bytes, not zero.
        bytes: u64,
    },
    /// Fill with a pattern; destination and length are multiples of its width.
    Fill {
        /// GPU address of the first byte that is written.
        destination: u64,
        /// Number of bytes, not zero.
        bytes: u64,
        /// Pattern in the low `width` bytes.
        pattern: u32,
        /// Size of the pattern in bytes: 1, 2 or 4.
        width: u32,
    },
    /// Store `value` at `address` (8-byte aligned) with release ordering, after all earlier work is
    /// done.
    Release {
        /// GPU address of the fence.
        address: u64,
        /// Value to store.
        value: u64,
    },
    /// Store the 32-bit `value` at `address` (4-byte aligned) with release ordering, after all
    /// earlier work is done.
    ReleaseHalf {
        /// GPU address of the word.
        address: u64,
        /// Value to store.
        value: u32,
    },
    /// Store the time in nanoseconds at `address` (8-byte aligned), after all earlier work is done.
    Timestamp {
        /// GPU address of the first byte that is written.
        address: u64,
    },
    /// Copy rows. Each side lies in one mapping, from its first to its last byte.
    CopyRect(CopyShape),
    /// Fill rows with a pattern. They lie in one mapping, from the first to the last byte.
    FillRect(FillShape),
}

impl MemoryWork {
    /// Returns how many bytes a copy or a fill writes; 0 for a fence value ([`Self::Release`]) or a
    /// timestamp.
    pub fn moved_bytes(&self) -> u64 {
        match *self {
            Self::Copy { bytes, .. } | Self::Fill { bytes, .. } => bytes,
            Self::CopyRect(shape) => shape.bytes(),
            Self::FillRect(shape) => shape.bytes(),
            Self::Release { .. } | Self::ReleaseHalf { .. } | Self::Timestamp { .. } => 0,
        }
    }

    /// Returns whether the work stores a value for which others may wait.
    pub fn is_release(&self) -> bool {
        matches!(self, Self::Release { .. } | Self::ReleaseHalf { .. })
    }

    /// Returns the range of GPU addresses that the work writes: its first address and its length in
    /// bytes. What lies between rows belongs to it. A shape that no packet may have has a length
    /// that no mapping has.
    pub fn written(&self) -> (u64, u64) {
        match *self {
            Self::Copy {
                destination, bytes, ..
            }
            | Self::Fill {
                destination, bytes, ..
            } => (destination, bytes),
            Self::CopyRect(shape) => {
                let bytes = shape.extents().map_or(u64::MAX, |[to, _]| to);
                (shape.destination.address, bytes)
            }
            Self::FillRect(shape) => (shape.destination, shape.extent().unwrap_or(u64::MAX)),
            Self::Release { address, .. } | Self::Timestamp { address } => (address, 8),
            Self::ReleaseHalf { address, .. } => (address, 4),
        }
    }

    /// Returns the range of GPU addresses that a copy reads, as first address and length in bytes;
    /// `None` for other work, which reads nothing.
    pub fn read(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Copy { source, bytes, .. } => Some((source, bytes)),
            Self::CopyRect(shape) => {
                let bytes = shape.extents().map_or(u64::MAX, |[_, from]| from);
                Some((shape.source.address, bytes))
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Launch(launch) => launch.fmt(f),
            Self::Memory(work) => work.fmt(f),
            Self::Array(copy) => copy.fmt(f),
            Self::Replay { .. } => f.write_str("Replay"),
        }
    }
}

/// A copy between memory and an array of the queue's address space, whose box is within the array,
/// because [`Self::new`] has checked that. The back end must check the GPU addresses.
#[derive(Clone, Copy)]
pub struct ArrayCopy<'a> {
    array: &'a Arc<dyn Array>,
    part: ArrayBox,
    is_into_array: bool,
}

impl<'a> ArrayCopy<'a> {
    /// Checks a copy and returns it: into the array if `is_into_array`, else out of it.
    ///
    /// # Errors
    /// `BadRange` if no packet may have the box, or if it is not within the array, or not of whole
    /// elements.
    pub fn new(
        array: &'a Arc<dyn Array>,
        part: ArrayBox,
        is_into_array: bool,
    ) -> Result<Self, Fault> {
        let shape = array.shape();
        let all = [shape.row_bytes(), shape.rows(), shape.slices()];
        let wanted = [part.width, part.height, part.depth];
        let mut sides = part.origin.into_iter().zip(wanted).zip(all);
        // Sums of two numbers of 32 bits.
        let is_within = sides.all(|((from, size), all)| u64::from(from) + u64::from(size) <= all);
        let element = shape.element().bytes();
        let is_whole = [part.origin[0], part.width]
            .iter()
            .all(|bytes| bytes.is_multiple_of(element));
        if part.extent().is_some() && is_within && is_whole {
            return Ok(Self {
                array,
                part,
                is_into_array,
            });
        }
        let text = format!(
            "invalid box of {wanted:?} at {:?}: the array has {} bytes in a row, {} rows and {} \
             slices, in elements of {element} bytes",
            part.origin, all[0], all[1], all[2]
        );
        Err(Fault::new(Status::BadRange, text))
    }

    /// Returns the array.
    pub fn array(&self) -> &'a Arc<dyn Array> {
        self.array
    }

    /// Returns the box of the array, and where its rows are in memory.
    pub fn part(&self) -> ArrayBox {
        self.part
    }

    /// Returns whether memory is copied into the array, not out of it.
    pub fn is_into_array(&self) -> bool {
        self.is_into_array
    }

    /// Returns the range of GPU addresses that are accessed, as first address and length in bytes.
    /// What lies between rows belongs to it.
    pub fn memory(&self) -> (u64, u64) {
        let bytes = self.part.extent().unwrap_or(u64::MAX);
        (self.part.memory.address, bytes)
    }
}

causeway_memory::debug_fields!(ArrayCopy<'_> { part, is_into_array });

/// A launch of a kernel whose shape and parameters are within the kernel's limits, because
/// [`Self::new`] has checked them.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    kernel: &'a Arc<dyn Kernel>,
    shape: LaunchShape,
    options: LaunchOptions,
    parameters: &'a [u8],
}

impl<'a> Launch<'a> {
    /// Checks a launch of `kernel` with the parameter block `parameters`, and returns it. `shape`
    /// is the size of grid and blocks, and of the dynamic shared memory.
    ///
    /// # Errors
    /// `BadParameters` if `parameters` is not as long as the kernel's parameter block; `BadLaunch`
    /// if a size in `shape` is outside the limits of CUDA, of the device or of the kernel.
    pub fn new(
        kernel: &'a Arc<dyn Kernel>,
        shape: LaunchShape,
        parameters: &'a [u8],
    ) -> Result<Self, Fault> {
        let fault = |status, text: String| Err(Fault::new(status, text));
        let (bytes, wanted) = (parameters.len(), kernel.parameter_bytes());
        if bytes != wanted as usize {
            let text =
                format!("invalid parameter block of {bytes} bytes: the kernel takes {wanted}");
            return fault(Status::BadParameters, text);
        }
        match check_shape(&**kernel, &shape) {
            Ok(()) => Ok(Self {
                kernel,
                shape,
                options: LaunchOptions::PLAIN,
                parameters,
            }),
            Err(text) => fault(Status::BadLaunch, text),
        }
    }

    /// Returns the launch with `options`.
    ///
    /// # Errors
    /// `BadLaunch` if the clusters do not divide the grid, or if the back end cannot launch the
    /// kernel with these options.
    pub fn with_options(self, options: LaunchOptions) -> Result<Self, Fault> {
        if options == LaunchOptions::PLAIN {
            return Ok(self);
        }
        let (grid, cluster) = (self.shape.grid, options.cluster);
        let divides = |(grid, cluster): (u32, u32)| cluster != 0 && grid.is_multiple_of(cluster);
        if cluster != [0; 3] && !grid.into_iter().zip(cluster).all(divides) {
            let text = format!("invalid clusters of {cluster:?} blocks in a grid of {grid:?}");
            return Err(invalid_clusters(text));
        }
        self.kernel.check_options(&self.shape, &options)?;
        Ok(Self { options, ..self })
    }

    /// Returns how the blocks stand to each other.
    pub fn options(&self) -> LaunchOptions {
        self.options
    }

    /// Returns the kernel to launch.
    pub fn kernel(&self) -> &'a Arc<dyn Kernel> {
        self.kernel
    }

    /// Returns the size of the grid and of its blocks, and the dynamic shared memory of a block.
    pub fn shape(&self) -> LaunchShape {
        self.shape
    }

    /// Returns how many bytes of the host's memory the session is charged for while the launch is
    /// executed ([`Kernel::launch_bytes`]).
    pub fn host_bytes(&self) -> u64 {
        self.kernel.launch_bytes(&self.shape, &self.options)
    }

    /// Returns the parameter block, which has exactly the length that the kernel takes.
    pub fn parameters(&self) -> &'a [u8] {
        self.parameters
    }
}

causeway_memory::debug_fields!(Launch<'_> { shape, options });

/// Returns whether `options` ask for all blocks to run at the same time.
pub fn is_cooperative(options: &LaunchOptions) -> bool {
    options.flags & launch_flags::COOPERATIVE != 0
}

/// Refuses clusters of more than one block, for back ends that have none.
///
/// # Errors
/// `BadLaunch`, with CUDA's code for such a launch.
pub fn refuse_clusters(options: &LaunchOptions) -> Result<(), Fault> {
    match options.cluster {
        [0, 0, 0] | [1, 1, 1] => Ok(()),
        cluster => Err(invalid_clusters(format!(
            "clusters of {cluster:?} blocks: this device has clusters of one block only"
        ))),
    }
}

fn invalid_clusters(text: String) -> Fault {
    Fault::new(Status::BadLaunch, text).with_cuda_result(INVALID_CLUSTER_SIZE)
}

fn check_shape(kernel: &dyn Kernel, shape: &LaunchShape) -> Result<(), String> {
    let LaunchShape { grid, block, .. } = *shape;
    let exceeds = |given: [u32; 3], max: [u32; 3]| {
        given.contains(&0) || given.iter().zip(max).any(|(given, max)| *given > max)
    };
    if exceeds(grid, GRID_MAX) {
        return Err(format!("invalid grid {grid:?}: 1 to {GRID_MAX:?}"));
    }
    if exceeds(block, BLOCK_MAX) {
        return Err(format!("invalid block {block:?}: 1 to {BLOCK_MAX:?}"));
    }
    // Within the limits above, the product fits 32 bits.
    let threads: u32 = block.iter().product();
    let max = kernel.block_threads_max();
    if threads > max {
        return Err(format!("invalid block of {threads} threads: at most {max}"));
    }
    let dynamic_max = kernel.dynamic_shared_bytes_max();
    if shape.shared_bytes > dynamic_max {
        let own = u64::from(kernel.shared_bytes());
        let all = own + u64::from(shape.shared_bytes);
        let max = own + u64::from(dynamic_max);
        return Err(format!(
            "{all} bytes of shared memory in a block: at most {max}"
        ));
    }
    kernel.check_shape(shape)
}

/// One piece of work of a [`Recording`]. It is like [`Work`], but owns its kernel and its
/// parameters.
#[derive(Clone)]
pub enum Recorded {
    /// See [`Work::Launch`].
    Launch(RecordedLaunch),
    /// See [`Work::Memory`].
    Memory(MemoryWork),
    /// See [`Work::Array`].
    Array(RecordedArrayCopy),
}

/// An [`ArrayCopy`] that owns its array.
#[derive(Clone)]
pub struct RecordedArrayCopy {
    array: Arc<dyn Array>,
    part: ArrayBox,
    is_into_array: bool,
}

causeway_memory::debug_fields!(RecordedArrayCopy {
    part,
    is_into_array
});

impl RecordedArrayCopy {
    /// Returns the array.
    pub fn array(&self) -> &Arc<dyn Array> {
        &self.array
    }
}

impl From<ArrayCopy<'_>> for Recorded {
    fn from(copy: ArrayCopy<'_>) -> Self {
        Self::Array(RecordedArrayCopy {
            array: Arc::clone(copy.array),
            part: copy.part,
            is_into_array: copy.is_into_array,
        })
    }
}

/// A [`Launch`] that owns its kernel and its parameters.
#[derive(Clone)]
pub struct RecordedLaunch {
    kernel: Arc<dyn Kernel>,
    shape: LaunchShape,
    options: LaunchOptions,
    parameters: Box<[u8]>,
}

impl RecordedLaunch {
    /// Returns the kernel to launch.
    pub fn kernel(&self) -> &Arc<dyn Kernel> {
        &self.kernel
    }
}

impl Recorded {
    /// Returns this piece of work as [`Work`], so that a queue can execute it outside its
    /// recording.
    pub fn as_work(&self) -> Work<'_> {
        match self {
            Self::Launch(launch) => Work::Launch(Launch {
                kernel: &launch.kernel,
                shape: launch.shape,
                options: launch.options,
                parameters: &launch.parameters,
            }),
            Self::Memory(work) => Work::Memory(*work),
            Self::Array(copy) => Work::Array(ArrayCopy {
                array: &copy.array,
                part: copy.part,
                is_into_array: copy.is_into_array,
            }),
        }
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_work().fmt(f)
    }
}

causeway_memory::debug_fields!(RecordedLaunch { shape, options });

impl From<Launch<'_>> for Recorded {
    fn from(launch: Launch<'_>) -> Self {
        Self::Launch(RecordedLaunch {
            kernel: Arc::clone(launch.kernel),
            shape: launch.shape,
            options: launch.options,
            parameters: launch.parameters.into(),
        })
    }
}

/// Whether a queue has finished its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All submitted work is done.
    Idle,
    /// Work still runs or waits.
    Busy,
}

/// An error of GPU work: what went wrong in a packet, a kernel or the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Kind of the error. Errors of running work, such as `MemoryFault` and `KernelFault`, lose the
    /// session; errors in a packet, such as `BadLaunch` and `BadParameters`, stop only its command
    /// buffer.
    pub status: Status,
    /// What is known about the error, for people: for example kernel, block, thread and address.
    pub text: String,
    /// The error as a result of the CUDA driver API (`CUresult` in `cuda.h`), such as 700; 0 if it
    /// is unknown.
    pub cuda_result: u32,
}

impl Fault {
    /// Returns a fault of kind `status`, which `text` describes.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            status,
            text,
            cuda_result: 0,
        }
    }

    /// Returns this fault with `cuda_result` as its result of the CUDA driver API.
    #[must_use]
    pub fn with_cuda_result(self, cuda_result: u32) -> Self {
        Self {
            cuda_result,
            ..self
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.text(), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{ArrayShape, Element, ElementFormat};
    use causeway_protocol::packet::RectSide;
    use std::any::Any;

    /// An array without content.
    struct Plane(ArrayShape);

    impl Array for Plane {
        fn shape(&self) -> &ArrayShape {
            &self.0
        }

        fn memory_bytes(&self) -> u64 {
            self.0.bytes()
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn a_copy_of_an_array_accesses_memory_from_its_first_row_to_its_last() {
        let element = Element {
            format: ElementFormat::Unsigned8,
            channels: 4,
        };
        let shape = ArrayShape::new([16, 8, 0], element, 0).unwrap();
        let array: Arc<dyn Array> = Arc::new(Plane(shape));
        let part = ArrayBox {
            memory: RectSide {
                address: 0x1000,
                pitch: 64,
                rows: 3,
            },
            origin: [4, 5, 0],
            width: 16,
            height: 3,
            depth: 1,
        };
        for is_into_array in [false, true] {
            let copy = ArrayCopy::new(&array, part, is_into_array).unwrap();
            assert_eq!(copy.memory(), (0x1000, 2 * 64 + 16));
            assert_eq!(copy.is_into_array(), is_into_array);
        }
    }

    #[test]
    fn a_copy_reads_its_source_and_other_work_reads_nothing() {
        let copy = MemoryWork::Copy {
            destination: 0x1000,
            source: 0x3000,
            bytes: 16,
        };
        assert_eq!(
            (copy.written(), copy.read()),
            ((0x1000, 16), Some((0x3000, 16)))
        );
        let side = |address, pitch| RectSide {
            address,
            pitch,
            rows: 2,
        };
        let rows = MemoryWork::CopyRect(CopyShape {
            destination: side(0x1000, 32),
            source: side(0x3000, 64),
            width: 16,
            height: 2,
            depth: 1,
        });
        let expected = ((0x1000, 32 + 16), Some((0x3000, 64 + 16)));
        assert_eq!((rows.written(), rows.read()), expected);
        let release = MemoryWork::Release {
            address: 0x1000,
            value: 1,
        };
        assert_eq!((release.written(), release.read()), ((0x1000, 8), None));
    }

    #[test]
    fn a_fault_says_its_kind_and_what_happened() {
        let fault = Fault::new(Status::BackEnd, "address 0x10").with_cuda_result(700);
        let kind = Status::BackEnd.text();
        assert_eq!(fault.to_string(), format!("{kind}: address 0x10"));
    }

    #[test]
    fn a_launch_is_cooperative_if_its_flag_says_so() {
        let with = |flags| LaunchOptions {
            flags,
            ..LaunchOptions::default()
        };
        assert!(is_cooperative(&with(launch_flags::COOPERATIVE)));
        assert!(!is_cooperative(&with(0)));
    }
}
