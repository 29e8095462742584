//! Operands (PTX ISA, "Instruction Operands").

use super::ast::{Immediate, Operand};
use super::cursor::Cursor;
use super::error::Result;
use super::expressions;
use super::lexer::TokenKind;
use super::number::Value;

/// Reads one operand of an instruction that is not a call.
pub(super) fn operand(cursor: &mut Cursor<'_>) -> Result<Operand> {
    let token = *cursor.peek();
    cursor.charge::<Operand>(token.text)?;
    if token.kind == TokenKind::Symbol {
        match token.text {
            "[" => return memory(cursor),
            "{" => return vector(cursor),
            "!" => return negated(cursor),
            _ => {}
        }
    }
    if expressions::begins(&token) {
        return constant(cursor);
    }
    if token.kind != TokenKind::Word {
        return Err(cursor.expected("an operand"));
    }
    let first = named(cursor)?;
    if !cursor.eat("|")? {
        return Ok(first);
    }
    let second = named(cursor)?;
    Ok(Operand::Pair(Box::new(first), Box::new(second)))
}

/// Reads one operand of a call, in which `(a, b)` is a list, not an expression.
pub(super) fn call_operand(cursor: &mut Cursor<'_>) -> Result<Operand> {
    if !cursor.eat("(")? {
        return operand(cursor);
    }
    list_until(cursor, ")").map(Operand::List)
}

/// Operands between commas up to `close`, which is taken too. None at all are allowed.
fn list_until(cursor: &mut Cursor<'_>, close: &str) -> Result<Vec<Operand>> {
    if cursor.eat(close)? {
        return Ok(Vec::new());
    }
    cursor.list(close, "an operand", |cursor| cursor.nested(operand))
}

fn vector(cursor: &mut Cursor<'_>) -> Result<Operand> {
    cursor.take()?;
    list_until(cursor, "}").map(Operand::Vector)
}

/// `!p`, or a constant with a logical not.
fn negated(cursor: &mut Cursor<'_>) -> Result<Operand> {
    cursor.take()?;
    if cursor.peek().kind == TokenKind::Word {
        return Ok(Operand::Not(name(cursor, "a predicate after `!`")?));
    }
    match expressions::unary(cursor)?.bits() {
        Some(bits) => Ok(Operand::Immediate(Immediate::Integer((bits == 0).into()))),
        None => Err(cursor.error("`!` takes predicates and integers only")),
    }
}

fn constant(cursor: &mut Cursor<'_>) -> Result<Operand> {
    let value = expressions::expression(cursor)?;
    Ok(Operand::Immediate(value.immediate()))
}

/// Reads a name with its parts, such as `%tid.x` or `%v.y`.
pub(super) fn name(cursor: &mut Cursor<'_>, what: &str) -> Result<String> {
    let mut name = cursor.word(what)?.to_owned();
    while cursor.peek().kind == TokenKind::Dotted {
        name.push('.');
        name.push_str(cursor.take()?.text);
    }
    Ok(name)
}

/// `_`, `name`, `name[i]`, `name+8`.
fn named(cursor: &mut Cursor<'_>) -> Result<Operand> {
    let name = name(cursor, "a name")?;
    if name == "_" {
        return Ok(Operand::Sink);
    }
    match offset_after(cursor, &name)? {
        None => Ok(Operand::Name(name)),
        Some(offset) => Ok(Operand::NameOffset { name, offset }),
    }
}

/// Bytes that `[i]` and `+8` add to `name`; `None` if neither is there. An index counts elements.
fn offset_after(cursor: &mut Cursor<'_>, name: &str) -> Result<Option<i64>> {
    let mut offset = None;
    if cursor.eat("[")? {
        if !expressions::begins(cursor.peek()) {
            return Err(cursor.error(format!(
                "the index of `{}` must be a constant: compute the address in a register",
                super::error::shorten(name)
            )));
        }
        let index = integer(cursor)?;
        cursor.expect("]", "after the index")?;
        let bytes = i64::from(cursor.element_bytes(name));
        offset = Some(index.wrapping_mul(bytes));
    }
    terms(cursor, offset)
}

/// Reads `+8`, `-4` and the like, and returns their sum with `offset`; `None` if `offset` is `None`
/// and no term follows.
pub(super) fn terms(cursor: &mut Cursor<'_>, mut offset: Option<i64>) -> Result<Option<i64>> {
    while cursor.peek().is_symbol("+") || cursor.peek().is_symbol("-") {
        let more = term(cursor)?;
        offset = Some(offset.unwrap_or(0).wrapping_add(more));
    }
    Ok(offset)
}

