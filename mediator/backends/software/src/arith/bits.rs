//! Bit fields, permutations and searches.

crate::modifiers::modifiers! {
    /// What PTX's `shf`, `bmsk` and `szext` do with an amount of 32 bits or more.
    Excess {
        /// `.clamp`: the amount counts as 32.
        Clamp = "clamp",
        /// `.wrap`: the amount counts modulo 32.
        Wrap = "wrap",
    }
}

impl Excess {
    #[inline]
    fn limit(self, amount: u32) -> u32 {
        match self {
            Self::Clamp => amount.min(32),
            Self::Wrap => amount & 31,
        }
    }
}

/// Functions that exist for 32 and 64 bits.
macro_rules! fields {
    ($word:ty, $bfe_u:ident, $bfe_s:ident, $bfi:ident, $bfind_u:ident, $bfind_s:ident,
     $shl:ident, $shr_u:ident, $shr_s:ident) => {
        /// Returns the `length` bits of `a` from bit `position` on as an unsigned number (PTX's
        /// unsigned `bfe`). Only the low 8 bits of `position` and `length` count.
        #[inline]
        pub fn $bfe_u(a: $word, position: u32, length: u32) -> $word {
            let (position, length) = (position & 0xff, length & 0xff);
            let field = a.checked_shr(position).unwrap_or(0);
            field & low_ones(length) as $word
        }

        /// Returns the `length` bits of `a` from bit `position` on as a signed number (PTX's signed
        /// `bfe`). Bits beyond the top of `a` are its sign. Only the low 8 bits of `position` and
        /// `length` count.
        #[inline]
        pub fn $bfe_s(a: $word, position: u32, length: u32) -> $word {
            let (position, length) = (position & 0xff, length & 0xff);
            if length == 0 {
                return 0;
            }
            let top = <$word>::BITS - 1;
            let sign = (a >> (position + length - 1).min(top)) & 1 == 1;
            // Positions beyond the word all hold the extension.
            let taken = length.min(<$word>::BITS.saturating_sub(position));
            let ones = low_ones(taken) as $word;
            let field = a.checked_shr(position).unwrap_or(0) & ones;
            if sign { field | !ones } else { field }
        }

        /// Returns `base` with its `length` bits from bit `position` on replaced by the low bits of
        /// `field` (PTX's `bfi`). Only the low 8 bits of `position` and `length` count.
        #[inline]
        pub fn $bfi(field: $word, base: $word, position: u32, length: u32) -> $word {
            let (position, length) = (position & 0xff, length & 0xff);
            let mask = (low_ones(length) as $word)
                .checked_shl(position)
                .unwrap_or(0);
            let moved = field.checked_shl(position).unwrap_or(0);
            (base & !mask) | (moved & mask)
        }

        /// Returns the number of the highest bit of `a` that is set, or, if `shift_amount`, how far
        /// it is below the top bit (PTX's unsigned `bfind`). All bits of the result are set if `a`
        /// is 0.
        #[inline]
        pub fn $bfind_u(a: $word, shift_amount: bool) -> u32 {
            let zeros = a.leading_zeros();
            if zeros == <$word>::BITS {
                u32::MAX
            } else if shift_amount {
                zeros
            } else {
                <$word>::BITS - 1 - zeros
            }
        }

        /// Returns the number of the highest bit of `a` that differs from its sign bit, or, if
        /// `shift_amount`, how far it is below the top bit (PTX's signed `bfind`). All bits of the
        /// result are set if no bit differs.
        #[inline]
        pub fn $bfind_s(a: $word, shift_amount: bool) -> u32 {
            let sign = (a.cast_signed() >> (<$word>::BITS - 1)).cast_unsigned();
            $bfind_u(a ^ sign, shift_amount)
        }

        /// Shifts `a` left by `distance` bits (PTX's `shl`). The result is 0 if `distance` is the
        /// width of `a` or more.
        #[inline(always)]
        pub fn $shl(a: $word, distance: u32) -> $word {
            let top = <$word>::BITS - 1;
            if distance > top {
                0
            } else {
                a << (distance & top)
            }
        }

        /// Shifts `a` right by `distance` bits, filling with zeros (PTX's unsigned `shr`). The
        /// result is 0 if `distance` is the width of `a` or more.
        #[inline(always)]
        pub fn $shr_u(a: $word, distance: u32) -> $word {
            let top = <$word>::BITS - 1;
            if distance > top {
                0
            } else {
                a >> (distance & top)
            }
        }

        /// Shifts `a` right by `distance` bits, filling with its sign (PTX's signed `shr`). Every
        /// bit of the result is the sign if `distance` is the width of `a` or more.
        #[inline(always)]
        pub fn $shr_s(a: $word, distance: u32) -> $word {
            (a.cast_signed() >> distance.min(<$word>::BITS - 1)).cast_unsigned()
        }
    };
}

fields!(
    u32, bfe_u32, bfe_s32, bfi_b32, bfind_u32, bfind_s32, shl_b32, shr_u32, shr_s32
);
fields!(
    u64, bfe_u64, bfe_s64, bfi_b64, bfind_u64, bfind_s64, shl_b64, shr_u64, shr_s64
);

/// `count` ones from bit 0 on, 64 at most.
#[inline]
fn low_ones(count: u32) -> u64 {
    1_u64.checked_shl(count).unwrap_or(0).wrapping_sub(1)
}

/// Shifts the 64 bits `high:low` left by `distance` and returns their upper half (PTX's `shf.l`).
/// `excess` says whether a distance of 32 or more counts as 32 or modulo 32.
#[inline]
pub fn shf_l(low: u32, high: u32, distance: u32, excess: Excess) -> u32 {
    let both = u64::from(high) << 32 | u64::from(low);
    ((both << excess.limit(distance)) >> 32) as u32
}

