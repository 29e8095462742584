//! Variables, parameters and registers (PTX ISA, "State Spaces, Types, and Variables").

use super::ast::{
    Immediate, Initial, Linkage, Registers, ScalarType, StateSpace, Statement, Variable,
};
use super::cursor::Cursor;
use super::error::{ParseError, Result, shorten};
use super::lexer::TokenKind;
use super::{expressions, operands};

/// Bytes of the largest variable; keeps every size computed from one within 63 bits.
const VARIABLE_BYTES_MAX: u64 = 1 << 48;
/// The largest alignment in bytes.
const ALIGN_MAX: u32 = 1 << 16;

/// What stands before the names of a declaration: `.align 16 .v4 .f32`.
struct Shape {
    align: Option<u32>,
    vector: u8,
    scalar: ScalarType,
}

impl Shape {
    fn element_bytes(&self) -> u32 {
        self.scalar.bytes() * u32::from(self.vector)
    }
}

/// Reads declarations of variables from behind the state space to the `;`, which is taken.
pub(super) fn variables(
    cursor: &mut Cursor<'_>,
    space: StateSpace,
    linkage: Linkage,
) -> Result<Vec<Variable>> {
    let shape = shape(cursor)?;
    cursor.list(";", "a variable", |cursor| {
        let mut variable = declarator(cursor, space, &shape)?;
        variable.linkage = linkage;
        if cursor.eat("=")? {
            initialize(cursor, &shape, &mut variable)?;
        }
        Ok(variable)
    })
}

/// Reads one parameter, from behind `.param`.
pub(super) fn parameter(cursor: &mut Cursor<'_>) -> Result<Variable> {
    let mut shape = shape(cursor)?;
    // `.ptr .global .align 8` describes what the parameter points to, not the parameter.
    if cursor.eat_dotted("ptr")? {
        while StateSpace::from_modifier(cursor.peek().text).is_some()
            && cursor.peek().kind == TokenKind::Dotted
        {
            cursor.take()?;
        }
        if cursor.eat_dotted("align")? {
            cursor.number_u32("the alignment of what the pointer points to")?;
        }
    }
    if cursor.eat_dotted("align")? {
        shape.align = Some(alignment(cursor)?);
    }
    declarator(cursor, StateSpace::Param, &shape)
}

/// Reads declarations of registers from behind `.reg` to the `;`, which is taken.
pub(super) fn registers(cursor: &mut Cursor<'_>) -> Result<Vec<Registers>> {
    let shape = shape(cursor)?;
    cursor.list(";", "a register", |cursor| register_group(cursor, &shape))
}

/// Reads one register parameter, from behind `.reg`.
pub(super) fn register_parameter(cursor: &mut Cursor<'_>) -> Result<Registers> {
    let shape = shape(cursor)?;
    register_group(cursor, &shape)
}

fn register_group(cursor: &mut Cursor<'_>, shape: &Shape) -> Result<Registers> {
    let line = cursor.line();
    cursor.charge::<Statement>(cursor.peek().text)?;
    let name = cursor.word("the name of a register")?.to_owned();
    let count = if cursor.eat("<")? {
        let count = cursor.number_u32("the number of registers")?;
        cursor.expect(">", "after the number of registers")?;
        Some(count)
    } else {
        None
    };
    Ok(Registers {
        scalar: shape.scalar,
        vector: shape.vector,
        name,
        count,
        line,
    })
}

/// Alignment, vector and type in any order that compilers use; the type is last.
fn shape(cursor: &mut Cursor<'_>) -> Result<Shape> {
    let mut align = None;
    let mut vector = 1;
    loop {
        let token = *cursor.peek();
        if token.kind != TokenKind::Dotted {
            break;
        }
        match token.text {
            "align" => {
                cursor.take()?;
                align = Some(alignment(cursor)?);
            }
            "attribute" => {
                cursor.take()?;
                cursor.skip_enclosed("(", ")")?;
            }
            "v2" | "v4" => {
                cursor.take()?;
                vector = if token.text == "v2" { 2 } else { 4 };
            }
            _ => break,
        }
    }
    let scalar = cursor.scalar_type()?;
    Ok(Shape {
        align,
        vector,
        scalar,
    })
}

fn alignment(cursor: &mut Cursor<'_>) -> Result<u32> {
    let token = *cursor.peek();
    let align = cursor.number_u32("an alignment in bytes")?;
    if align.is_power_of_two() && align <= ALIGN_MAX {
        return Ok(align);
    }
    let reason = format!("invalid alignment {align}: a power of two up to {ALIGN_MAX}");
    Err(ParseError::at(&token, reason))
}