/// `+ 8`, `- 8`, `+ -8`, `+ 4*2`.
fn term(cursor: &mut Cursor<'_>) -> Result<i64> {
    let negative = cursor.take()?.is_symbol("-");
    let mut value = operand_integer(cursor)?;
    while cursor.eat("*")? {
        value = value.wrapping_mul(operand_integer(cursor)?);
    }
    Ok(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

fn operand_integer(cursor: &mut Cursor<'_>) -> Result<i64> {
    let value = expressions::unary(cursor)?;
    as_offset(cursor, value)
}

/// Offsets are 64-bit two's complement however they are written.
fn as_offset(cursor: &Cursor<'_>, value: Value) -> Result<i64> {
    let bits = value.bits().map(u64::cast_signed);
    bits.ok_or_else(|| cursor.error("an offset must be an integer"))
}

fn integer(cursor: &mut Cursor<'_>) -> Result<i64> {
    let value = expressions::expression(cursor)?;
    as_offset(cursor, value)
}

/// `[base+offset]`, `[0x10]`; texture-like `[a, {b, c}]` becomes a list with the address first.
fn memory(cursor: &mut Cursor<'_>) -> Result<Operand> {
    cursor.take()?;
    let address = if expressions::begins(cursor.peek()) {
        Operand::Memory {
            base: None,
            offset: integer(cursor)?,
        }
    } else {
        let base = name(cursor, "a register, a variable or an address after `[`")?;
        let offset = offset_after(cursor, &base)?.unwrap_or(0);
        Operand::Memory {
            base: Some(base),
            offset,
        }
    };
    if cursor.eat(",")? {
        let mut items = vec![address];
        items.append(&mut list_until(cursor, "]")?);
        return Ok(Operand::List(items));
    }
    cursor.expect("]", "after the address")?;
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::super::ast::Immediate;
    use super::*;

    fn read(text: &str) -> Result<Operand> {
        operand(&mut Cursor::new(text, 1 << 20).expect("tokens"))
    }

    fn at(base: &str, offset: i64) -> Operand {
        Operand::Memory {
            base: Some(base.to_owned()),
            offset,
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(read("[%rd1]"), Ok(at("%rd1", 0)));
        assert_eq!(read("[%rd1+-8]"), Ok(at("%rd1", -8)));
        assert_eq!(read("[%rd1-8]"), Ok(at("%rd1", -8)));
        assert!(read("[sym+(1<<4)|3]").is_err());
        assert_eq!(read("[sym+(1<<4)+4*2]"), Ok(at("sym", 24)));
        assert_eq!(read("[local0[4]+4]"), Ok(at("local0", 8)));
        let absolute = Operand::Memory {
            base: None,
            offset: 16,
        };
        assert_eq!(read("[0x10]"), Ok(absolute));
        assert_eq!(
            read("[tex, {%f1}]"),
            Ok(Operand::List(vec![
                at("tex", 0),
                Operand::Vector(vec![Operand::Name("%f1".into())])
            ]))
        );
    }

    #[test]
    fn names_and_pairs() {
        assert_eq!(read("%tid.x"), Ok(Operand::Name("%tid.x".into())));
        assert_eq!(read("_"), Ok(Operand::Sink));
        assert_eq!(read("!%p1"), Ok(Operand::Not("%p1".into())));
        assert_eq!(
            read("%p|_"),
            Ok(Operand::Pair(
                Box::new(Operand::Name("%p".into())),
                Box::new(Operand::Sink)
            ))
        );
        assert_eq!(
            read("x+8"),
            Ok(Operand::NameOffset {
                name: "x".into(),
                offset: 8
            })
        );
    }

    #[test]
    fn constants() {
        let integer = |value| Ok(Operand::Immediate(Immediate::Integer(value)));
        assert_eq!(read("-1"), integer(-1));
        assert_eq!(read("(1<<4)|3"), integer(19));
        assert_eq!(read("!0"), integer(1));
        assert_eq!(read("WARP_SZ"), integer(32));
    }

    #[test]
    fn an_index_counts_elements() {
        let mut cursor = Cursor::new("table[3]", 1 << 20).expect("tokens");
        cursor.declare("table", 8);
        assert_eq!(
            operand(&mut cursor),
            Ok(Operand::NameOffset {
                name: "table".into(),
                offset: 24
            })
        );
        let error = read("table[%r1]").expect_err("not a constant");
        assert!(error.reason.contains("`table`"), "{error}");
    }
}
