//! The description of one launch and of its expected results.

use core::fmt;

use crate::geometry::Geometry;
use crate::random::Seed;
use crate::rule::{Mismatch, Rule};

/// Most bytes of the parameters of a case.
pub const PARAMETER_BYTES_MAX: usize = 64;
/// Most bytes of all buffers of a case together.
pub const CASE_BYTES_MAX: usize = 4 << 20;

/// Says whether a kernel reads a buffer, writes it, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Filled before the launch, and unchanged by it.
    Input,
    /// Zero before the launch.
    Output,
    /// Filled before the launch, and changed by it.
    InOut,
}

/// Describes one buffer that the kernel of a case reads or writes.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Size in bytes, a multiple of 4.
    pub bytes: usize,
    /// Whether the kernel reads the buffer, writes it, or both.
    pub role: Role,
    /// How the buffer's content is compared with the reference.
    pub rule: Rule,
}

impl Buffer {
    /// Returns a buffer of `count` 32-bit words that are compared exactly.
    pub(crate) const fn words(role: Role, count: u32) -> Self {
        Self {
            bytes: 4 * count as usize,
            role,
            rule: Rule::Exact(4),
        }
    }

    /// Returns a buffer of `count` 64-bit words that are compared exactly.
    pub(crate) const fn long_words(role: Role, count: u32) -> Self {
        Self {
            bytes: 8 * count as usize,
            role,
            rule: Rule::Exact(8),
        }
    }
}

/// The value of one parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// The GPU virtual address of the buffer with this index.
    Buffer(usize),
    /// A 32-bit integer.
    U32(u32),
    /// A single-precision number.
    F32(f32),
}

/// Describes one launch of one kernel: its module, shape, parameters, inputs and expected results.
pub struct Case {
    /// Name of the kernel. No other case has the same name.
    pub name: &'static str,
    /// PTX text of the module that has the kernel.
    pub ptx: &'static str,
    /// Number of blocks in x, y and z.
    pub grid: [u32; 3],
    /// Number of threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub dynamic_shared: u32,
    /// How grid and block may vary without a change of the results.
    pub geometry: Geometry,
    /// The buffers that the kernel uses. [`Argument::Buffer`] is an index into this slice.
    pub buffers: &'static [Buffer],
    /// The values of the kernel's parameters, in order.
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

    /// Returns a grid and a block with which the kernel can be launched. `way` is any number that
    /// selects one of the possibilities; 0 selects [`Self::grid`] and [`Self::block`]. The results
    /// are the same for all of them.
    pub fn shape(&self, way: u64) -> ([u32; 3], [u32; 3]) {
        self.geometry.shape(way, self.grid, self.block)
    }

    /// Packs the parameters into `space` in the kernel's layout: in order, each at its natural
    /// alignment. `addresses` are the GPU virtual addresses of the buffers. Returns the size of the
    /// packed parameters in bytes.
    ///
    /// # Panics
    ///
    /// If `addresses` has fewer elements than the case has buffers.
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

    /// Writes to `bytes` the content that buffer number `index` has before the launch: always the
    /// same numbers for an input, zeros for an output.
    ///
    /// # Panics
    ///
    /// If `bytes` is not as long as the buffer.
    pub fn fill(&self, index: usize, bytes: &mut [u8]) {
        self.fill_with(0, index, bytes);
    }

    /// Does the same as [`Case::fill`], with other numbers for each `seed`. The case's rules hold
    /// for all seeds. Seed 0 gives the numbers of [`Case::fill`]; odd seeds give numbers of many
    /// magnitudes if the kernel can process them.
    ///
    /// # Panics
    ///
    /// If `bytes` is not as long as the buffer.
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

    /// Computes on the CPU what the kernel computes. `buffers` were filled by [`Case::fill`]; this
    /// leaves the expected results in them.
    ///
    /// # Panics
    ///
    /// If the number of the buffers, or the length of one, is not that of the case.
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

    /// Compares `got`, the content of buffer number `index` after the launch, with `want`, the
    /// content that the reference has computed.
    ///
    /// # Errors
    ///
    /// [`Mismatch`] with the first word that differs by more than the buffer's rule allows.
    ///
    /// # Panics
    ///
    /// If `want` and `got` have different lengths.
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
