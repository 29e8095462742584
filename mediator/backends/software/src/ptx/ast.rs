//! Syntax tree of a PTX module (PTX ISA, chapters "Syntax", "State Spaces, Types, and Variables",
//! "Directives").
//!
//! The parser keeps opcodes and modifiers as text; lowering gives them meaning and refuses, with
//! the line, those that it does not know.

/// A module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// `.version`: major, minor.
    pub version: (u8, u8),
    /// First word of `.target`, for example `sm_70`.
    pub target: String,
    /// Variables at module scope.
    pub variables: Vec<Variable>,
    /// Kernels and device functions, declarations included.
    pub functions: Vec<Function>,
}

crate::modifiers::modifiers! {
    /// State spaces of variables.
    StateSpace {
        /// `.global`
        Global = "global",
        /// `.shared`
        Shared = "shared",
        /// `.local`
        Local = "local",
        /// `.const`
        Const = "const",
        /// `.param`
        Param = "param",
    }
}

macro_rules! scalar_types {
    ($($name:ident = $text:literal, $bytes:literal;)*) => {
        /// Fundamental types.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // The names are the documentation: PTX ISA, "Fundamental Types".
        pub enum ScalarType {
            $($name,)*
        }

        impl ScalarType {
            /// Returns the type that `.name` means; `name` is without the dot.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the bytes of a value in memory; 1 for predicates, which memory cannot hold.
            pub fn bytes(self) -> u32 {
                match self {
                    $(Self::$name => $bytes,)*
                }
            }
        }
    };
}

// The type, its name in PTX, and the bytes of a value.
scalar_types! {
    S8 = "s8", 1;
    S16 = "s16", 2;
    S32 = "s32", 4;
    S64 = "s64", 8;
    U8 = "u8", 1;
    U16 = "u16", 2;
    U32 = "u32", 4;
    U64 = "u64", 8;
    B8 = "b8", 1;
    B16 = "b16", 2;
    B32 = "b32", 4;
    B64 = "b64", 8;
    B128 = "b128", 16;
    F16 = "f16", 2;
    F16x2 = "f16x2", 4;
    BF16 = "bf16", 2;
    BF16x2 = "bf16x2", 4;
    F32 = "f32", 4;
    F64 = "f64", 8;
    Pred = "pred", 1;
}

/// A variable in a state space, or a kernel or function parameter (`StateSpace::Param`).
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// State space of the variable.
    pub space: StateSpace,
    /// `.align` in bytes, or the natural alignment.
    pub align: u32,
    /// Type of an element.
    pub scalar: ScalarType,
    /// 1, or 2 or 4 for `.v2` and `.v4`.
    pub vector: u8,
    /// Name.
    pub name: String,
    /// Number of elements (product of the dimensions; 1 for a scalar; 0 for `[]`, whose size is
    /// given elsewhere).
    pub elements: u64,
    /// Initial values in order, as far as given; empty for zero.
    pub initial: Vec<Initial>,
    /// `.extern`.
    pub external: bool,
    /// Line of the declaration, from 1.
    pub line: u32,
}

/// One initial value.
#[derive(Clone, Debug, PartialEq)]
pub enum Initial {
    /// A number.
    Number(Immediate),
    /// The address of a variable, or `generic(name)`, plus an offset.
    Address {
        /// Name of the variable.
        name: String,
        /// Offset in bytes.
        offset: i64,
        /// Whether the address is generic, not within the variable's state space.
        generic: bool,
    },
}

/// A group of registers: `.reg .b32 %r<6>;` is 6 of them, `.reg .pred p;` is one.
#[derive(Clone, Debug, PartialEq)]
pub struct Registers {
    /// Type.
    pub scalar: ScalarType,
    /// 1, or 2 or 4 for vector registers.
    pub vector: u8,
    /// Name, or prefix of the names.
    pub name: String,
    /// `None` for a single register with exactly this name; `Some(n)` for `name0` to `name{n-1}`.
    pub count: Option<u32>,
    /// Line, from 1.
    pub line: u32,
}

