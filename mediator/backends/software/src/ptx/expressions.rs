//! Constant expressions (PTX ISA, "Constant Expressions"), folded while they are read.

use super::ast::{Immediate, ScalarType};
use super::cursor::Cursor;
use super::error::{ParseError, Result};
use super::lexer::{Token, TokenKind};
use super::number::{self, Value};

/// What `WARP_SZ` stands for.
const WARP_THREADS: i64 = 32;

/// Reads an expression, which may contain `?:`.
pub(super) fn expression(cursor: &mut Cursor<'_>) -> Result<Value> {
    cursor.nested(|cursor| {
        let condition = binary(cursor, 0)?;
        let question = *cursor.peek();
        if !cursor.eat("?")? {
            return Ok(condition);
        }
        let chosen = integer(&question, condition)? != 0;
        let yes = expression(cursor)?;
        cursor.expect(":", "between the two values of `?`")?;
        let no = expression(cursor)?;
        Ok(if chosen { yes } else { no })
    })
}

/// Reads a literal with its sign, a cast, or an expression in parentheses: what may be an operand.
pub(super) fn unary(cursor: &mut Cursor<'_>) -> Result<Value> {
    cursor.nested(|cursor| {
        let operator = *cursor.peek();
        if operator.kind != TokenKind::Symbol {
            return primary(cursor);
        }
        match operator.text {
            "(" => parenthesized(cursor),
            "+" | "-" | "~" | "!" => {
                cursor.take()?;
                let value = unary(cursor)?;
                apply_unary(&operator, value)
            }
            _ => primary(cursor),
        }
    })
}

/// Returns whether `token` begins a constant.
pub(super) fn begins(token: &Token<'_>) -> bool {
    match token.kind {
        TokenKind::Number => true,
        TokenKind::Symbol => matches!(token.text, "(" | "+" | "-" | "~" | "!"),
        TokenKind::Word => token.text == "WARP_SZ",
        _ => false,
    }
}

fn primary(cursor: &mut Cursor<'_>) -> Result<Value> {
    let token = *cursor.peek();
    let value = match token.kind {
        TokenKind::Number => number::literal(&token)?,
        TokenKind::Word if token.text == "WARP_SZ" => Value::signed(WARP_THREADS),
        _ => return Err(cursor.expected("a number")),
    };
    cursor.take()?;
    Ok(value)
}

/// `(expression)` or `(.u64) operand`.
fn parenthesized(cursor: &mut Cursor<'_>) -> Result<Value> {
    cursor.take()?;
    let token = *cursor.peek();
    if token.kind != TokenKind::Dotted {
        let value = expression(cursor)?;
        cursor.expect(")", "at the end of the expression")?;
        return Ok(value);
    }
    let target = cursor.scalar_type()?;
    cursor.expect(")", "after the type of the cast")?;
    let value = unary(cursor)?;
    if !matches!(target, ScalarType::S64 | ScalarType::U64) {
        let reason = "constants can be cast to `.s64` and `.u64` only";
        return Err(ParseError::at(&token, reason));
    }
    Ok(Value::Integer {
        bits: integer(&token, value)?,
        signed: target == ScalarType::S64,
    })
}

fn apply_unary(operator: &Token<'_>, value: Value) -> Result<Value> {
    match (operator.text, value) {
        ("+", value) => Ok(value),
        ("-", Value::Float(float)) => Ok(Value::Float(negate(float))),
        ("!", value) => Ok(Value::signed((integer(operator, value)? == 0).into())),
        (symbol, Value::Integer { bits, signed }) => {
            let bits = if symbol == "-" {
                bits.wrapping_neg()
            } else {
                !bits
            };
            Ok(Value::Integer { bits, signed })
        }
        _ => Err(no_float(operator)),
    }
}

fn negate(float: Immediate) -> Immediate {
    match float {
        Immediate::F32(bits) => Immediate::F32(bits ^ (1 << 31)),
        Immediate::F64(bits) => Immediate::F64(bits ^ (1 << 63)),
        Immediate::Integer(value) => Immediate::Integer(value.wrapping_neg()),
    }
}

/// The bits of an integer; a floating-point number is refused.
fn integer(at: &Token<'_>, value: Value) -> Result<u64> {
    value.bits().ok_or_else(|| no_float(at))
}

fn no_float(at: &Token<'_>) -> ParseError {
    ParseError::at(at, "operators other than a sign need integer constants")
}

/// How tightly a binary operator binds, loosest first; the order is C's.
fn precedence(token: &Token<'_>) -> Option<u8> {
    if token.kind != TokenKind::Symbol {
        return None;
    }
    Some(match token.text {
        "||" => 1,
        "&&" => 2,
        "|" => 3,
        "^" => 4,
        "&" => 5,
        "==" | "!=" => 6,
        "<" | "<=" | ">" | ">=" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        "*" | "/" | "%" => 10,
        _ => return None,
    })
}

