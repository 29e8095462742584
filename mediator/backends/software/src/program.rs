//! A kernel ready to run: what lowering makes and execution walks.

use causeway_protocol::message::Parameter;

use crate::compiled::Compiled;
use crate::exec::Context;
use crate::meaning::Meaning;
use crate::registers::{FrameBytes, Guard, Row, Slot};
use crate::texture::Geometry;

/// Executes one operation for the lanes of `Context::mask`.
///
/// Callers pass only operations of the program that the context runs, with the frame of their
/// function bound.
pub(crate) type Exec = unsafe fn(&mut Context<'_>, &Op) -> Step;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Go on.
    Next,
    /// Stop: `Context::trouble` says why.
    Fault,
}

/// What an operation does to control flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Nothing: computes lane by lane.
    Lanes(Exec),
    /// Waits until the lanes of the member mask (`Op::d`) have arrived, then computes across lanes.
    Converge(Exec),
    /// `bar.warp.sync`; member mask in `Op::d`.
    WarpBarrier,
    /// Jump.
    Branch(u32),
    /// Jump through a table of targets; index in `Op::a`.
    BranchIndexed(u32),
    /// Call through a call site.
    Call(u32),
    /// Back to the caller; the end of the thread in a kernel.
    Return,
    /// End of the thread.
    Exit,
    /// End of the kernel, as a fault.
    Trap,
    /// Barrier of the block.
    Barrier(u32),
    /// Call of a function that the back end provides: long, and done lane by lane.
    System(Exec),
}

/// One operation. Operands are resolved; a source instruction may take several operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    /// What the operation does.
    pub(crate) action: Action,
    /// Predicate that selects the lanes; `None` if all lanes execute the operation.
    pub(crate) guard: Option<Guard>,
    /// Register for the result.
    pub(crate) dst: Slot,
    /// Register for a second result.
    pub(crate) dst2: Slot,
    /// Registers with the sources.
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    pub(crate) d: Slot,
    /// Address offset, lookup table or flags: each kind of operation has its own use.
    pub(crate) imm: u64,
    /// Line of the instruction in the source.
    pub(crate) line: u32,
    /// Number of source instructions of the program before this operation.
    pub(crate) ordinal: u32,
    /// Whether other groups of lanes may be waiting at this operation.
    pub(crate) leader: bool,
    /// What the operation computes, as far as the compiler knows.
    pub(crate) meaning: Option<Meaning>,
    /// Number of the compiled run that begins here; 0 if none does.
    pub(crate) run: u32,
}

/// Operands of a `bar` or `barrier` instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BarrierSite {
    /// Register with the number of the barrier.
    pub(crate) id: Slot,
    /// Register with the number of threads expected; `None` stands for all.
    pub(crate) count: Option<Slot>,
    /// Whether lanes wait, and what they reduce.
    pub(crate) kind: BarrierKind,
    /// Predicate to reduce (as `Op::guard`).
    pub(crate) predicate: Option<Guard>,
}

/// Forms of the `bar` instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    /// Arrive and go on.
    Arrive,
    /// Wait.
    Sync,
    /// Wait; a word gets the number of threads whose predicate holds.
    Count,
    /// Wait; a predicate gets whether all hold.
    All,
    /// Wait; a predicate gets whether any holds.
    Any,
}

/// Moves an argument or a result between frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// Place of the value.
    pub(crate) from: Place,
    /// Place for the value.
    pub(crate) to: Place,
    /// Bytes per lane.
    pub(crate) bytes: u32,
}

/// Where an argument or result lives within its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Offset in the frame's local memory.
    Local(u32),
    /// Word or double register, or half of a quad.
    Register(Slot),
    /// Predicate register.
    Predicate(Slot),
}

/// A call of a device function.
#[derive(Clone, Debug)]
pub(crate) struct CallSite {
    /// First operation of the callee.
    pub(crate) target: u32,
    /// Distance from the caller's frame to the callee's.
    pub(crate) distance: FrameBytes,
    /// Sizes of the callee's frame.
    pub(crate) callee: FrameBytes,
    /// From the caller's frame to the callee's.
    pub(crate) arguments: Vec<Move>,
    /// From the callee's frame to the caller's.
    pub(crate) results: Vec<Move>,
}

/// A matrix instruction: what its registers hold. Registers that it does not have are not used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatrixSite {
    /// Registers of the result, or of the rows that are loaded or stored.
    pub(crate) d: [Slot; 4],
    /// Registers of the left factor.
    pub(crate) a: [Slot; 4],
    /// Registers of the right factor.
    pub(crate) b: [Slot; 2],
    /// Registers of what is added.
    pub(crate) c: [Slot; 4],
    /// Rows of the result: 8 or 16. Of loads and stores, the number of matrices of 8 rows.
    pub(crate) rows: usize,
    /// Columns of the left factor, and rows of the right one.
    pub(crate) depth: usize,
    /// Elements of the two factors.
    pub(crate) factors: [Element; 2],
    /// Elements of the result, and of what is added.
    pub(crate) sum: Sum,
    /// Whether the matrices are transposed on the way.
    pub(crate) transposed: bool,
}

/// An element of a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    S8,
    U8,
    S4,
    U4,
}

/// An element of a sum of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    F32,
    F16,
    /// 32 bits, wrapped around.
    S32,
    /// 32 bits, `.satfinite`.
    S32Saturated,
}

