//! Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision").

/// Integer operations of PTX for which Rust has no operator, for types of 16 to 64 bits.
pub trait Integer: Copy {
    /// Returns the upper half of the product, which has twice the bits (PTX's `mul.hi`).
    fn multiply_high(self, other: Self) -> Self;

    /// Divides, rounding towards zero (PTX's `div`). PTX leaves division by zero open; as on GPUs,
    /// all bits of the result are set. The least number divided by -1 is itself.
    fn divide(self, divisor: Self) -> Self;

    /// Returns the remainder of the division, with the sign of the dividend (PTX's `rem`). PTX
    /// leaves division by zero open; here the remainder is the dividend.
    fn remainder(self, divisor: Self) -> Self;

    /// Adds the absolute difference of two numbers to `sum` (PTX's `sad`).
    fn add_difference(self, other: Self, sum: Self) -> Self;
}

macro_rules! integer {
    ($($type:ty, $wide:ty;)*) => {$(
        #[allow(clippy::cast_possible_wrap, reason = "a distance is kept modulo the width")]
        impl Integer for $type {
            #[inline(always)]
            fn multiply_high(self, other: Self) -> Self {
                ((<$wide>::from(self) * <$wide>::from(other)) >> Self::BITS) as Self
            }

            #[inline(always)]
            fn divide(self, divisor: Self) -> Self {
                if divisor == 0 { !0 } else { self.wrapping_div(divisor) }
            }

            #[inline(always)]
            fn remainder(self, divisor: Self) -> Self {
                if divisor == 0 { self } else { self.wrapping_rem(divisor) }
            }

            #[inline(always)]
            fn add_difference(self, other: Self, sum: Self) -> Self {
                sum.wrapping_add(self.abs_diff(other) as Self)
            }
        }
    )*};
}

integer! {
    u16, u32;
    i16, i32;
    u32, u64;
    i32, i64;
    u64, u128;
    i64, i128;
}

/// The low 24 bits, zero- or sign-extended.
#[inline]
fn low24(a: u32, signed: bool) -> i64 {
    if signed {
        i64::from((a << 8).cast_signed() >> 8)
    } else {
        i64::from(a & 0x00ff_ffff)
    }
}

/// Multiplies the low 24 bits of `a` and `b`, as signed numbers if `signed`, and returns bits 0 to
/// 31 of the product (PTX's `mul24.lo`).
#[inline]
pub fn mul24_lo(a: u32, b: u32, signed: bool) -> u32 {
    (low24(a, signed) * low24(b, signed)) as u32
}

/// Multiplies the low 24 bits of `a` and `b`, as signed numbers if `signed`, and returns bits 16 to
/// 47 of the product (PTX's `mul24.hi`).
#[inline]
pub fn mul24_hi(a: u32, b: u32, signed: bool) -> u32 {
    ((low24(a, signed) * low24(b, signed)) >> 16) as u32
}

/// Adds the upper half of `a * b` to `c`; a sum beyond 32 bits becomes the nearest 32-bit number
/// (PTX's `mad.hi.sat.s32`).
#[inline]
pub fn mad_hi_sat_s32(a: i32, b: i32, c: i32) -> i32 {
    a.multiply_high(b).saturating_add(c)
}

/// Adds bits 16 to 47 of the product of the low 24 bits of `a` and `b` to `c`; a sum beyond 32 bits
/// becomes the nearest 32-bit number (PTX's `mad24.hi.sat.s32`).
#[inline]
pub fn mad24_hi_sat_s32(a: u32, b: u32, c: i32) -> i32 {
    mul24_hi(a, b, true).cast_signed().saturating_add(c)
}