/// Operators that bind tighter than `floor`, by climbing: the recursion is as deep as there are
/// precedences.
fn binary(cursor: &mut Cursor<'_>, floor: u8) -> Result<Value> {
    let mut left = unary(cursor)?;
    loop {
        let operator = *cursor.peek();
        let Some(level) = precedence(&operator).filter(|&level| level > floor) else {
            return Ok(left);
        };
        cursor.take()?;
        let right = binary(cursor, level)?;
        left = apply_binary(&operator, left, right)?;
    }
}

/// Folds an operator of two integers. Comparisons and connectives yield a signed truth value,
/// whatever they compare; other results are signed if both operands are.
fn apply_binary(operator: &Token<'_>, left: Value, right: Value) -> Result<Value> {
    let (a, b) = (integer(operator, left)?, integer(operator, right)?);
    let is_signed = |value| matches!(value, Value::Integer { signed: true, .. });
    let signed = is_signed(left) && is_signed(right);
    let (signed_a, signed_b) = (a.cast_signed(), b.cast_signed());
    let order = if signed {
        signed_a.cmp(&signed_b)
    } else {
        a.cmp(&b)
    };
    let truth = |holds: bool| Ok(Value::signed(holds.into()));
    let bits = match operator.text {
        "<<" | ">>" => return Ok(shift(operator.text, a, is_signed(left), b)),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" | "%" if b == 0 => {
            return Err(ParseError::at(operator, "this expression divides by zero"));
        }
        "/" if signed => signed_a.wrapping_div(signed_b).cast_unsigned(),
        "%" if signed => signed_a.wrapping_rem(signed_b).cast_unsigned(),
        "/" => a / b,
        "%" => a % b,
        "&" => a & b,
        "|" => a | b,
        "^" => a ^ b,
        "&&" => return truth(a != 0 && b != 0),
        "||" => return truth(a != 0 || b != 0),
        "==" => return truth(a == b),
        "!=" => return truth(a != b),
        "<" => return truth(order.is_lt()),
        "<=" => return truth(order.is_le()),
        ">" => return truth(order.is_gt()),
        _ => return truth(order.is_ge()),
    };
    Ok(Value::Integer { bits, signed })
}

/// Distances of 64 and more shift everything out; C leaves them undefined.
fn shift(operator: &str, left: u64, signed: bool, distance: u64) -> Value {
    let distance = u32::try_from(distance).unwrap_or(u32::MAX);
    let bits = match operator {
        "<<" => left.checked_shl(distance).unwrap_or(0),
        _ if signed => (left.cast_signed() >> distance.min(63)).cast_unsigned(),
        _ => left.checked_shr(distance).unwrap_or(0),
    };
    Value::Integer { bits, signed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsigned(bits: u64) -> Value {
        let signed = false;
        Value::Integer { bits, signed }
    }

    fn fold(text: &str) -> Result<Value> {
        expression(&mut Cursor::new(text, 1 << 20).expect("tokens"))
    }

    #[test]
    fn precedence_is_that_of_c() {
        let cases = [
            ("(1<<4)|3", 19),
            ("1 + 2 * 3", 7),
            ("10 - 4 - 3", 3),
            ("7 & 3 == 3", 1),
            ("-8 / 3", -2),
            ("-8 % 3", -2),
            ("1 ? 2 : 0 ? 3 : 4", 2),
            ("!5 || ~0 == -1", 1),
            ("WARP_SZ * 4", 128),
            ("-1 >> 70", -1),
            ("1 << 64", 0),
            ("(.s64) 0xffffffffffffffff", -1),
        ];
        for (text, wanted) in cases {
            assert_eq!(fold(text), Ok(Value::signed(wanted)), "{text}");
        }
    }

    #[test]
    fn one_unsigned_side_makes_it_unsigned() {
        assert_eq!(fold("-1 + 0U"), Ok(unsigned(u64::MAX)));
        assert_eq!(fold("-1 < 0U"), Ok(Value::signed(0)));
        assert_eq!(fold("(.u64)-1 >> 63"), Ok(unsigned(1)));
    }

    #[test]
    fn floats_take_a_sign() {
        let wanted = Value::Float(Immediate::F32(0xbf80_0000));
        assert_eq!(fold("-0f3F800000"), Ok(wanted));
        assert!(fold("1.0 + 2.0").is_err());
        assert!(fold("~1.0").is_err());
    }

    #[test]
    fn faults_are_errors() {
        assert!(fold("1 / 0").expect_err("zero").reason.contains("zero"));
        assert!(fold("1U % (3 - 3)").is_err());
        assert!(fold(&"(".repeat(100_000)).is_err());
        assert!(fold(&"-".repeat(100_000)).is_err());
        let chain = format!("{}1", "1+".repeat(10_000));
        assert_eq!(fold(&chain), Ok(Value::signed(10_001)));
        assert_eq!(
            fold("(-9223372036854775807 - 1) / -1"),
            Ok(Value::signed(i64::MIN))
        );
    }
}