/// A kernel or device function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Name.
    pub name: String,
    /// Whether this is a kernel (`.entry`), not a device function (`.func`).
    pub kernel: bool,
    /// Parameters in order. Device functions may have register parameters: see [`Parameter`].
    pub parameters: Vec<Parameter>,
    /// Results of a device function.
    pub results: Vec<Parameter>,
    /// `.maxntid`, missing dimensions 1.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`, missing dimensions 1.
    pub required_threads: Option<[u32; 3]>,
    /// Body; `None` for a declaration.
    pub body: Option<Vec<Statement>>,
    /// Line, from 1.
    pub line: u32,
}

/// A parameter or result.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// `.param` variable.
    Variable(Variable),
    /// `.reg` (device functions only).
    Register(Registers),
}

/// A statement in a body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `name:`
    Label {
        /// Name of the label, as branches use it.
        name: String,
        /// Line of the label, from 1.
        line: u32,
    },
    /// A variable with the function's scope.
    Variable(Variable),
    /// `.reg`
    Registers(Registers),
    /// An instruction.
    Instruction(Instruction),
    /// `name: .branchtargets a, b;` — targets of `brx.idx`.
    BranchTargets {
        /// Name of the table, as `brx.idx` uses it.
        name: String,
        /// Targets by index.
        labels: Vec<String>,
        /// Line of the declaration, from 1.
        line: u32,
    },
    /// `name: .callprototype ...;` or `name: .calltargets ...;`: only the name is kept.
    CallPrototype {
        /// Name of the prototype, as `call` uses it.
        name: String,
        /// Line of the declaration, from 1.
        line: u32,
    },
    /// `{ ... }`: a scope of its own.
    Block(Vec<Statement>),
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// `@p` or `@!p`.
    pub guard: Option<Guard>,
    /// First part of the mnemonic, such as `ld`.
    pub opcode: String,
    /// The other parts in order, without dots, for example `global`, `nc`, `v4`, `f32`. A part such
    /// as `::` stays inside its word (`L1::no_allocate`, `shared::cta`).
    pub modifiers: Vec<String>,
    /// Operands in order. For `call`: results (if given) as [`Operand::List`], target, arguments as
    /// [`Operand::List`], and the prototype's name, if given.
    pub operands: Vec<Operand>,
    /// Line, from 1.
    pub line: u32,
}

/// A predicate before an instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// `@!p`
    pub negated: bool,
    /// Name of the predicate register.
    pub register: String,
}

/// A number in the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Immediate {
    /// Integer; negative ones as two's complement. Constant expressions are folded.
    Integer(i128),
    /// `0f3F800000`: bits of an f32.
    F32(u32),
    /// `0d3FF0000000000000`, and decimal floating point: bits of an f64.
    F64(u64),
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, special register (`%tid.x`, with the dot), variable, label or function.
    Name(String),
    /// `!p`
    Not(String),
    /// A number, its sign included.
    Immediate(Immediate),
    /// `name+8` or `name[2]`, outside brackets. The offset is in bytes: an index has been
    /// multiplied by the element's size.
    NameOffset {
        /// Name of the variable.
        name: String,
        /// Offset in bytes.
        offset: i64,
    },
    /// `[base+offset]`; `base` is a register or variable, or absent for an absolute address. What
    /// has more parts, such as a texture's `[t, {x, y}]`, is an [`Operand::List`] of them.
    Memory {
        /// Register or variable.
        base: Option<String>,
        /// Offset in bytes.
        offset: i64,
    },
    /// `{a, b, c, d}`
    Vector(Vec<Operand>),
    /// `p|q`: two destinations.
    Pair(Box<Operand>, Box<Operand>),
    /// `(a, b)`, in calls.
    List(Vec<Operand>),
    /// `_`: the result is discarded.
    Sink,
}

impl Operand {
    /// Returns the two destinations of `p|q`; a single destination is the first, and the second is
    /// discarded.
    pub fn pair(&self) -> (&Self, &Self) {
        match self {
            Self::Pair(first, second) => (first, second),
            single => (single, &Self::Sink),
        }
    }
}
