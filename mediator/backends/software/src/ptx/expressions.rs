//! Constant expressions (PTX ISA, "Constant Expressions"), folded while they are read.

use super::ast::{Immediate, ScalarType};
use super::cursor::Cursor;
use super::error::{ParseError, Result};
use super::lexer::{Token, TokenKind};
use super::number::{self, Value};

/// What `WARP_SZ` stands for.
const WARP_THREADS: i64 = 32;

/// A whole expression, `?:` included.
pub(super) fn expression(cursor: &mut Cursor<'_>) -> Result<Value> {
    cursor.nested(|cursor| {
        let condition = binary(cursor, 0)?;
        let question = *cursor.peek();
        if !cursor.eat("?")? {
            return Ok(condition);
        }
        let chosen = truth(&question, condition)?;
        let yes = expression(cursor)?;
        cursor.expect(":", "between the two values of `?`")?;
        let no = expression(cursor)?;
        Ok(if chosen { yes } else { no })
    })
}

/// A literal with its sign, a cast, or an expression in parentheses: what may stand as an operand.
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

/// Whether `token` begins a constant.
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
        TokenKind::Word if token.text == "WARP_SZ" => Value::Signed(WARP_THREADS),
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
    match (target, value) {
        (ScalarType::S64, Value::Unsigned(value)) => Ok(Value::Signed(value.cast_signed())),
        (ScalarType::U64, Value::Signed(value)) => Ok(Value::Unsigned(value.cast_unsigned())),
        (ScalarType::S64 | ScalarType::U64, Value::Float(_)) => Err(no_float(&token)),
        (ScalarType::S64 | ScalarType::U64, value) => Ok(value),
        _ => Err(ParseError::at(
            &token,
            "constants can be cast to `.s64` and `.u64` only",
        )),
    }
}

fn apply_unary(operator: &Token<'_>, value: Value) -> Result<Value> {
    Ok(match (operator.text, value) {
        ("+", value) => value,
        ("-", Value::Signed(value)) => Value::Signed(value.wrapping_neg()),
        ("-", Value::Unsigned(value)) => Value::Unsigned(value.wrapping_neg()),
        ("-", Value::Float(float)) => Value::Float(negate(float)),
        ("~", Value::Signed(value)) => Value::Signed(!value),
        ("~", Value::Unsigned(value)) => Value::Unsigned(!value),
        ("!", value) => Value::Signed(i64::from(!truth(operator, value)?)),
        _ => return Err(no_float(operator)),
    })
}

fn negate(float: Immediate) -> Immediate {
    match float {
        Immediate::F32(bits) => Immediate::F32(bits ^ (1 << 31)),
        Immediate::F64(bits) => Immediate::F64(bits ^ (1 << 63)),
        Immediate::Integer(value) => Immediate::Integer(value.wrapping_neg()),
    }
}

fn truth(at: &Token<'_>, value: Value) -> Result<bool> {
    match value {
        Value::Signed(value) => Ok(value != 0),
        Value::Unsigned(value) => Ok(value != 0),
        Value::Float(_) => Err(no_float(at)),
    }
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

fn apply_binary(operator: &Token<'_>, left: Value, right: Value) -> Result<Value> {
    if matches!(operator.text, "<<" | ">>") {
        return shift(operator, left, right);
    }
    match (left, right) {
        (Value::Signed(left), Value::Signed(right)) => signed(operator, left, right),
        (Value::Signed(left), Value::Unsigned(right)) => {
            unsigned(operator, left.cast_unsigned(), right)
        }
        (Value::Unsigned(left), Value::Signed(right)) => {
            unsigned(operator, left, right.cast_unsigned())
        }
        (Value::Unsigned(left), Value::Unsigned(right)) => unsigned(operator, left, right),
        _ => Err(no_float(operator)),
    }
}

/// Distances of 64 and more shift everything out; C leaves them undefined.
fn shift(operator: &Token<'_>, left: Value, right: Value) -> Result<Value> {
    let distance = match right {
        Value::Signed(right) => u32::try_from(right).unwrap_or(u32::MAX),
        Value::Unsigned(right) => u32::try_from(right).unwrap_or(u32::MAX),
        Value::Float(_) => return Err(no_float(operator)),
    };
    Ok(match (left, operator.text) {
        (Value::Signed(left), "<<") => Value::Signed(left.checked_shl(distance).unwrap_or(0)),
        (Value::Signed(left), _) => Value::Signed(left >> distance.min(63)),
        (Value::Unsigned(left), "<<") => Value::Unsigned(left.checked_shl(distance).unwrap_or(0)),
        (Value::Unsigned(left), _) => Value::Unsigned(left.checked_shr(distance).unwrap_or(0)),
        (Value::Float(_), _) => return Err(no_float(operator)),
    })
}

/// Folds an operator of two integers of one type. Comparisons and connectives yield a signed truth
/// value, whatever they compare.
macro_rules! fold {
    ($name:ident, $type:ty, $value:path) => {
        fn $name(operator: &Token<'_>, left: $type, right: $type) -> Result<Value> {
            let truth = |holds: bool| Ok(Value::Signed(i64::from(holds)));
            Ok($value(match operator.text {
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                "*" => left.wrapping_mul(right),
                "/" if right != 0 => left.wrapping_div(right),
                "%" if right != 0 => left.wrapping_rem(right),
                "&" => left & right,
                "|" => left | right,
                "^" => left ^ right,
                "&&" => return truth(left != 0 && right != 0),
                "||" => return truth(left != 0 || right != 0),
                "==" => return truth(left == right),
                "!=" => return truth(left != right),
                "<" => return truth(left < right),
                "<=" => return truth(left <= right),
                ">" => return truth(left > right),
                ">=" => return truth(left >= right),
                _ => return Err(ParseError::at(operator, "this expression divides by zero")),
            }))
        }
    };
}

fold!(signed, i64, Value::Signed);
fold!(unsigned, u64, Value::Unsigned);

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(text: &str) -> Result<Value> {
        expression(&mut Cursor::new(text).expect("tokens"))
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
            assert_eq!(fold(text), Ok(Value::Signed(wanted)), "{text}");
        }
    }

    #[test]
    fn one_unsigned_side_makes_it_unsigned() {
        assert_eq!(fold("-1 + 0U"), Ok(Value::Unsigned(u64::MAX)));
        assert_eq!(fold("-1 < 0U"), Ok(Value::Signed(0)));
        assert_eq!(fold("(.u64)-1 >> 63"), Ok(Value::Unsigned(1)));
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
        assert_eq!(fold(&chain), Ok(Value::Signed(10_001)));
        assert_eq!(
            fold("(-9223372036854775807 - 1) / -1"),
            Ok(Value::Signed(i64::MIN))
        );
    }
}
