//! Syntax tree of a PTX module (PTX ISA, chapters "Syntax", "State Spaces, Types, and Variables",
//! "Directives").
//!
//! The parser keeps opcodes and modifiers as text; lowering gives them meaning and refuses, with
//! the line, those that it does not know.

/// The syntax tree of a PTX module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// Major and minor number of `.version`.
    pub version: (u8, u8),
    /// First word of `.target`, for example `sm_70`.
    pub target: String,
    /// Variables declared outside functions.
    pub variables: Vec<Variable>,
    /// Kernels and device functions, including those that are declared without a body.
    pub functions: Vec<Function>,
}

crate::modifiers::modifiers! {
    /// State space of a variable: the kind of memory that holds it (PTX ISA, "State Spaces").
    StateSpace {
        /// `.global`: memory of the device.
        Global = "global",
        /// `.shared`: memory of one block.
        Shared = "shared",
        /// `.local`: memory of one thread.
        Local = "local",
        /// `.const`: memory that kernels only read.
        Const = "const",
        /// `.param`: parameters of a kernel or function.
        Param = "param",
    }
}

crate::modifiers::modifiers! {
    /// Which modules know a name that is declared at module scope (PTX ISA, "Linking Directives").
    Linkage {
        /// Without a directive: only its own module.
        Static,
        /// `.visible`: all modules; no other module may define the name.
        Visible = "visible",
        /// `.weak`: all modules; a definition that is not weak has precedence.
        Weak = "weak",
        /// `.common`: all modules; of several definitions, the largest counts.
        Common = "common",
        /// `.extern`: the definition is elsewhere.
        Extern = "extern",
    }
}

crate::modifiers::modifiers! {
    /// Fundamental type of PTX (PTX ISA, "Fundamental Types"). The variants are named as in PTX, in
    /// capitals.
    #[allow(missing_docs, reason = "the names are the documentation")]
    ScalarType {
        S8 = "s8",
        S16 = "s16",
        S32 = "s32",
        S64 = "s64",
        U8 = "u8",
        U16 = "u16",
        U32 = "u32",
        U64 = "u64",
        B8 = "b8",
        B16 = "b16",
        B32 = "b32",
        B64 = "b64",
        B128 = "b128",
        F16 = "f16",
        F16x2 = "f16x2",
        BF16 = "bf16",
        BF16x2 = "bf16x2",
        F32 = "f32",
        F64 = "f64",
        Pred = "pred",
    }
}

impl ScalarType {
    /// Returns the bytes that a value of this type takes in memory. For predicates, which cannot be
    /// in memory, returns 1.
    pub fn bytes(self) -> u32 {
        match self {
            Self::S8 | Self::U8 | Self::B8 | Self::Pred => 1,
            Self::S16 | Self::U16 | Self::B16 | Self::F16 | Self::BF16 => 2,
            Self::S32 | Self::U32 | Self::B32 | Self::F32 | Self::F16x2 | Self::BF16x2 => 4,
            Self::S64 | Self::U64 | Self::B64 | Self::F64 => 8,
            Self::B128 => 16,
        }
    }
}

/// Declaration of a variable, or of a parameter of a kernel or function (in [`StateSpace::Param`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// State space in which the variable lies.
    pub space: StateSpace,
    /// Alignment in bytes: that of `.align`, or else the bytes of one element.
    pub align: u32,
    /// Type of an element, or of the components of an element that is a vector.
    pub scalar: ScalarType,
    /// Number of components of an element: 2 for `.v2`, 4 for `.v4`, otherwise 1.
    pub vector: u8,
    /// Name of the variable.
    pub name: String,
    /// Number of elements: the product of the dimensions of an array, 1 for a variable that is not
    /// an array, 0 for an array `[]` whose size the declaration leaves open.
    pub elements: u64,
    /// Initial values of the first elements, in order. Elements without one begin as zero.
    pub initial: Vec<Initial>,
    /// Which modules know the variable by its name; [`Linkage::Static`] within a function.
    pub linkage: Linkage,
    /// Line of the declaration, from 1.
    pub line: u32,
}

/// Initial value of one element of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Initial {
    /// A number.
    Number(Immediate),
    /// The address of a variable, or `generic(name)`, plus an offset.
    Address {
        /// Name of the variable.
        name: String,
        /// Bytes that are added to the address.
        offset: i64,
        /// Whether the text says `generic(name)`: the address is generic, not one within the state
        /// space of the variable.
        generic: bool,
    },
}

/// Declaration of registers: `.reg .b32 %r<6>;` declares six, `.reg .pred p;` one.
#[derive(Clone, Debug, PartialEq)]
pub struct Registers {
    /// Type of a register, or of its components if it is a vector.
    pub scalar: ScalarType,
    /// Number of components of a register: 2 for `.v2`, 4 for `.v4`, otherwise 1.
    pub vector: u8,
    /// Name of the register; if `count` is set, the common beginning of the names of all registers.
    pub name: String,
    /// `Some(n)` for the registers `name0` to `name{n-1}`, `None` for a single register `name`.
    pub count: Option<u32>,
    /// Line of the declaration, from 1.
    pub line: u32,
}

