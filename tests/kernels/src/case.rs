//! The description of one launch and of what must come out of it.

use core::fmt;

use crate::words;

/// Most bytes of parameters of any case.
pub const PARAMETER_BYTES_MAX: usize = 64;
/// Most bytes in all buffers of any one case together.
pub const CASE_BYTES_MAX: usize = 4 << 20;

/// Who writes a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Filled before the launch, and unchanged by it.
    Input,
    /// Zero before the launch.
    Output,
    /// Filled before the launch, and changed by it.
    InOut,
}

/// How far a result may be from the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Equal in every bit, compared in words of this many bytes (2, 4 or 8).
    Exact(usize),
    /// Words are `f32`; the distance is at most `absolute + relative * |reference|`.
    Near {
        /// Share of the reference.
        relative: f32,
        /// Distance where the reference is zero.
        absolute: f32,
    },
}

/// One buffer of a case.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Bytes; a multiple of 4.
    pub bytes: usize,
    /// Who writes it.
    pub role: Role,
    /// How its content is compared.
    pub rule: Rule,
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
    /// Unique name: that of the kernel.
    pub name: &'static str,
    /// The module.
    pub ptx: &'static str,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of shared memory given at the launch.
    pub dynamic_shared: u32,
    /// The buffers, in the order that [`Argument::Buffer`] counts in.
    pub buffers: &'static [Buffer],
    /// The parameters, in order.
    pub arguments: &'static [Argument],
    /// Writes the content of a buffer before the launch.
    pub(crate) fill: fn(usize, &mut [u8]),
    /// Does to all buffers what the kernel does.
    pub(crate) reference: fn(&mut [&mut [u8]]),
}

/// A word that is not what the reference has.
#[derive(Clone, Copy, PartialEq)]
pub struct Mismatch {
    /// The case.
    pub case: &'static str,
    /// Index of the buffer.
    pub buffer: usize,
    /// Index of the word in the buffer.
    pub word: usize,
    /// The reference's bits.
    pub want: u64,
    /// The kernel's bits.
    pub got: u64,
    /// How they were compared.
    pub rule: Rule,
}

impl Case {
    /// Threads in the grid.
    pub fn threads(&self) -> u64 {
        let of = |extent: [u32; 3]| extent.iter().map(|&n| u64::from(n)).product::<u64>();
        of(self.grid) * of(self.block)
    }

    /// Packs the parameters as the kernel's layout has them: in order, each at its natural alignment.
    /// `addresses` are the GPU virtual addresses of the buffers. Returns the bytes used.
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

    /// Writes what buffer `index` holds before the launch; an output is zeroed. The same at every call.
    ///
    /// # Panics
    ///
    /// If `bytes` is not as long as the buffer.
    pub fn fill(&self, index: usize, bytes: &mut [u8]) {
        assert_eq!(
            bytes.len(),
            self.buffers[index].bytes,
            "{}: length of buffer {index}",
            self.name
        );
        bytes.fill(0);
        if self.buffers[index].role != Role::Output {
            (self.fill)(index, bytes);
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
        assert_eq!(
            want.len(),
            got.len(),
            "{}: length of buffer {index}",
            self.name
        );
        let rule = self.buffers[index].rule;
        if want == got {
            return Ok(());
        }
        let width = rule.word_bytes();
        let words = want.chunks(width).zip(got.chunks(width)).enumerate();
        for (word, (want, got)) in words {
            let (want, got) = (words::low_bytes(want), words::low_bytes(got));
            if !rule.allows(want, got) {
                return Err(Mismatch {
                    case: self.name,
                    buffer: index,
                    word,
                    want,
                    got,
                    rule,
                });
            }
        }
        Ok(())
    }
}

impl Rule {
    /// Bytes of the words compared.
    fn word_bytes(self) -> usize {
        match self {
            Self::Exact(bytes) => bytes,
            Self::Near { .. } => 4,
        }
    }

    /// Whether a word is near enough to the reference. A NaN is near nothing.
    fn allows(self, want: u64, got: u64) -> bool {
        match self {
            Self::Exact(_) => want == got,
            Self::Near { relative, absolute } => {
                let (want, got) = (float(want), float(got));
                (want - got).abs() <= absolute + relative * want.abs()
            }
        }
    }
}

/// The `f32` in the low half of a word.
fn float(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            case,
            buffer,
            word,
            want,
            got,
            rule,
        } = *self;
        write!(f, "{case}: word {word} of buffer {buffer} is ")?;
        match rule {
            Rule::Exact(_) => write!(f, "{got:#x} but must be {want:#x}"),
            Rule::Near { .. } => write!(f, "{} but must be near {}", float(got), float(want)),
        }
    }
}

impl fmt::Debug for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
