//! Bodies of functions: declarations, labels and instructions.

use super::ast::{Guard, Instruction, Linkage, StateSpace, Statement};
use super::cursor::Cursor;
use super::error::{ParseError, Result, shorten};
use super::lexer::{Token, TokenKind};
use super::{module, operands, variables};

/// `{ … }`, both braces taken.
pub(super) fn block(cursor: &mut Cursor<'_>) -> Result<Vec<Statement>> {
    let open = *cursor.peek();
    cursor.nested(|cursor| {
        cursor.take()?;
        cursor.enter_scope();
        let mut body = Vec::new();
        while !cursor.eat("}")? {
            if cursor.peek().kind == TokenKind::End {
                let reason = "this `{` has no matching `}`: is the text cut off?";
                return Err(ParseError::at(&open, reason));
            }
            statement(cursor, &mut body)?;
        }
        cursor.leave_scope();
        Ok(body)
    })
}

fn statement(cursor: &mut Cursor<'_>, body: &mut Vec<Statement>) -> Result {
    let token = *cursor.peek();
    cursor.charge::<Statement>(token.text)?;
    match token.kind {
        TokenKind::Dotted => directive(cursor, body),
        TokenKind::Word => {
            cursor.take()?;
            if cursor.eat(":")? {
                return labelled(cursor, &token, body);
            }
            body.push(Statement::Instruction(instruction(cursor, None, &token)?));
            Ok(())
        }
        TokenKind::Symbol if token.text == "@" => {
            let guard = guard(cursor)?;
            let mnemonic = *cursor.peek();
            cursor.word("an instruction after the predicate")?;
            let guarded = instruction(cursor, Some(guard), &mnemonic)?;
            body.push(Statement::Instruction(guarded));
            Ok(())
        }
        TokenKind::Symbol if token.text == "{" => {
            body.push(Statement::Block(block(cursor)?));
            Ok(())
        }
        // An empty statement.
        TokenKind::Symbol if token.text == ";" => cursor.take().map(|_| ()),
        _ => Err(cursor.expected("an instruction, a label or a directive")),
    }
}

fn directive(cursor: &mut Cursor<'_>, body: &mut Vec<Statement>) -> Result {
    match cursor.peek().text {
        "reg" => {
            cursor.take()?;
            let declared = variables::registers(cursor)?;
            body.extend(declared.into_iter().map(Statement::Registers));
            Ok(())
        }
        "loc" => location(cursor),
        "pragma" => module::pragma(cursor),
        _ => {
            // Dynamic shared memory may be declared where it is used.
            let linkage = match cursor.eat_dotted("extern")? {
                true => Linkage::Extern,
                false => Linkage::Static,
            };
            let Some(space) = StateSpace::from_modifier(cursor.peek().text) else {
                return Err(cursor.unknown_directive("in a function"));
            };
            cursor.take()?;
            let declared = variables::variables(cursor, space, linkage)?;
            body.extend(declared.into_iter().map(Statement::Variable));
            Ok(())
        }
    }
}

/// `.loc 1 20 5, function_name $L__info_string0, inlined_at 1 30 2`: debug information, skipped.
fn location(cursor: &mut Cursor<'_>) -> Result {
    cursor.take()?;
    let triple = |cursor: &mut Cursor<'_>| {
        for what in ["a file number", "a line number", "a column number"] {
            cursor.number_u32(what)?;
        }
        Ok::<(), ParseError>(())
    };
    triple(cursor)?;
    while cursor.eat(",")? {
        match cursor.word("`function_name` or `inlined_at`")? {
            "function_name" => {
                operands::operand(cursor)?;
            }
            "inlined_at" => triple(cursor)?,
            other => {
                let shown = shorten(other);
                return Err(cursor.error(format!("`{shown}` is not known in `.loc`")));
            }
        }
    }
    Ok(())
}

/// What follows `name:`; tables of labels and prototypes are statements, everything else stands on
/// its own.
fn labelled(cursor: &mut Cursor<'_>, label: &Token<'_>, body: &mut Vec<Statement>) -> Result {
    let name = label.text.to_owned();
    let line = label.line;
    if cursor.eat_dotted("branchtargets")? {
        let labels = names(cursor)?;
        body.push(Statement::BranchTargets { name, labels, line });
    } else if cursor.eat_dotted("calltargets")? {
        // Like a prototype, it says which functions an indirect call may reach.
        names(cursor)?;
        body.push(Statement::CallPrototype { name, line });
    } else if cursor.eat_dotted("callprototype")? {
        prototype(cursor)?;
        body.push(Statement::CallPrototype { name, line });
    } else {
        body.push(Statement::Label { name, line });
    }
    Ok(())
}

fn names(cursor: &mut Cursor<'_>) -> Result<Vec<String>> {
    cursor.list(";", "a name", |cursor| {
        cursor.charge::<String>(cursor.peek().text)?;
        Ok(cursor.word("a label or function")?.to_owned())
    })
}

/// `(.param .b32 _) _ (.param .b64 _);` with directives such as `.noreturn` before the end.
fn prototype(cursor: &mut Cursor<'_>) -> Result {
    while !cursor.eat(";")? {
        let token = *cursor.peek();
        match token.kind {
            TokenKind::Symbol if token.text == "(" => cursor.skip_enclosed("(", ")")?,
            TokenKind::Word | TokenKind::Dotted | TokenKind::Number => {
                cursor.take()?;
            }
            _ => return Err(cursor.expected("`;` after the prototype")),
        }
    }
    Ok(())
}

/// `@p` or `@!p`.
fn guard(cursor: &mut Cursor<'_>) -> Result<Guard> {
    cursor.take()?;
    let negated = cursor.eat("!")?;
    let register = operands::name(cursor, "a predicate after `@`")?;
    Ok(Guard { negated, register })
}

/// Modifiers and operands up to the `;`; the mnemonic has been taken.
fn instruction(
    cursor: &mut Cursor<'_>,
    guard: Option<Guard>,
    mnemonic: &Token<'_>,
) -> Result<Instruction> {
    let mut modifiers = Vec::new();
    while cursor.peek().kind == TokenKind::Dotted {
        cursor.charge::<String>(cursor.peek().text)?;
        modifiers.push(cursor.take()?.text.to_owned());
    }
    let read = if mnemonic.text == "call" {
        operands::call_operand
    } else {
        operands::operand
    };
    let operands = if cursor.eat(";")? {
        Vec::new()
    } else {
        cursor.list(";", "an operand", read)?
    };
    Ok(Instruction {
        guard,
        opcode: mnemonic.text.to_owned(),
        modifiers,
        operands,
        line: mnemonic.line,
    })
}