/// Shifts the 64 bits `high:low` right by `distance` and returns their lower half (PTX's `shf.r`).
/// `excess` says whether a distance of 32 or more counts as 32 or modulo 32.
#[inline]
pub fn shf_r(low: u32, high: u32, distance: u32, excess: Excess) -> u32 {
    let both = u64::from(high) << 32 | u64::from(low);
    (both >> excess.limit(distance)) as u32
}

crate::modifiers::modifiers! {
    /// Mode of PTX's `prmt`: how it chooses the four bytes of its result from the eight of its
    /// operands.
    Permutation {
        /// No modifier: four bits of the control operand for each byte of the result. The lower
        /// three name a byte, the top one fills the result's byte with the sign of that byte.
        Selectors,
        /// `.f4e`: four bytes in ascending order, from the one that the control operand names.
        Forward4 = "f4e",
        /// `.b4e`: four bytes in descending order, from the one that the control operand names.
        Backward4 = "b4e",
        /// `.rc8`: the byte that the control operand names, four times.
        Replicate8 = "rc8",
        /// `.ecl`: the lower four bytes, with those below the named one replaced by it.
        EdgeLeft = "ecl",
        /// `.ecr`: the lower four bytes, with those above the named one replaced by it.
        EdgeRight = "ecr",
        /// `.rc16`: the 16-bit half that the control operand names, twice.
        Replicate16 = "rc16",
    }
}

impl Permutation {
    /// The selectors that a mode stands for, lowest byte in the lowest four bits.
    fn selectors(self, control: u32) -> u32 {
        let index = control & 3;
        let each = |pick: fn(u32, u32) -> u32| {
            (0..4).fold(0, |all, byte| all | pick(index, byte) << (4 * byte))
        };
        match self {
            Self::Selectors => control,
            Self::Forward4 => each(|index, byte| index + byte),
            Self::Backward4 => each(|index, byte| (index + 8 - byte) & 7),
            Self::Replicate8 => each(|index, _| index),
            Self::EdgeLeft => each(|index, byte| byte.max(index)),
            Self::EdgeRight => each(|index, byte| byte.min(index)),
            Self::Replicate16 => each(|index, byte| 2 * (index & 1) + (byte & 1)),
        }
    }
}

/// Returns four bytes chosen from the eight of `b:a` (PTX's `prmt`). `mode` says how `control`
/// chooses them.
#[inline]
pub fn prmt(a: u32, b: u32, control: u32, mode: Permutation) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let selectors = mode.selectors(control);
    let pick = |place: u32| {
        let selector = selectors >> (4 * place);
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        let spread = (byte.cast_signed() >> 7).cast_unsigned();
        let value = if selector & 8 == 0 { byte } else { spread };
        u32::from(value) << (8 * place)
    };
    pick(0) | pick(1) | pick(2) | pick(3)
}

/// Computes any logical function of three bits for all 32 bits at once (PTX's `lop3`). Bit number
/// `4·a + 2·b + c` of `table` is the result for the bits `a`, `b` and `c`.
#[inline]
pub fn lop3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    let mut result = 0;
    for index in 0..8_u32 {
        let chosen = u32::from(table >> index & 1).wrapping_neg();
        let match_a = if index & 4 == 0 { !a } else { a };
        let match_b = if index & 2 == 0 { !b } else { b };
        let match_c = if index & 1 == 0 { !c } else { c };
        result |= chosen & match_a & match_b & match_c;
    }
    result
}

/// Returns a mask of `width` ones from bit `position` on (PTX's `bmsk`). `excess` says whether a
/// `position` or `width` of 32 or more counts as 32 or modulo 32.
#[inline]
pub fn bmsk(position: u32, width: u32, excess: Excess) -> u32 {
    let (position, width) = (excess.limit(position), excess.limit(width));
    ((low_ones(width)) << position) as u32
}

/// Extends the low `bits` bits of `a` to 32 bits, with their sign if `signed`, otherwise with zeros
/// (PTX's `szext`). `excess` says whether a value `bits` of 32 or more counts as 32 or modulo 32.
#[inline]
pub fn szext(a: u32, bits: u32, signed: bool, excess: Excess) -> u32 {
    let bits = excess.limit(bits);
    if bits == 0 {
        return 0;
    }
    let spare = 32 - bits;
    if signed {
        ((a << spare).cast_signed() >> spare).cast_unsigned()
    } else {
        (a << spare) >> spare
    }
}

/// Returns the number of the `offset`-th set bit of `mask`, counted from bit `base` upwards, or
/// downwards if `offset` is negative (PTX's `fns`). With an `offset` of 0, returns `base` if that
/// bit is set. Returns `u32::MAX` if there is no such bit.
#[inline]
pub fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    if base >= 32 {
        return u32::MAX;
    }
    if offset == 0 {
        let is_set = mask >> base & 1 == 1;
        return if is_set { base } else { u32::MAX };
    }
    let skipped = offset.unsigned_abs() - 1;
    let mut candidates = if offset > 0 {
        mask & (u32::MAX << base)
    } else {
        mask & (u32::MAX >> (31 - base))
    };
    if skipped >= candidates.count_ones() {
        return u32::MAX;
    }
    let nearest = |candidates: u32| match offset {
        1.. => candidates.trailing_zeros(),
        _ => 31 - candidates.leading_zeros(),
    };
    for _ in 0..skipped {
        candidates &= !(1 << nearest(candidates));
    }
    nearest(candidates)
}

#[cfg(test)]
#[path = "bits_tests.rs"]
mod tests;
