//! The description of one launch and of its expected results.

use core::fmt;

use crate::geometry::Geometry;
use crate::random::Seed;
use crate::rule::{Mismatch, Rule};

/// Bytes of parameters of a case, at most.
pub const PARAMETER_BYTES_MAX: usize = 64;
/// Bytes of all buffers of a case together, at most.
pub const CASE_BYTES_MAX: usize = 4 << 20;

/// How a buffer is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Filled before the launch, and unchanged by it.
    Input,
    /// Zero before the launch.
    Output,
    /// Filled before the launch, and changed by it.
    InOut,
}

/// One buffer of a case.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Bytes; a multiple of 4.
    pub bytes: usize,
    /// How it is used.
    pub role: Role,
    /// How its content is compared with the reference.
    pub rule: Rule,
}

impl Buffer {
    /// A buffer of `count` 32-bit words that are compared exactly.
    pub(crate) const fn words(role: Role, count: u32) -> Self {
        Self {
            bytes: 4 * count as usize,
            role,
            rule: Rule::Exact(4),
        }
    }

    /// A buffer of `count` 64-bit words that are compared exactly.
    pub(crate) const fn long_words(role: Role, count: u32) -> Self {
        Self {
            bytes: 8 * count as usize,
            role,
            rule: Rule::Exact(8),
        }
    }
}

/// One parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// The GPU virtual address of the buffer with this index.
    Buffer(usize),
    /// A 32-bit integer.
    U32(u32),
    /// A single-precision number.
    F32(f32),
}

/// One launch of one kernel, with inputs and reference.
pub struct Case {
    /// Name of the kernel, which no other case has.
    pub name: &'static str,
    /// PTX text of the module.
    pub ptx: &'static str,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// How grid and block may vary.
    pub geometry: Geometry,
    /// The buffers, in the order that [`Argument::Buffer`] counts in.
    pub buffers: &'static [Buffer],
    /// The parameters, in order.
    pub arguments: &'static [Argument],
    /// Writes the content of a buffer before the launch.
    pub(crate) fill: fn(Seed, usize, &mut [u8]),
    /// Computes on all buffers what the kernel computes.
    pub(crate) reference: fn(&mut [&mut [u8]]),
}

impl Case {
    /// Returns the number of threads of the grid.
    pub fn threads(&self) -> u64 {
        let of = |extent: [u32; 3]| extent.iter().map(|&n| u64::from(n)).product::<u64>();
        of(self.grid) * of(self.block)
    }

    /// Returns the grid and block of one way to launch the kernel. All ways give the same result;
    /// way 0 uses [`Self::grid`] and [`Self::block`].
    pub fn shape(&self, way: u64) -> ([u32; 3], [u32; 3]) {
        self.geometry.shape(way, self.grid, self.block)
    }

    /// Packs the parameters as the kernel's layout has them: in order, each at its natural
    /// alignment. `addresses` are the GPU virtual addresses of the buffers. Returns the bytes used.
    ///
    /// # Panics
    ///
    /// If there are fewer addresses than buffers.
    pub fn parameters(&self, addresses: &[u64], space: &mut [u8; PARAMETER_BYTES_MAX]) -> usize {
        let mut used = 0;
        let mut put = |value: &[u8]| {
            let at = usize::next_multiple_of(used, value.len());
            space[at..at + value.len()].copy_from_slice(value);
            used = at + value.len();
        };
        for argument in self.arguments {
            match *argument {
                Argument::Buffer(index) => put(&addresses[index].to_le_bytes()),
                Argument::U32(value) => put(&value.to_le_bytes()),
                Argument::F32(value) => put(&value.to_le_bytes()),
            }
        }
        used
    }

    /// Writes what buffer `index` holds before the launch; an output is zeroed. The same at every
    /// call.
    ///
    /// # Panics
    ///
    /// If `bytes` is not as long as the buffer.
    pub fn fill(&self, index: usize, bytes: &mut [u8]) {
        self.fill_with(0, index, bytes);
    }

    /// The same with other numbers for each seed, for all of which the case's rules hold. The seed
    /// 0 is the usual filling; odd seeds give numbers of many magnitudes where the kernel can take
    /// them.
    ///
    /// # Panics
    ///
    /// As [`Case::fill`].
    pub fn fill_with(&self, seed: u64, index: usize, bytes: &mut [u8]) {
        assert_eq!(
            bytes.len(),
            self.buffers[index].bytes,
            "{}: length of buffer {index}",
            self.name
        );
        bytes.fill(0);
        if self.buffers[index].role != Role::Output {
            (self.fill)(Seed(seed), index, bytes);
        }
    }

    /// Does to the buffers, filled by [`Case::fill`], what the kernel does to its own.
    ///
    /// # Panics
    ///
    /// If the number or a length of the buffers is not the case's.
    pub fn reference(&self, buffers: &mut [&mut [u8]]) {
        assert_eq!(
            buffers.len(),
            self.buffers.len(),
            "{}: number of buffers",
            self.name
        );
        for (index, buffer) in buffers.iter().enumerate() {
            assert_eq!(
                buffer.len(),
                self.buffers[index].bytes,
                "{}: length of buffer {index}",
                self.name
            );
        }
        (self.reference)(buffers);
    }

    /// Compares the content of buffer `index` after the launch with the reference's.
    ///
    /// # Errors
    ///
    /// The first word that differs by more than the buffer's rule allows.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn compare(&self, index: usize, want: &[u8], got: &[u8]) -> Result<(), Mismatch> {
        let rule = self.buffers[index].rule;
        match rule.deviation(want, got) {
            Ok(_) => Ok(()),
            Err((word, want, got)) => Err(Mismatch {
                case: self.name,
                buffer: index,
                word,
                want,
                got,
                rule,
            }),
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("grid", &self.grid)
            .finish_non_exhaustive()
    }
}
