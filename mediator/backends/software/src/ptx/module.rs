//! Directives at module scope (PTX ISA, "Directives").

use super::ast::{Function, Linkage, Module, Parameter, StateSpace};
use super::cursor::Cursor;
use super::error::{ParseError, Result};
use super::lexer::TokenKind;
use super::{statements, variables};

/// Reads a whole module, whose tree takes from `tree_bytes_left`.
pub(super) fn module(text: &str, tree_bytes_left: &mut usize) -> Result<Module> {
    let mut cursor = Cursor::new(text, *tree_bytes_left)?;
    let mut module = Module::default();
    header(&mut cursor, &mut module)?;
    while cursor.peek().kind != TokenKind::End {
        item(&mut cursor, &mut module)?;
    }
    *tree_bytes_left = cursor.tree_bytes_left();
    Ok(module)
}

/// `.version` and `.target`, which every module begins with.
fn header(cursor: &mut Cursor<'_>, module: &mut Module) -> Result {
    if !cursor.eat_dotted("version")? {
        return Err(cursor.expected("`.version`, which begins every PTX module"));
    }
    module.version = version(cursor)?;
    if !cursor.eat_dotted("target")? {
        return Err(cursor.expected("`.target` after `.version`"));
    }
    module.target = cursor.word("a target such as `sm_70`")?.to_owned();
    while cursor.eat(",")? {
        cursor.word("a target or option after `,`")?;
    }
    Ok(())
}

fn version(cursor: &mut Cursor<'_>) -> Result<(u8, u8)> {
    let parts = cursor.peek().text.split_once('.');
    let parsed = parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match parsed {
        Some(version) if cursor.peek().kind == TokenKind::Number => {
            cursor.take()?;
            Ok(version)
        }
        _ => Err(cursor.expected("a version such as `8.0`")),
    }
}

fn item(cursor: &mut Cursor<'_>, module: &mut Module) -> Result {
    let token = *cursor.peek();
    if token.kind != TokenKind::Dotted {
        return Err(cursor.expected("a directive such as `.visible` or `.entry`"));
    }
    match token.text {
        "address_size" => address_size(cursor),
        "file" => file(cursor),
        "section" => section(cursor),
        "pragma" => pragma(cursor),
        "alias" => Err(cursor.error("`.alias` is not supported: call the aliased function itself")),
        "version" | "target" => {
            Err(cursor.error(format!("a second `.{}` in one module", token.text)))
        }
        _ => declaration(cursor, module),
    }
}

fn address_size(cursor: &mut Cursor<'_>) -> Result {
    cursor.take()?;
    let token = *cursor.peek();
    match cursor.number_u32("an address size in bits")? {
        64 => Ok(()),
        bits => Err(ParseError::at(
            &token,
            format!("addresses of {bits} bits are not supported: compile for 64"),
        )),
    }
}

/// `.file 1 "name.cu"`, perhaps with a time and a size.
fn file(cursor: &mut Cursor<'_>) -> Result {
    cursor.take()?;
    cursor.number_u32("a file number")?;
    cursor.string("a file name in quotes")?;
    while cursor.eat(",")? {
        cursor.kind(TokenKind::Number, "a number after `,`")?;
    }
    Ok(())
}

/// Debug information: skipped.
fn section(cursor: &mut Cursor<'_>) -> Result {
    cursor.take()?;
    match cursor.peek().kind {
        TokenKind::Dotted | TokenKind::Word => cursor.take()?,
        _ => return Err(cursor.expected("the name of a section")),
    };
    cursor.skip_enclosed("{", "}")
}

/// `.pragma "…", "…";`: hints, which mean nothing here.
pub(super) fn pragma(cursor: &mut Cursor<'_>) -> Result {
    cursor.take()?;
    cursor.string("a string after `.pragma`")?;
    while cursor.eat(",")? {
        cursor.string("a string after `,`")?;
    }
    cursor.expect(";", "after `.pragma`")
}