/// Extended precision: the flag is CC.CF, a carry for additions and a borrow for subtractions.
macro_rules! carry {
    ($unsigned:ty, $add:ident, $sub:ident) => {
        /// Adds `a`, `b` and the carry flag `carry`. Returns the sum and the new carry flag (PTX's
        /// `addc.cc`, and `add.cc` if `carry` is false).
        #[inline]
        pub fn $add(a: $unsigned, b: $unsigned, carry: bool) -> ($unsigned, bool) {
            let (partial, first) = a.overflowing_add(b);
            let (sum, second) = partial.overflowing_add(<$unsigned>::from(carry));
            (sum, first || second)
        }

        /// Subtracts `b` and the borrow flag `borrow` from `a`. Returns the difference and the new
        /// borrow flag (PTX's `subc.cc`, and `sub.cc` if `borrow` is false).
        #[inline]
        pub fn $sub(a: $unsigned, b: $unsigned, borrow: bool) -> ($unsigned, bool) {
            let (partial, first) = a.overflowing_sub(b);
            let (difference, second) = partial.overflowing_sub(<$unsigned>::from(borrow));
            (difference, first || second)
        }
    };
}

carry!(u32, add_carry_u32, sub_borrow_u32);
carry!(u64, add_carry_u64, sub_borrow_u64);

/// Byte `index` of `word`, extended.
#[inline]
fn byte(word: u32, index: u32, signed: bool) -> i32 {
    let byte = (word >> (8 * index)) as u8;
    if signed {
        i32::from(byte.cast_signed())
    } else {
        i32::from(byte)
    }
}

/// Multiplies each of the four bytes of `a` by the corresponding byte of `b`, and adds the products
/// to `c` (PTX's `dp4a`). `a_signed` and `b_signed` say whether the bytes of `a` and of `b` are
/// signed.
#[inline]
pub fn dp4a(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let product = |index| byte(a, index, a_signed) * byte(b, index, b_signed);
    let sum = product(0) + product(1) + product(2) + product(3);
    c.wrapping_add(sum.cast_unsigned())
}

