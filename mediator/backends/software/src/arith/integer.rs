//! Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision").

/// `mul.hi.u16`
#[inline]
pub fn mul_hi_u16(a: u16, b: u16) -> u16 {
    ((u32::from(a) * u32::from(b)) >> 16) as u16
}

/// `mul.hi.s16`
#[inline]
pub fn mul_hi_s16(a: u16, b: u16) -> u16 {
    let product = i32::from(a.cast_signed()) * i32::from(b.cast_signed());
    (product >> 16) as u16
}

/// `mul.hi.u32`
#[inline]
pub fn mul_hi_u32(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

/// `mul.hi.s32`
#[inline]
pub fn mul_hi_s32(a: u32, b: u32) -> u32 {
    let product = i64::from(a.cast_signed()) * i64::from(b.cast_signed());
    (product >> 32) as u32
}

/// `mul.hi.u64`
#[inline]
pub fn mul_hi_u64(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// `mul.hi.s64`
#[inline]
pub fn mul_hi_s64(a: u64, b: u64) -> u64 {
    let product = i128::from(a.cast_signed()) * i128::from(b.cast_signed());
    (product >> 64) as u64
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

/// `mul24.lo`: bits 0 to 31 of the product of the low 24 bits.
#[inline]
pub fn mul24_lo(a: u32, b: u32, signed: bool) -> u32 {
    (low24(a, signed) * low24(b, signed)) as u32
}

/// `mul24.hi`: bits 16 to 47 of the product of the low 24 bits.
#[inline]
pub fn mul24_hi(a: u32, b: u32, signed: bool) -> u32 {
    ((low24(a, signed) * low24(b, signed)) >> 16) as u32
}

/// `add.sat.s32`
#[inline]
pub fn add_sat_s32(a: u32, b: u32) -> u32 {
    a.cast_signed()
        .saturating_add(b.cast_signed())
        .cast_unsigned()
}

/// `sub.sat.s32`
#[inline]
pub fn sub_sat_s32(a: u32, b: u32) -> u32 {
    a.cast_signed()
        .saturating_sub(b.cast_signed())
        .cast_unsigned()
}

/// `mad.hi.sat.s32`
#[inline]
pub fn mad_hi_sat_s32(a: u32, b: u32, c: u32) -> u32 {
    add_sat_s32(mul_hi_s32(a, b), c)
}

/// `mad24.hi.sat.s32`
#[inline]
pub fn mad24_hi_sat_s32(a: u32, b: u32, c: u32) -> u32 {
    add_sat_s32(mul24_hi(a, b, true), c)
}

/// Functions that differ between integer types in width and sign only. Values are bits, whatever the sign.
macro_rules! integer {
    ($unsigned:ty, $signed:ty, $sad_u:ident, $sad_s:ident, $div_u:ident, $div_s:ident, $rem_u:ident, $rem_s:ident) => {
        /// `sad`: `c + |a - b|`, unsigned.
        #[inline]
        pub fn $sad_u(a: $unsigned, b: $unsigned, c: $unsigned) -> $unsigned {
            c.wrapping_add(a.abs_diff(b))
        }

        /// `sad`: `c + |a - b|`, signed.
        #[inline]
        pub fn $sad_s(a: $unsigned, b: $unsigned, c: $unsigned) -> $unsigned {
            c.wrapping_add(a.cast_signed().abs_diff(b.cast_signed()))
        }

        /// `div`, unsigned. PTX leaves division by zero open; GPUs give all ones.
        #[inline]
        pub fn $div_u(a: $unsigned, b: $unsigned) -> $unsigned {
            a.checked_div(b).unwrap_or(<$unsigned>::MAX)
        }

        /// `div`, signed. By zero it gives all ones; the least number over -1 is itself.
        #[inline]
        pub fn $div_s(a: $unsigned, b: $unsigned) -> $unsigned {
            if b == 0 {
                return <$unsigned>::MAX;
            }
            a.cast_signed()
                .wrapping_div(b.cast_signed())
                .cast_unsigned()
        }

        /// `rem`, unsigned. PTX leaves division by zero open; here it gives the dividend.
        #[inline]
        pub fn $rem_u(a: $unsigned, b: $unsigned) -> $unsigned {
            a.checked_rem(b).unwrap_or(a)
        }

        /// `rem`, signed: the sign is the dividend's. By zero it gives the dividend.
        #[inline]
        pub fn $rem_s(a: $unsigned, b: $unsigned) -> $unsigned {
            if b == 0 {
                return a;
            }
            a.cast_signed()
                .wrapping_rem(b.cast_signed())
                .cast_unsigned()
        }
    };
}

integer!(
    u16, i16, sad_u16, sad_s16, div_u16, div_s16, rem_u16, rem_s16
);
integer!(
    u32, i32, sad_u32, sad_s32, div_u32, div_s32, rem_u32, rem_s32
);
integer!(
    u64, i64, sad_u64, sad_s64, div_u64, div_s64, rem_u64, rem_s64
);

/// Extended precision: the flag is CC.CF, a carry for additions and a borrow for subtractions.
macro_rules! carry {
    ($unsigned:ty, $add:ident, $sub:ident) => {
        /// `add.cc` (with `carry` false) and `addc.cc`: the sum and the carry out.
        #[inline]
        pub fn $add(a: $unsigned, b: $unsigned, carry: bool) -> ($unsigned, bool) {
            let (partial, first) = a.overflowing_add(b);
            let (sum, second) = partial.overflowing_add(<$unsigned>::from(carry));
            (sum, first || second)
        }

        /// `sub.cc` (with `borrow` false) and `subc.cc`: the difference and the borrow out.
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

/// `dp4a`: `c` plus the products of the four bytes of `a` and `b`.
#[inline]
pub fn dp4a(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let product = |index| byte(a, index, a_signed) * byte(b, index, b_signed);
    let sum = product(0) + product(1) + product(2) + product(3);
    c.wrapping_add(sum.cast_unsigned())
}

/// `dp2a`: `c` plus the products of the halves of `a` and two bytes of `b`, the upper two if `high`.
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
            assert_eq!(mul_hi_s32(al, bl), whole(aw, bw, 32) as u32);
            assert_eq!(mul_hi_u32(al, bl), whole(al.into(), bl.into(), 32) as u32);
            let (ah, bh) = (a as u16, b as u16);
            let (aw, bw) = (i128::from(ah.cast_signed()), i128::from(bh.cast_signed()));
            assert_eq!(mul_hi_s16(ah, bh), whole(aw, bw, 16) as u16);
            assert_eq!(mul_hi_u16(ah, bh), whole(ah.into(), bh.into(), 16) as u16);
            // By schoolbook multiplication of 32-bit digits.
            let (a1, a0, b1, b0) = (a >> 32, a & 0xffff_ffff, b >> 32, b & 0xffff_ffff);
            let middle = ((a0 * b0) >> 32) + ((a1 * b0) & 0xffff_ffff) + ((a0 * b1) & 0xffff_ffff);
            let high = a1 * b1 + ((a1 * b0) >> 32) + ((a0 * b1) >> 32) + (middle >> 32);
            assert_eq!(mul_hi_u64(a, b), high);
            let correction = if a >> 63 == 1 { b } else { 0 };
            let correction = correction.wrapping_add(if b >> 63 == 1 { a } else { 0 });
            assert_eq!(mul_hi_s64(a, b), high.wrapping_sub(correction));
        }
    }

    #[test]
    fn division_by_zero_and_overflow_do_not_panic() {
        assert_eq!((div_u32(7, 0), rem_u32(7, 0)), (u32::MAX, 7));
        assert_eq!((div_s64(7, 0), rem_s64(7, 0)), (u64::MAX, 7));
        let least = i32::MIN.cast_unsigned();
        assert_eq!(
            (div_s32(least, u32::MAX), rem_s32(least, u32::MAX)),
            (least, 0)
        );
        assert_eq!(
            div_s16((-7_i16).cast_unsigned(), 2),
            (-3_i16).cast_unsigned()
        );
        assert_eq!(rem_s16((-7_i16).cast_unsigned(), 2), u16::MAX);
        assert_eq!((div_u16(7, 2), rem_u64(7, 2), div_u64(9, 2)), (3, 1, 4));
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
            mad24_hi_sat_s32(0x0080_0000, 0x0080_0000, 0x7fff_ffff),
            0x7fff_ffff
        );
        assert_eq!(
            mad_hi_sat_s32(0x8000_0000, 0x8000_0000, 0x7fff_ffff),
            0x7fff_ffff
        );
        assert_eq!(sub_sat_s32(0x8000_0000, 1), 0x8000_0000);
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
        assert_eq!(sad_u32(1, u32::MAX, 1), u32::MAX);
        assert_eq!(sad_s32(1, u32::MAX, 1), 3);
        assert_eq!(sad_s16(0x8000, 0x7fff, 0), 0xffff);
        assert_eq!(
            (sad_u16(3, 5, 1), sad_u64(5, 3, 1), sad_s64(5, 3, 1)),
            (3, 3, 3)
        );
    }
}
