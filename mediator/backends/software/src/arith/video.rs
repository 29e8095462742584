//! Arithmetic of pairs of half-words and of quads of bytes (PTX ISA, "SIMD Video Instructions").

crate::modifiers::modifiers! {
    /// What such an instruction does with each pair of elements: by its name without the number of
    /// elements, or by the comparison of `vset`, whose result is 1 or 0.
    PackedOperation {
        /// `a + b`
        Sum = "vadd",
        /// `a - b`
        Difference = "vsub",
        /// `(a + b) / 2`. A half is rounded up if it is positive, else down.
        Average = "vavrg",
        /// `|a - b|`
        Distance = "vabsdiff",
        /// The smaller one.
        Least = "vmin",
        /// The larger one.
        Greatest = "vmax",
        /// `a == b`
        Equal = "eq",
        /// `a != b`
        NotEqual = "ne",
        /// `a < b`
        Less = "lt",
        /// `a <= b`
        LessOrEqual = "le",
        /// `a > b`
        More = "gt",
        /// `a >= b`
        MoreOrEqual = "ge",
    }
}

impl PackedOperation {
    /// Returns whether it is a comparison.
    pub const fn compares(self) -> bool {
        use PackedOperation::{Equal, Less, LessOrEqual, More, MoreOrEqual, NotEqual};
        matches!(
            self,
            Equal | NotEqual | Less | LessOrEqual | More | MoreOrEqual
        )
    }

    #[inline]
    fn apply(self, a: i32, b: i32) -> i32 {
        match self {
            Self::Sum => a + b,
            Self::Difference => a - b,
            Self::Average => (a + b + i32::from(a + b >= 0)) >> 1,
            Self::Distance => (a - b).abs(),
            Self::Least => a.min(b),
            Self::Greatest => a.max(b),
            Self::Equal => (a == b).into(),
            Self::NotEqual => (a != b).into(),
            Self::Less => (a < b).into(),
            Self::LessOrEqual => (a <= b).into(),
            Self::More => (a > b).into(),
            Self::MoreOrEqual => (a >= b).into(),
        }
    }
}

/// How an instruction works on words of packed elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// What is done with each pair of elements.
    pub operation: PackedOperation,
    /// Whether elements are bytes, not half-words.
    pub bytes: bool,
    /// Whether the elements of the first source, of the second and of the result are signed.
    pub signed: [bool; 3],
    /// What becomes of the results.
    pub ending: Ending,
}

crate::modifiers::modifiers! {
    /// What becomes of the results of elements.
    Ending {
        /// Their low bits are packed.
        Truncate,
        /// The nearest numbers that the type of the result has are packed.
        Saturate = "sat",
        /// They are added to the third source.
        Accumulate = "add",
    }
}

impl Packed {
    /// Returns the word that stands for this in an operation.
    pub fn word(self) -> u64 {
        let [a, b, d] = self.signed.map(u64::from);
        let flags = a | b << 1 | d << 2 | u64::from(self.bytes) << 3;
        flags | (self.ending as u64) << 4 | (self.operation as u64) << 8
    }

    /// Returns what [`Self::word`] made a word of.
    #[inline]
    pub fn of(word: u64) -> Self {
        let (ending, operation) = (Ending::ALL, PackedOperation::ALL);
        Self {
            operation: operation[(word >> 8) as usize % operation.len()],
            bytes: word & 8 != 0,
            signed: [1, 2, 4].map(|bit| word & bit != 0),
            ending: ending[(word >> 4 & 3) as usize % ending.len()],
        }
    }

    /// Works on each pair of elements of `a` and `b`. `c` takes part if results are accumulated.
    #[inline]
    pub fn apply(self, a: u32, b: u32, c: u32) -> u32 {
        let bits = if self.bytes { 8 } else { 16 };
        let [a_signed, b_signed, d_signed] = self.signed;
        let ones = (1 << bits) - 1;
        let (least, greatest) = match d_signed {
            true => (-1 << (bits - 1), ones >> 1),
            false => (0, ones),
        };
        let mut result = match self.ending {
            Ending::Accumulate => c,
            Ending::Truncate | Ending::Saturate => 0,
        };
        for at in (0..32).step_by(bits) {
            let element = |word: u32, signed| extended(word >> at, bits, signed);
            let value = self
                .operation
                .apply(element(a, a_signed), element(b, b_signed));
            let value = match self.ending {
                Ending::Accumulate => {
                    result = result.wrapping_add_signed(value);
                    continue;
                }
                Ending::Truncate => value,
                Ending::Saturate => value.clamp(least, greatest),
            };
            result |= (value & ones).cast_unsigned() << at;
        }
        result
    }
}

/// The low bits of a word, sign- or zero-extended.
#[inline]
fn extended(word: u32, bits: usize, signed: bool) -> i32 {
    let above = 32 - bits;
    match signed {
        true => (word << above).cast_signed() >> above,
        false => (word << above >> above).cast_signed(),
    }
}
