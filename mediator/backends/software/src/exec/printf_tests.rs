//! Texts that C's `printf` makes of the same arguments.

use super::*;

/// Arguments as a caller packs them, with one string at address 1.
struct Given {
    bytes: Vec<u8>,
    at: usize,
}

impl Given {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        self.at = self.at.next_multiple_of(N);
        let taken = self.bytes[self.at..][..N].try_into().unwrap();
        self.at += N;
        taken
    }
}

impl Arguments for Given {
    type Error = ();

    fn word(&mut self) -> Result<u32, ()> {
        Ok(u32::from_le_bytes(self.take()))
    }

    fn double(&mut self) -> Result<u64, ()> {
        Ok(u64::from_le_bytes(self.take()))
    }

    fn text(&mut self, address: u64, max: usize) -> Result<Vec<u8>, ()> {
        assert_eq!(address, 1);
        Ok(b"string".iter().copied().take(max).collect())
    }
}

enum Value {
    I(i32),
    L(i64),
    F(f64),
}
use Value::{F, I, L};

fn printed(format: &str, values: &[Value]) -> (String, u32) {
    let mut bytes = Vec::new();
    for value in values {
        let double = match value {
            I(word) => {
                bytes.extend(word.to_le_bytes());
                continue;
            }
            L(long) => long.cast_unsigned(),
            F(float) => float.to_bits(),
        };
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(double.to_le_bytes());
    }
    let (text, taken) = print(format.as_bytes(), &mut Given { bytes, at: 0 }).unwrap();
    (String::from_utf8(text).unwrap(), taken)
}

#[track_caller]
fn check(format: &str, values: &[Value], want: &str) {
    assert_eq!(
        printed(format, values),
        (want.to_owned(), values.len() as u32),
        "{format}"
    );
}

#[test]
fn integers() {
    check("%d|%i|%u", &[I(-5), I(7), I(-1)], "-5|7|4294967295");
    check(
        "%5d|%-5d|%05d|%+d|% d",
        &[I(42), I(42), I(-42), I(42), I(42)],
        "   42|42   |-0042|+42| 42",
    );
    check(
        "%x|%X|%#x|%#X|%o|%#o",
        &[I(255), I(255), I(255), I(255), I(8), I(8)],
        "ff|FF|0xff|0XFF|10|010",
    );
    check(
        "%#x|%#o|%.0d|%.3d|%08.3d",
        &[I(0), I(0), I(0), I(5), I(-5)],
        "0|0||005|    -005",
    );
    check("%#06x|%-#8x|", &[I(10), I(10)], "0x000a|0xa     |");
    check(
        "%lld|%ld|%llx",
        &[L(-1 << 40), L(3), L(-1)],
        "-1099511627776|3|ffffffffffffffff",
    );
    check(
        "%hd|%hhd|%hu|%hhu",
        &[I(70000), I(300), I(-1), I(-1)],
        "4464|44|65535|255",
    );
    check("%zu|%jd|%td", &[L(1), L(-2), L(3)], "1|-2|3");
}

#[test]
fn floats() {
    check(
        "%f|%.2f|%.0f|%#.0f",
        &[F(1.5), F(-2.675), F(2.5), F(3.0)],
        "1.500000|-2.67|2|3.",
    );
    check(
        "%10.3f|%-10.3f|%010.3f",
        &[F(4.14159), F(4.14159), F(-4.14159)],
        "     4.142|4.142     |-00004.142",
    );
    check(
        "%e|%.0e|%E|%.3e",
        &[F(12345.678), F(5e-7), F(1e100), F(0.0)],
        "1.234568e+04|5e-07|1.000000E+100|0.000e+00",
    );
    check(
        "%g|%g|%g|%g",
        &[F(0.0001), F(0.00001), F(123456.0), F(1234567.0)],
        "0.0001|1e-05|123456|1.23457e+06",
    );
    check(
        "%.3g|%#g|%G|%g",
        &[F(999.9), F(1.0), F(1e-10), F(0.0)],
        "1e+03|1.00000|1E-10|0",
    );
    check(
        "%a|%a|%a|%A",
        &[F(1.0), F(0.0), F(-3.5), F(255.5)],
        "0x1p+0|0x0p+0|-0x1.cp+1|0X1.FFP+7",
    );
    check(
        "%.1a|%.0a|%.0a|%.15a",
        &[F(1.96875), F(1.5), F(2.5), F(1.0)],
        "0x2.0p+0|0x2p+0|0x1p+1|0x1.000000000000000p+0",
    );
    check(
        "%a|%20a|%020a",
        &[F(5e-324), F(1.0), F(-1.0)],
        "0x0.0000000000001p-1022|              0x1p+0|-0x00000000000001p+0",
    );
    check(
        "%f|%5F|%05f|%e",
        &[
            F(f64::INFINITY),
            F(f64::INFINITY),
            F(f64::NEG_INFINITY),
            F(f64::NAN),
        ],
        "inf|  INF| -inf|nan",
    );
}

#[test]
fn texts_and_pointers() {
    check(
        "%s|%8s|%-8s|%.3s",
        &[L(1), L(1), L(1), L(1)],
        "string|  string|string  |str",
    );
    check("%s|%.2s", &[L(0), L(0)], "(null)|(n");
    check("%c%c|%3c", &[I(65), I(66), I(67)], "AB|  C");
    check("%p|%p", &[L(0x1000), L(0)], "0x1000|(nil)");
    check(
        "%*d|%-*d|%.*f|%*d",
        &[I(4), I(1), I(4), I(2), I(1), F(0.25), I(-3), I(7)],
        "   1|2   |0.2|7  ",
    );
}

#[test]
fn what_is_no_conversion_stays() {
    check("100%%|%k|%", &[], "100%|%k|%");
    check("%5%|", &[], "%|");
    // The arguments are aligned, each to its size.
    check(
        "%d%f%d%d%lld",
        &[I(1), F(2.0), I(3), I(4), L(5)],
        "12.000000345",
    );
    let many = "%d".repeat(40);
    let values: Vec<Value> = (0..32).map(|_| I(1)).collect();
    check(
        &many,
        &values,
        &format!("{}{}", "1".repeat(32), "%d".repeat(8)),
    );
}

#[test]
fn fields_are_bounded() {
    for format in [
        "%99999999999d",
        "%.99999999999d",
        "%.4000000000f",
        "%4000000000.1s",
    ] {
        let (text, _) = printed(format, &[L(1)]);
        assert_eq!(text.len(), TEXT_BYTES_MAX, "{format}");
    }
    let (text, _) = printed("%*d", &[I(i32::MIN), I(1)]);
    assert_eq!(text.len(), TEXT_BYTES_MAX);
    let (text, taken) = printed(&"%4096d".repeat(9), &[const { I(1) }; 9]);
    assert_eq!((text.len(), taken), (TEXT_BYTES_MAX, 2));
}
