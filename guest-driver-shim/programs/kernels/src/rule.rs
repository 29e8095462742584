//! How near a result must be to the reference, and how a mismatch is described.

use core::fmt;

use crate::words;

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

/// A word that differs from the reference by more than its rule allows.
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

impl Rule {
    /// The largest deviation of `got` from `want`, as a share of what is allowed: at most 1, and
    /// always 0 where every bit must be equal.
    ///
    /// # Errors
    /// The first word that deviates by more: its index, the wanted and the found bits. A NaN is
    /// near nothing.
    ///
    /// # Panics
    /// If the lengths differ.
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

    /// Bytes of the words compared.
    fn word_bytes(self) -> usize {
        match self {
            Self::Exact(bytes) => bytes,
            Self::Near { .. } => 4,
        }
    }

    /// How much of what is allowed a word uses up, if it is allowed.
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
