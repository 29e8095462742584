//! Against the loops over single bits by which the PTX ISA defines the operations.

use super::super::sampling::{Random, words};
use super::*;

fn bit(word: u64, place: u32) -> bool {
    word >> place & 1 == 1
}

/// The definition of `bfe`.
fn extract(a: u64, position: u32, length: u32, width: u32, signed: bool) -> u64 {
    let (position, length, top) = (position & 0xff, length & 0xff, width - 1);
    let fill = signed && length != 0 && bit(a, (position + length - 1).min(top));
    (0..width).fold(0, |field, place| {
        let inside = place < length && position + place <= top;
        let set = if inside {
            bit(a, position + place)
        } else {
            fill
        };
        field | u64::from(set) << place
    })
}

/// The definition of `bfi`.
fn insert(a: u64, b: u64, position: u32, length: u32, width: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let places = (0..length).take_while(|place| position + place < width);
    places.fold(b, |word, place| {
        let mask = 1 << (position + place);
        if bit(a, place) {
            word | mask
        } else {
            word & !mask
        }
    })
}

#[test]
fn fields_follow_their_definition() {
    let mut random = Random(4);
    for pair in words(30_000).windows(2) {
        let (a, b) = (pair[0], pair[1]);
        let word = random.next();
        // Mostly sensible places, sometimes any.
        let limit = if word & 7 == 0 { u32::MAX } else { 70 };
        let (position, length) = (word as u32 % limit, (word >> 32) as u32 % limit);
        let low = u64::from(a as u32);
        assert_eq!(
            u64::from(bfe_u32(a as u32, position, length)),
            extract(low, position, length, 32, false)
        );
        assert_eq!(
            u64::from(bfe_s32(a as u32, position, length)),
            extract(low, position, length, 32, true)
        );
        assert_eq!(
            bfe_u64(a, position, length),
            extract(a, position, length, 64, false)
        );
        assert_eq!(
            bfe_s64(a, position, length),
            extract(a, position, length, 64, true)
        );
        let inserted = insert(low, u64::from(b as u32), position, length, 32);
        assert_eq!(
            u64::from(bfi_b32(a as u32, b as u32, position, length)),
            inserted
        );
        assert_eq!(
            bfi_b64(a, b, position, length),
            insert(a, b, position, length, 64)
        );
    }
}

#[test]
fn highest_bits() {
    assert_eq!(
        (bfind_u32(0, false), bfind_u32(1, false), bfind_u32(1, true)),
        (u32::MAX, 0, 31)
    );
    assert_eq!(
        (bfind_s32(u32::MAX, false), bfind_s32(u32::MAX - 1, false)),
        (u32::MAX, 0)
    );
    assert_eq!(
        (bfind_s64(1 << 63, false), bfind_s64(1 << 63, true)),
        (62, 1)
    );
    assert_eq!(
        (bfind_u64(1 << 63, false), bfind_u64(0, true)),
        (63, u32::MAX)
    );
}

#[test]
fn funnel_shifts() {
    let (low, high) = (0x8000_0001, 0x0000_00ff);
    assert_eq!(shf_l(low, high, 1, Excess::Wrap), 0x1ff);
    assert_eq!(shf_l(low, high, 32, Excess::Wrap), high);
    assert_eq!(shf_l(low, high, 32, Excess::Clamp), low);
    assert_eq!(shf_l(low, high, 99, Excess::Clamp), low);
    assert_eq!(shf_r(low, high, 1, Excess::Wrap), 0xc000_0000);
    assert_eq!(shf_r(low, high, 33, Excess::Wrap), 0xc000_0000);
    assert_eq!(shf_r(low, high, 33, Excess::Clamp), high);
}

#[test]
fn shifts_beyond_the_width() {
    assert_eq!(
        (shl_b32(1, 31), shl_b32(1, 32), shl_b64(1, u32::MAX)),
        (1 << 31, 0, 0)
    );
    assert_eq!(
        (
            shr_u32(1 << 31, 32),
            shr_s32(1 << 31, 99),
            shr_s64(1 << 63, 64)
        ),
        (0, u32::MAX, u64::MAX)
    );
    assert_eq!((shr_u64(1 << 63, 63), shr_s32(0x7fff_ffff, 99)), (1, 0));
}