/// A name and its dimensions. `[]` as the first dimension makes `elements` 0.
fn declarator(cursor: &mut Cursor<'_>, space: StateSpace, shape: &Shape) -> Result<Variable> {
    let at = *cursor.peek();
    // Counted twice: its size in the parser's own table, too.
    cursor.charge::<[Statement; 2]>(at.text)?;
    let name = cursor.word("the name of a variable")?;
    let mut elements = 1_u64;
    let mut first = true;
    while cursor.eat("[")? {
        if first && cursor.eat("]")? {
            elements = 0;
        } else {
            let length = dimension(cursor)?;
            // A size that is not known yet does not excuse an absurd one behind it.
            elements = elements.saturating_mul(length);
            cursor.expect("]", "after the number of elements")?;
        }
        first = false;
    }
    let bytes = elements.saturating_mul(u64::from(shape.element_bytes()));
    if bytes > VARIABLE_BYTES_MAX {
        let shown = shorten(name);
        let reason = format!("`{shown}` has more than {VARIABLE_BYTES_MAX} bytes");
        return Err(ParseError::at(&at, reason));
    }
    if shape.element_bytes() != 1 {
        cursor.declare(name, shape.element_bytes());
    }
    Ok(Variable {
        space,
        align: shape.align.unwrap_or(shape.element_bytes()),
        scalar: shape.scalar,
        vector: shape.vector,
        name: name.to_owned(),
        elements,
        initial: Vec::new(),
        linkage: Linkage::Static,
        line: at.line,
    })
}

fn dimension(cursor: &mut Cursor<'_>) -> Result<u64> {
    let at = *cursor.peek();
    let value = expressions::expression(cursor)?;
    match value.immediate() {
        Immediate::Integer(length) if length > 0 => Ok(length as u64),
        _ => Err(ParseError::at(
            &at,
            "the number of elements must be a positive integer",
        )),
    }
}

/// What follows `=`: one value, or values in braces.
fn initialize(cursor: &mut Cursor<'_>, shape: &Shape, variable: &mut Variable) -> Result {
    let at = *cursor.peek();
    let external = variable.linkage == Linkage::Extern;
    if matches!(variable.space, StateSpace::Shared | StateSpace::Local) || external {
        return Err(cursor.error("only `.global` and `.const` variables take initial values"));
    }
    let mut values = Vec::new();
    if cursor.peek().is_symbol("{") {
        braced(cursor, &mut values)?;
    } else {
        values.push(initial(cursor)?);
    }
    let per_element = u64::from(shape.vector);
    let given = (values.len() as u64).div_ceil(per_element);
    if variable.elements == 0 {
        variable.elements = given;
    }
    if given > variable.elements {
        let (values, elements) = (values.len(), variable.elements);
        let reason = format!("{values} initial values for {elements} elements");
        return Err(ParseError::at(&at, reason));
    }
    variable.initial = values;
    Ok(())
}

/// `{a, b, {c, d}}`, flattened. Rows must all have one length: a short row would need padding of a
/// size that the text chose, and compilers write every value or leave the rest off.
fn braced(cursor: &mut Cursor<'_>, values: &mut Vec<Initial>) -> Result {
    cursor.nested(|cursor| {
        cursor.take()?;
        let mut row_values = None;
        loop {
            let at = *cursor.peek();
            if cursor.eat("}")? {
                return Ok(());
            }
            let before = values.len();
            if at.is_symbol("{") {
                braced(cursor, values)?;
            } else {
                values.push(initial(cursor)?);
            }
            let row = values.len() - before;
            if *row_values.get_or_insert(row) != row {
                return Err(ParseError::at(
                    &at,
                    "rows of initial values differ in length: write out every value",
                ));
            }
            if !cursor.peek().is_symbol("}") {
                cursor.expect(",", "or `}` after an initial value")?;
            }
        }
    })
}

/// A number, `name`, `name+4` or `generic(name)+4`.
fn initial(cursor: &mut Cursor<'_>) -> Result<Initial> {
    cursor.charge::<Initial>(cursor.peek().text)?;
    if expressions::begins(cursor.peek()) {
        let value = expressions::expression(cursor)?;
        if cursor.peek().is_symbol("(") {
            return Err(cursor.error("masked addresses in initial values are not supported"));
        }
        return Ok(Initial::Number(value.immediate()));
    }
    let mut name = cursor.word("an initial value")?;
    let generic = name == "generic" && cursor.eat("(")?;
    if generic {
        name = cursor.word("a variable after `generic(`")?;
        cursor.expect(")", "after the variable")?;
    }
    let offset = operands::terms(cursor, None)?.unwrap_or(0);
    Ok(Initial::Address {
        name: name.to_owned(),
        offset,
        generic,
    })
}
