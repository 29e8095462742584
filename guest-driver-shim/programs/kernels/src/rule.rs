//! Rules that say how near a result must be to the reference, and the description of a mismatch.

use core::fmt;

use crate::words;

/// Says by how much a result may differ from the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Every bit must be equal. Words of this many bytes (2, 4 or 8) are compared.
    Exact(usize),
    /// Words are `f32`, and may differ by at most `absolute + relative * |reference|`.
    Near {
        /// Allowed difference as a share of the reference.
        relative: f32,
        /// Allowed difference if the reference is zero.
        absolute: f32,
    },
}

/// A word that differs from the reference by more than its rule allows.
#[derive(Clone, Copy, PartialEq)]
pub struct Mismatch {
    /// Name of the case.
    pub case: &'static str,
    /// Number of the buffer in the case, from 0.
    pub buffer: usize,
    /// Number of the word in the buffer, from 0.
    pub word: usize,
    /// Bits of the word in the reference.
    pub want: u64,
    /// Bits of the word that the kernel has computed.
    pub got: u64,
    /// Rule by which the words were compared.
    pub rule: Rule,
}

impl Rule {
    /// Returns the largest difference between words of `got` and `want`, as a share of the
    /// difference that the rule allows: at most 1, and always 0 if every bit must be equal.
    ///
    /// # Errors
    /// The first word that differs by more than the rule allows: its number, the wanted bits and
    /// the bits found. A NaN always differs.
    ///
    /// # Panics
    /// If `want` and `got` have different lengths.
    pub fn deviation(self, want: &[u8], got: &[u8]) -> Result<f32, (usize, u64, u64)> {
        assert_eq!(want.len(), got.len(), "lengths of what is compared");
        let mut largest = 0.0;
        if want == got {
            return Ok(largest);
        }
        let width = self.word_bytes();
        let words = want.chunks(width).zip(got.chunks(width)).enumerate();
        for (index, (want, got)) in words {
            let (want, got) = (words::low_bytes(want), words::low_bytes(got));
            match self.share(want, got) {
                Some(share) if share > largest => largest = share,
                Some(_) => {}
                None => return Err((index, want, got)),
            }
        }
        Ok(largest)
    }

    /// Returns the size of the words that are compared, in bytes.
    fn word_bytes(self) -> usize {
        match self {
            Self::Exact(bytes) => bytes,
            Self::Near { .. } => 4,
        }
    }

    /// Returns the difference of two words as a share of the difference that the rule allows;
    /// `None` if they differ by more.
    fn share(self, want: u64, got: u64) -> Option<f32> {
        match self {
            Self::Exact(_) => (want == got).then_some(0.0),
            Self::Near { .. } if want == got => Some(0.0),
            Self::Near { relative, absolute } => {
                let (want, got) = (float(want), float(got));
                let allowed = absolute + relative * want.abs();
                let distance = (want - got).abs();
                (distance <= allowed).then(|| distance / allowed)
            }
        }
    }
}

/// Returns the `f32` in the low half of a word.
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