/// Tables of the PTX ISA, one row per mode: the bytes chosen for control 0 to 3, highest byte
/// first.
#[test]
fn permutations_follow_the_tables() {
    let tables = [
        (Permutation::Forward4, ["3210", "4321", "5432", "6543"]),
        (Permutation::Backward4, ["5670", "6701", "7012", "0123"]),
        (Permutation::Replicate8, ["0000", "1111", "2222", "3333"]),
        (Permutation::EdgeLeft, ["3210", "3211", "3222", "3333"]),
        (Permutation::EdgeRight, ["0000", "1110", "2210", "3210"]),
        (Permutation::Replicate16, ["1010", "3232", "1010", "3232"]),
    ];
    for (mode, rows) in tables {
        for (control, row) in (0_u32..).zip(rows) {
            // Byte n of b:a holds n.
            let found = prmt(0x0302_0100, 0x0706_0504, control, mode);
            let wanted = row
                .bytes()
                .fold(0, |word, digit| word << 8 | u32::from(digit - b'0'));
            assert_eq!(found, wanted, "{mode:?} {control}");
        }
    }
    let found = prmt(
        0x8070_6050,
        0x0403_0201,
        0xb3_74 | 0xc << 16,
        Permutation::Selectors,
    );
    assert_eq!(found, 0xff80_0401);
}

#[test]
fn lop3_is_its_truth_table() {
    let (a, b, c) = (0xf0f0_f0f0, 0xcccc_cccc, 0xaaaa_aaaa);
    for table in 0..=u8::MAX {
        let byte = u32::from(table);
        assert_eq!(lop3(a, b, c, table), byte * 0x0101_0101, "{table:#x}");
    }
    assert_eq!(
        lop3(0x1234, 0xff00, 0x00f0, 0xf0 & 0xcc | 0xaa),
        0x1234 & 0xff00 | 0x00f0
    );
}

#[test]
fn masks_and_extensions() {
    assert_eq!(bmsk(4, 8, Excess::Clamp), 0xff0);
    assert_eq!(bmsk(28, 8, Excess::Clamp), 0xf000_0000);
    assert_eq!(
        (bmsk(0, 32, Excess::Clamp), bmsk(0, 32, Excess::Wrap)),
        (u32::MAX, 0)
    );
    assert_eq!(
        (bmsk(32, 32, Excess::Clamp), bmsk(36, 1, Excess::Wrap)),
        (0, 0x10)
    );
    assert_eq!(szext(0x80, 8, true, Excess::Wrap), 0xffff_ff80);
    assert_eq!(szext(0xff80, 8, false, Excess::Wrap), 0x80);
    assert_eq!(szext(0x1234_5678, 40, true, Excess::Clamp), 0x1234_5678);
    assert_eq!(szext(0x1234_5678, 0, true, Excess::Clamp), 0);
    assert_eq!(szext(0x1234_5678, 40, true, Excess::Wrap), 0x78);
}

/// The definition of `fns`.
fn search(mask: u32, base: u32, offset: i32) -> u32 {
    if offset == 0 {
        return if mask >> base & 1 == 1 {
            base
        } else {
            u32::MAX
        };
    }
    let mut count = offset.unsigned_abs() - 1;
    let mut place = i64::from(base);
    while (0..32).contains(&place) {
        if mask >> place & 1 == 1 {
            if count == 0 {
                return place as u32;
            }
            count -= 1;
        }
        place += i64::from(offset.signum());
    }
    u32::MAX
}

#[test]
fn nth_set_bit_follows_its_definition() {
    let mut random = Random(5);
    for mask in words(20_000) {
        let word = random.next();
        let (base, offset) = (word as u32 % 32, (word >> 32) as i32 % 40);
        let mask = mask as u32;
        assert_eq!(
            fns(mask, base, offset),
            search(mask, base, offset),
            "{mask:#x} {base} {offset}"
        );
    }
    assert_eq!(fns(u32::MAX, 40, 1), u32::MAX);
    assert_eq!(fns(u32::MAX, 0, i32::MIN), u32::MAX);
}