/// Multiplies the two 16-bit halves of `a` by two bytes of `b`, the upper two if `high`, otherwise
/// the lower two. Adds the products to `c` (PTX's `dp2a`). `a_signed` and `b_signed` say whether
/// the halves of `a` and the bytes of `b` are signed.
#[inline]
pub fn dp2a(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool, high: bool) -> u32 {
    let half = |index: u32| {
        let half = (a >> (16 * index)) as u16;
        if a_signed {
            i32::from(half.cast_signed())
        } else {
            i32::from(half)
        }
    };
    let first = if high { 2 } else { 0 };
    let product = |index| half(index) * byte(b, first + index, b_signed);
    let sum = product(0).wrapping_add(product(1));
    c.wrapping_add(sum.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::super::sampling::words;
    use super::*;

    #[test]
    fn high_products_agree_with_wider_ones() {
        for pair in words(20_000).windows(2) {
            let (a, b) = (pair[0], pair[1]);
            let whole = |a: i128, b: i128, bits: u32| ((a * b) >> bits) as u64;
            let (al, bl) = (a as u32, b as u32);
            let (aw, bw) = (i128::from(al.cast_signed()), i128::from(bl.cast_signed()));
            let (ai, bi) = (al.cast_signed(), bl.cast_signed());
            assert_eq!(ai.multiply_high(bi), whole(aw, bw, 32) as i32);
            assert_eq!(al.multiply_high(bl), whole(al.into(), bl.into(), 32) as u32);
            let (ah, bh) = (a as u16, b as u16);
            let (aw, bw) = (i128::from(ah.cast_signed()), i128::from(bh.cast_signed()));
            let (ai, bi) = (ah.cast_signed(), bh.cast_signed());
            assert_eq!(ai.multiply_high(bi), whole(aw, bw, 16) as i16);
            assert_eq!(ah.multiply_high(bh), whole(ah.into(), bh.into(), 16) as u16);
            // By schoolbook multiplication of 32-bit digits.
            let (a1, a0, b1, b0) = (a >> 32, a & 0xffff_ffff, b >> 32, b & 0xffff_ffff);
            let middle = ((a0 * b0) >> 32) + ((a1 * b0) & 0xffff_ffff) + ((a0 * b1) & 0xffff_ffff);
            let high = a1 * b1 + ((a1 * b0) >> 32) + ((a0 * b1) >> 32) + (middle >> 32);
            assert_eq!(a.multiply_high(b), high);
            let correction = if a >> 63 == 1 { b } else { 0 };
            let correction = correction.wrapping_add(if b >> 63 == 1 { a } else { 0 });
            let signed = a.cast_signed().multiply_high(b.cast_signed());
            assert_eq!(signed.cast_unsigned(), high.wrapping_sub(correction));
        }
    }

    #[test]
    fn division_by_zero_and_overflow_do_not_panic() {
        assert_eq!((7_u32.divide(0), 7_u32.remainder(0)), (u32::MAX, 7));
        assert_eq!((7_i64.divide(0), 7_i64.remainder(0)), (-1, 7));
        assert_eq!((i32::MIN.divide(-1), i32::MIN.remainder(-1)), (i32::MIN, 0));
        assert_eq!(((-7_i16).divide(2), (-7_i16).remainder(2)), (-3, -1));
        assert_eq!(
            (7_u16.divide(2), 7_u64.remainder(2), 9_u64.divide(2)),
            (3, 1, 4)
        );
    }

    #[test]
    fn carries_chain_to_wider_sums() {
        for quad in words(20_000).windows(2) {
            let (a, b) = (quad[0], quad[1]);
            let split = |word: u64| ((word >> 32) as u32, word as u32);
            let ((ah, al), (bh, bl)) = (split(a), split(b));
            let (low, carry) = add_carry_u32(al, bl, false);
            let (high, carry) = add_carry_u32(ah, bh, carry);
            let (sum, overflow) = a.overflowing_add(b);
            assert_eq!((split(sum), overflow), ((high, low), carry));
            let (low, borrow) = sub_borrow_u32(al, bl, false);
            let (high, borrow) = sub_borrow_u32(ah, bh, borrow);
            let (difference, overflow) = a.overflowing_sub(b);
            assert_eq!((split(difference), overflow), ((high, low), borrow));
        }
        assert_eq!(add_carry_u64(u64::MAX, u64::MAX, true), (u64::MAX, true));
        assert_eq!(sub_borrow_u64(0, u64::MAX, true), (0, true));
    }

    #[test]
    fn twenty_four_bits() {
        assert_eq!(mul24_lo(0xff00_0003, 5, false), 15);
        assert_eq!(mul24_lo(0x00ff_ffff, 5, true), (-5_i32).cast_unsigned());
        assert_eq!(mul24_hi(0x00ff_ffff, 0x00ff_ffff, false), 0xffff_fe00);
        assert_eq!(mul24_hi(0x0080_0000, 0x0080_0000, true), 0x4000_0000);
        assert_eq!(
            mad24_hi_sat_s32(0x0080_0000, 0x0080_0000, i32::MAX),
            i32::MAX
        );
        assert_eq!(mad_hi_sat_s32(i32::MIN, i32::MIN, i32::MAX), i32::MAX);
    }

    #[test]
    fn dot_products() {
        assert_eq!(dp4a(0x0102_0304, 0x0101_0101, 5, false, false), 15);
        assert_eq!(dp4a(0xffff_ffff, 0x0101_0101, 5, true, false), 1);
        assert_eq!(
            dp4a(0xffff_ffff, 0xffff_ffff, 0, false, false),
            4 * 255 * 255
        );
        assert_eq!(
            dp2a(0xffff_0002, 0x0403_0201, 10, true, true, false),
            10 + 2 - 2
        );
        assert_eq!(
            dp2a(0xffff_0002, 0x0403_0201, 10, true, true, true),
            10 + 6 - 4
        );
        assert_eq!(
            dp2a(0xffff_ffff, 0xffff, 0, false, false, false),
            2 * 0xffff * 0xff
        );
    }

    #[test]
    fn sums_of_absolute_differences() {
        assert_eq!(1_u32.add_difference(u32::MAX, 1), u32::MAX);
        assert_eq!(1_i32.add_difference(-1, 1), 3);
        assert_eq!(i16::MIN.add_difference(i16::MAX, 0), -1);
        assert_eq!(3_u16.add_difference(5, 1), 3);
        assert_eq!(5_u64.add_difference(3, 1), 3);
        assert_eq!(5_i64.add_difference(3, 1), 3);
    }
}