/// A kernel or a device function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// Whether this is a kernel (`.entry`) rather than a device function (`.func`).
    pub kernel: bool,
    /// Which modules know the function by its name.
    pub linkage: Linkage,
    /// Parameters in order.
    pub parameters: Vec<Parameter>,
    /// Results of a device function in order; empty for a kernel.
    pub results: Vec<Parameter>,
    /// Most threads that a block may have in x, y and z, as `.maxntid` says; dimensions that it
    /// omits are 1. `None` if the function has no `.maxntid`.
    pub max_threads: Option<[u32; 3]>,
    /// Number of threads that each block must have in x, y and z, as `.reqntid` says; dimensions
    /// that it omits are 1. `None` if the function has no `.reqntid`.
    pub required_threads: Option<[u32; 3]>,
    /// Number of blocks of each cluster in x, y and z, as `.reqnctapercluster` says; dimensions
    /// that it omits are 1. `None` if the function has no `.reqnctapercluster`.
    pub required_cluster: Option<[u32; 3]>,
    /// Statements of the body; `None` if the text only declares the function.
    pub body: Option<Vec<Statement>>,
    /// Line where the function begins, from 1.
    pub line: u32,
}

/// A parameter or a result of a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// A `.param` variable.
    Variable(Variable),
    /// A `.reg` register, which only device functions can have.
    Register(Registers),
}

/// A statement in the body of a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `name:`, a place that branches can name.
    Label {
        /// Name of the label, as branches use it.
        name: String,
        /// Line of the label, from 1.
        line: u32,
    },
    /// The declaration of a variable that only this block of the function knows.
    Variable(Variable),
    /// The declaration of registers (`.reg`).
    Registers(Registers),
    /// An instruction.
    Instruction(Instruction),
    /// `name: .branchtargets a, b;`, the table of labels for an indexed branch (`brx.idx`).
    BranchTargets {
        /// Name of the table, as `brx.idx` uses it.
        name: String,
        /// Labels in the order of their indices.
        labels: Vec<String>,
        /// Line of the declaration, from 1.
        line: u32,
    },
    /// `name: .callprototype …;` or `name: .calltargets …;`, which describe an indirect call. Only
    /// the name is kept.
    CallPrototype {
        /// Name of the prototype, as `call` uses it.
        name: String,
        /// Line of the declaration, from 1.
        line: u32,
    },
    /// Statements in braces, which are a scope for names.
    Block(Vec<Statement>),
}

/// An instruction as the text has it. The parser does not check whether there is such an
/// instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Predicate before the instruction, `@p` or `@!p`; `None` if the instruction always executes.
    pub guard: Option<Guard>,
    /// First part of the mnemonic, such as `ld`.
    pub opcode: String,
    /// The parts of the mnemonic behind the first, in order and without their dots, such as
    /// `global`, `nc`, `v4`, `f32`. A part with colons stays whole (`L1::no_allocate`,
    /// `shared::cta`).
    pub modifiers: Vec<String>,
    /// Operands in order. Those of `call` are the results (an [`Operand::List`]), the function, the
    /// arguments (an [`Operand::List`]) and the name of the prototype; all but the function may be
    /// missing.
    pub operands: Vec<Operand>,
    /// Line of the instruction, from 1.
    pub line: u32,
}

/// The predicate that decides which threads execute an instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// Whether threads execute the instruction if the predicate is false (`@!p`) rather than true
    /// (`@p`).
    pub negated: bool,
    /// Name of the predicate register.
    pub register: String,
}

/// A number in the text, or the value of a constant expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Immediate {
    /// An integer, whatever its PTX type.
    Integer(i128),
    /// Bits of an f32, which PTX writes as `0f3F800000`.
    F32(u32),
    /// Bits of an f64, which PTX writes as `0d3FF0000000000000` or in decimal.
    F64(u64),
}

/// An operand of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// Name of a register, a special register (`%tid.x`), a variable, a label or a function.
    Name(String),
    /// `!p`, the opposite of a predicate register.
    Not(String),
    /// A number with its sign.
    Immediate(Immediate),
    /// The address of a variable plus an offset, written `name+8` or `name[2]` outside brackets.
    NameOffset {
        /// Name of the variable.
        name: String,
        /// Offset in bytes; an index in the text is multiplied by the bytes of an element already.
        offset: i64,
    },
    /// `[base+offset]`, the memory at an address. An address in brackets that has more parts, such
    /// as a texture's `[t, {x, y}]`, is an [`Operand::List`] instead.
    Memory {
        /// Register or variable that holds or is the address; `None` if `offset` is the whole
        /// address.
        base: Option<String>,
        /// Offset in bytes.
        offset: i64,
    },
    /// `{a, b, c, d}`, the components of a vector.
    Vector(Vec<Operand>),
    /// `p|q`, two destinations.
    Pair(Box<Operand>, Box<Operand>),
    /// `(a, b)`, the arguments or results of a call.
    List(Vec<Operand>),
    /// `_`, which discards a result.
    Sink,
}

impl Operand {
    /// Returns the two destinations of `p|q`. For any other operand, returns the operand and
    /// [`Self::Sink`], which discards the second result.
    pub fn pair(&self) -> (&Self, &Self) {
        match self {
            Self::Pair(first, second) => (first, second),
            single => (single, &Self::Sink),
        }
    }
}