/// Linkage, then a variable, a kernel or a device function.
fn declaration(cursor: &mut Cursor<'_>, module: &mut Module) -> Result {
    let mut linkage = Linkage::Static;
    loop {
        let token = *cursor.peek();
        match token.text {
            _ if token.kind != TokenKind::Dotted => {
                return Err(cursor.expected("a state space, `.entry` or `.func`"));
            }
            "entry" | "func" => {
                module.functions.push(function(cursor, linkage)?);
                return Ok(());
            }
            name => {
                if let Some(named) = Linkage::from_modifier(name) {
                    linkage = named;
                    cursor.take()?;
                    continue;
                }
                let Some(space) = StateSpace::from_modifier(name) else {
                    return Err(cursor.unknown_directive("at module scope"));
                };
                cursor.take()?;
                let declared = variables::variables(cursor, space, linkage)?;
                module.variables.extend(declared);
                return Ok(());
            }
        }
    }
}

/// From `.entry` or `.func` to the end of the body, or to the `;` of a declaration.
fn function(cursor: &mut Cursor<'_>, linkage: Linkage) -> Result<Function> {
    let line = cursor.line();
    cursor.charge::<Function>(cursor.peek().text)?;
    let kernel = cursor.take()?.text == "entry";
    cursor.enter_scope();
    while cursor.eat_dotted("attribute")? {
        cursor.skip_enclosed("(", ")")?;
    }
    let results = if !kernel && cursor.peek().is_symbol("(") {
        parameters(cursor)?
    } else {
        Vec::new()
    };
    let name = cursor.word("the name of the function")?.to_owned();
    let mut function = Function {
        name,
        kernel,
        linkage,
        parameters: Vec::new(),
        results,
        max_threads: None,
        required_threads: None,
        required_cluster: None,
        body: None,
        line,
    };
    if cursor.peek().is_symbol("(") {
        function.parameters = parameters(cursor)?;
    }
    tuning(cursor, &mut function)?;
    if !cursor.eat(";")? {
        if linkage == Linkage::Extern {
            return Err(cursor.expected("`;` after an `.extern` function"));
        }
        if !cursor.peek().is_symbol("{") {
            return Err(cursor.expected("`{` or `;` after the head of a function"));
        }
        function.body = Some(statements::block(cursor)?);
    }
    cursor.leave_scope();
    Ok(function)
}

/// `(.param .u64 a, .reg .f32 b)`.
fn parameters(cursor: &mut Cursor<'_>) -> Result<Vec<Parameter>> {
    cursor.take()?;
    if cursor.eat(")")? {
        return Ok(Vec::new());
    }
    cursor.list(")", "a parameter", |cursor| {
        if cursor.eat_dotted("param")? {
            Ok(Parameter::Variable(variables::parameter(cursor)?))
        } else if cursor.eat_dotted("reg")? {
            Ok(Parameter::Register(variables::register_parameter(cursor)?))
        } else {
            Err(cursor.expected("`.param` or `.reg`"))
        }
    })
}

/// Directives between head and body (PTX ISA, "Performance-Tuning Directives").
fn tuning(cursor: &mut Cursor<'_>, function: &mut Function) -> Result {
    loop {
        let token = *cursor.peek();
        if token.kind != TokenKind::Dotted {
            return Ok(());
        }
        match token.text {
            "maxntid" => function.max_threads = Some(dimensions(cursor)?),
            "reqntid" => function.required_threads = Some(dimensions(cursor)?),
            "reqnctapercluster" => {
                let cluster = dimensions(cursor)?;
                if cluster.contains(&0) {
                    return Err(cursor.error("a cluster has at least one block"));
                }
                function.required_cluster = Some(cluster);
            }
            "minnctapersm"
            | "maxnctapersm"
            | "maxnreg"
            | "maxclusterrank"
            | "abi_preserve"
            | "abi_preserve_control" => {
                cursor.take()?;
                cursor.number_u32("a number")?;
            }
            "noreturn" | "explicitcluster" | "blocksareclusters" => {
                cursor.take()?;
            }
            "pragma" => pragma(cursor)?,
            _ => return Err(cursor.unknown_directive("before the body of a function")),
        }
    }
}

/// One to three numbers; missing ones are 1.
fn dimensions(cursor: &mut Cursor<'_>) -> Result<[u32; 3]> {
    cursor.take()?;
    let mut dimensions = [cursor.number_u32("a number of threads or blocks")?, 1, 1];
    for dimension in &mut dimensions[1..] {
        if !cursor.eat(",")? {
            break;
        }
        *dimension = cursor.number_u32("a number of threads or blocks")?;
    }
    Ok(dimensions)
}