/// Where a texture or a surface is accessed: its registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TexturePlace {
    /// Register with the number of the object.
    pub(crate) object: Slot,
    /// Geometry of the instruction.
    pub(crate) geometry: Geometry,
    /// Register with the layer, if the geometry has one.
    pub(crate) layer: Slot,
    /// Registers with the coordinates that the geometry has.
    pub(crate) coordinates: [Slot; 3],
}

/// An instruction that reads a texture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextureSite {
    /// Where it reads.
    pub(crate) place: TexturePlace,
    /// Whether coordinates are integers.
    pub(crate) is_integer: bool,
    /// Channel that is gathered, from 0 to 3.
    pub(crate) channel: usize,
    /// Registers of the result.
    pub(crate) values: [Slot; 4],
}

/// An instruction that loads from a surface or stores to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SurfaceSite {
    /// Where it accesses the surface. The first coordinate counts bytes.
    pub(crate) place: TexturePlace,
    /// What an access outside does.
    pub(crate) outside: Outside,
    /// Registers of the values.
    pub(crate) values: [Slot; 4],
    /// How many values there are: 1, 2 or 4.
    pub(crate) count: usize,
    /// Bytes of each value: 1, 2, 4 or 8.
    pub(crate) bytes: usize,
}

/// What an access outside a surface does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// It ends the kernel.
    Trap,
    /// It accesses the nearest place inside.
    Clamp,
    /// It loads zeros, or stores nothing.
    Zero,
}

/// What `txq` and `suq` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    Width,
    Height,
    Depth,
    Layers,
    ChannelType,
    ChannelOrder,
    IsNormalized,
}

/// All queries by their modifiers. Operations have a query as its index here.
const QUERIES: [(&str, Query); 7] = [
    ("width", Query::Width),
    ("height", Query::Height),
    ("depth", Query::Depth),
    ("array_size", Query::Layers),
    ("channel_data_type", Query::ChannelType),
    ("channel_order", Query::ChannelOrder),
    ("normalized_coords", Query::IsNormalized),
];

impl Query {
    /// Returns the number of the query that a modifier names, as an operation has it.
    pub(crate) fn number(modifier: &str) -> Option<u64> {
        let at = QUERIES.iter().position(|(word, _)| *word == modifier);
        at.map(|at| at as u64)
    }

    /// Returns the query with this number.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        QUERIES.get(number as usize).map(|(_, query)| *query)
    }
}

/// A kernel ready to be executed, with the functions that it calls.
pub(crate) struct Program {
    /// Name of the kernel.
    pub(crate) name: String,
    /// Operations of the kernel (from 0) and of the functions that it calls. The last one never
    /// falls through.
    pub(crate) code: Vec<Op>,
    /// Constants, one row or two each.
    pub(crate) constants: Vec<Row>,
    /// Tables of targets for indexed branches.
    pub(crate) tables: Vec<Vec<u32>>,
    /// Call sites, which operations name by index.
    pub(crate) calls: Vec<CallSite>,
    /// Barriers, which operations name by index.
    pub(crate) barriers: Vec<BarrierSite>,
    /// Memory that the deepest chain of calls needs.
    pub(crate) stack: FrameBytes,
    /// Static shared memory in bytes.
    pub(crate) shared_bytes: u32,
    /// Where dynamic shared memory begins.
    pub(crate) dynamic_shared_offset: u32,
    /// Offset and size of each parameter.
    pub(crate) parameters: Vec<Parameter>,
    /// Bytes of the parameter block.
    pub(crate) parameter_bytes: u32,
    /// Most threads of a block, as `.reqntid` or `.maxntid` says.
    pub(crate) threads_max: u32,
    /// Exact threads of a block in x, y and z, as `.reqntid` says.
    pub(crate) required_threads: Option<[u32; 3]>,
    /// Blocks of a cluster in x, y and z, as `.reqnctapercluster` says.
    pub(crate) required_cluster: Option<[u32; 3]>,
    /// Whether the kernel may allocate memory from the heap.
    pub(crate) allocates: bool,
    /// Whether the kernel may print text.
    pub(crate) prints: bool,
    /// Whether blocks may wait for all other blocks of the grid.
    pub(crate) meets: bool,
    /// Matrix instructions, which operations name by index.
    pub(crate) matrices: Vec<MatrixSite>,
    /// Reads of textures, which operations name by index.
    pub(crate) textures: Vec<TextureSite>,
    /// Accesses to surfaces, which operations name by index.
    pub(crate) surfaces: Vec<SurfaceSite>,
    /// Runs of operations as machine code.
    pub(crate) compiled: Option<Compiled>,
}

impl Program {
    /// Returns the memory that the kernel takes, in bytes. It can be much for a short source.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let moves =
            |site: &CallSite| size_of_val(&site.arguments[..]) + size_of_val(&site.results[..]);
        let bytes = size_of::<Self>()
            + size_of_val(&self.code[..])
            + size_of_val(&self.constants[..])
            + size_of_val(&self.tables[..])
            + self
                .tables
                .iter()
                .map(|t| size_of_val(&t[..]))
                .sum::<usize>()
            + size_of_val(&self.calls[..])
            + self.calls.iter().map(moves).sum::<usize>()
            + size_of_val(&self.barriers[..])
            + size_of_val(&self.matrices[..])
            + size_of_val(&self.textures[..])
            + size_of_val(&self.surfaces[..])
            + size_of_val(&self.parameters[..])
            + self.compiled.as_ref().map_or(0, Compiled::bytes);
        bytes as u64
    }
}

causeway_memory::debug_fields!(Program { name });
