//! Literals (PTX ISA, "Constants"): what the characters of a number mean.

use super::ast::Immediate;
use super::error::{ParseError, Result, shorten};
use super::lexer::Token;

/// A value of a constant expression. PTX computes integers in 64 bits, signed unless one side is
/// unsigned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// Its 64 bits, and whether they are two's complement.
    Integer { bits: u64, signed: bool },
    /// Only [`Immediate::F32`] and [`Immediate::F64`].
    Float(Immediate),
}

impl Value {
    /// Returns a signed integer.
    pub fn signed(value: i64) -> Self {
        let bits = value.cast_unsigned();
        Self::Integer { bits, signed: true }
    }

    /// Returns the bits of an integer; `None` for a floating-point number.
    pub fn bits(self) -> Option<u64> {
        match self {
            Self::Integer { bits, .. } => Some(bits),
            Self::Float(_) => None,
        }
    }

    /// Returns the value as it stands in the syntax tree.
    pub fn immediate(self) -> Immediate {
        match self {
            Self::Integer { bits, signed: true } => Immediate::Integer(bits.cast_signed().into()),
            Self::Integer { bits, .. } => Immediate::Integer(bits.into()),
            Self::Float(float) => float,
        }
    }
}

/// Reads the literal in `token`.
pub(super) fn literal(token: &Token<'_>) -> Result<Value> {
    let text = token.text;
    let refuse = |why: &str| {
        let shown = shorten(text);
        Err(ParseError::at(token, format!("`{shown}` {why}")))
    };
    let prefix = text.get(..2).unwrap_or("");
    match prefix {
        "0f" | "0F" => match fixed_hex(&text[2..], 8) {
            Some(bits) => Ok(Value::Float(Immediate::F32(bits as u32))),
            None => refuse("is not an f32: `0f` takes exactly 8 hexadecimal digits"),
        },
        "0d" | "0D" => match fixed_hex(&text[2..], 16) {
            Some(bits) => Ok(Value::Float(Immediate::F64(bits))),
            None => refuse("is not an f64: `0d` takes exactly 16 hexadecimal digits"),
        },
        _ if is_decimal_float(text) => match text.parse::<f64>() {
            Ok(value) => Ok(Value::Float(Immediate::F64(value.to_bits()))),
            Err(_) => refuse("is not a number"),
        },
        _ => match integer(text) {
            Some(value) => Ok(value),
            None => refuse("is not an integer of at most 64 bits"),
        },
    }
}

/// `0x`, `0b`, octal after `0`, or decimal; `U` at the end makes it unsigned.
fn integer(text: &str) -> Option<Value> {
    let (digits, unsigned) = match text.strip_suffix('U') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // `from_str_radix` would take a sign; a literal has none.
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let bits = u64::from_str_radix(digits, radix).ok()?;
    let signed = !unsigned && bits.cast_signed() >= 0;
    Some(Value::Integer { bits, signed })
}

fn is_decimal_float(text: &str) -> bool {
    let prefixed = matches!(text.get(..2), Some("0x" | "0X" | "0b" | "0B"));
    !prefixed && text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
}

fn fixed_hex(digits: &str, count: usize) -> Option<u64> {
    let all = digits.len() == count && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    all.then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::super::lexer::Lexer;
    use super::*;

    fn unsigned(bits: u64) -> Value {
        let signed = false;
        Value::Integer { bits, signed }
    }

    fn read(text: &str) -> Result<Value> {
        literal(&Lexer::new(text).next().expect("one token"))
    }

    #[test]
    fn every_notation_is_read() {
        let cases = [
            ("0", Value::signed(0)),
            ("42", Value::signed(42)),
            ("9U", unsigned(9)),
            ("0x7fffffffffffffff", Value::signed(i64::MAX)),
            ("0X8000000000000000", unsigned(1 << 63)),
            ("0b1011", Value::signed(11)),
            ("017U", unsigned(15)),
            ("0f3F800000", Value::Float(Immediate::F32(0x3f80_0000))),
            (
                "0d3FF0000000000000",
                Value::Float(Immediate::F64(1.0f64.to_bits())),
            ),
            ("1.5e-3", Value::Float(Immediate::F64(1.5e-3f64.to_bits()))),
        ];
        for (text, wanted) in cases {
            assert_eq!(read(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn malformed_numbers_are_named() {
        for text in [
            "0x10000000000000000",
            "99999999999999999999",
            "08",
            "0b2",
            "0f3F8000",
            "0d3FF",
            "12abc",
            "0x",
            "1.5x",
        ] {
            let error = read(text).expect_err(text);
            assert!(error.reason.contains(text), "{error}");
        }
    }
}
