//! A kernel with the functions that it calls, put together into one program.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_protocol::message::{PARAMETERS_MAX, Parameter};

use super::Refusal;
use super::constants::Constants;
use super::frame::{place, scalar_bytes};
use super::function;
use super::scope::Home;
use super::signature::Signature;
use super::stack::{Arrangement, Edge, arrange};
use super::variables::{ModuleVariable, Variables, variable_bytes};
use crate::isa::Isa;
use crate::program::{BarrierSite, CallSite, FrameBytes, Op, Program};
use crate::ptx::ast;

/// Static shared memory of a kernel in bytes, at most: what the largest devices offer.
pub(crate) const SHARED_BYTES_MAX: u32 = 227 << 10;
/// Bytes of the parameter block, at most.
const PARAMETER_BYTES_MAX: u32 = 32764;
/// Threads of a block, at most.
pub(crate) const BLOCK_THREADS_MAX: u32 = 1024;

/// A function of the program.
struct Member<'a> {
    function: &'a ast::Function,
    start: Option<u32>,
    frame: FrameBytes,
    /// Its call sites among those of the program.
    sites: Range<usize>,
}

/// A program under construction.
pub(super) struct Kernel<'a> {
    /// Instruction set to compile loops for.
    pub(super) isa: Isa,
    /// Operations so far.
    pub(super) code: Vec<Op>,
    /// Constants so far.
    pub(super) constants: Constants,
    /// Targets of indexed branches.
    pub(super) tables: Vec<Vec<u32>>,
    /// Call sites; their targets are filled in at the end.
    pub(super) calls: Vec<CallSite>,
    /// Barriers.
    pub(super) barriers: Vec<BarrierSite>,
    /// Source instructions so far.
    pub(super) instructions: u32,
    operations_left: usize,
    stop: &'a AtomicBool,
    parameter_bytes: u32,
    functions: &'a HashMap<&'a str, &'a ast::Function>,
    variables: &'a Variables<'a>,
    members: Vec<Member<'a>>,
    known: HashMap<&'a str, usize>,
    edges: Vec<Edge>,
    shared: u32,
    shared_homes: HashMap<String, Home>,
    dynamic_align: u32,
}

/// Lowers `entry` and what it calls, and takes what that costs from `operations_left`.
pub(super) fn lower<'a>(
    entry: &'a ast::Function,
    functions: &'a HashMap<&'a str, &'a ast::Function>,
    variables: &'a Variables<'a>,
    (isa, stop): (Isa, &'a AtomicBool),
    operations_left: &mut usize,
) -> Result<Program, Refusal> {
    let layout = ParameterLayout::new(entry)?;
    let mut kernel = Kernel {
        isa,
        code: Vec::new(),
        constants: Constants::default(),
        tables: Vec::new(),
        calls: Vec::new(),
        barriers: Vec::new(),
        instructions: 0,
        operations_left: *operations_left,
        stop,
        parameter_bytes: layout.bytes,
        functions,
        variables,
        members: vec![Member {
            function: entry,
            start: None,
            frame: FrameBytes::default(),
            sites: 0..0,
        }],
        known: HashMap::new(),
        edges: Vec::new(),
        shared: 0,
        shared_homes: HashMap::new(),
        dynamic_align: 16,
    };
    let mut next = 0;
    while next < kernel.members.len() {
        kernel.lower_member(next, &layout)?;
        next += 1;
    }
    let rows = kernel.constants.rows();
    kernel.take(rows, entry.line)?;
    *operations_left = kernel.operations_left;
    kernel.finish(entry, layout)
}

impl<'a> Kernel<'a> {
    fn lower_member(&mut self, index: usize, layout: &ParameterLayout) -> Result<(), Refusal> {
        let function = self.members[index].function;
        let start = u32::try_from(self.code.len()).unwrap_or(u32::MAX);
        self.members[index].start = Some(start);
        let homes = if function.kernel {
            &layout.homes[..]
        } else {
            &[]
        };
        let first_site = self.calls.len();
        let frame = function::lower(self, index, function, homes)?;
        self.members[index].frame = frame;
        self.members[index].sites = first_site..self.calls.len();
        Ok(())
    }

    /// Bytes of the parameter block.
    pub(super) fn parameter_bytes(&self) -> u32 {
        self.parameter_bytes
    }

    /// Takes `count` from what the module may have: operations, and whatever else takes time or memory. Functions
    /// are lowered again for every kernel that calls them, so a short source can mean much work.
    pub(super) fn take(&mut self, count: usize, line: u32) -> Result<(), Refusal> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Refusal::new(line, "the session ends"));
        }
        let left = self.operations_left.checked_sub(count).ok_or_else(|| {
            let reason = "the module's kernels, with the functions that they call, have more \
                          instructions and declarations than the software back end takes";
            Refusal::new(line, reason)
        })?;
        self.operations_left = left;
        Ok(())
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, op: Op) -> Result<(), Refusal> {
        self.take(1, op.line)?;
        self.code.push(op);
        Ok(())
    }

    /// The number of the function that `name` calls, and its signature.
    pub(super) fn callee(
        &mut self,
        caller: usize,
        name: &str,
        line: u32,
    ) -> Result<(usize, Signature), Refusal> {
        let Some((key, function)) = self.functions.get_key_value(name) else {
            return Err(Refusal::new(line, format!("no function `{name}` to call")));
        };
        if function.kernel || function.body.is_none() {
            let reason = if function.kernel {
                format!("calls kernel `{name}`, but only device functions can be called")
            } else {
                format!(
                    "calls `{name}`, which has no body: the software back end provides no system \
                     calls and links no libraries"
                )
            };
            return Err(Refusal::new(line, reason));
        }
        let index = *self.known.entry(key).or_insert_with(|| {
            self.members.push(Member {
                function,
                start: None,
                frame: FrameBytes::default(),
                sites: 0..0,
            });
            self.members.len() - 1
        });
        self.edges.push(Edge {
            from: caller,
            to: index,
        });
        Ok((index, Signature::new(function)?))
    }

    /// Where a variable at module scope is, for this kernel.
    pub(super) fn module_variable(
        &mut self,
        name: &str,
        line: u32,
    ) -> Result<Option<Home>, Refusal> {
        match self.variables.get(name) {
            None => Ok(None),
            Some(ModuleVariable::Address(at)) => Ok(Some(Home::Generic(at))),
            Some(ModuleVariable::Missing) => {
                let reason = format!("variable `{name}` is declared, but defined nowhere");
                Err(Refusal::new(line, reason))
            }
            Some(ModuleVariable::Shared(variable)) => {
                if let Some(home) = self.shared_homes.get(name) {
                    return Ok(Some(*home));
                }
                let home = self.shared_variable(variable)?;
                self.shared_homes.insert(name.to_owned(), home);
                Ok(Some(home))
            }
        }
    }

    /// Places a shared variable.
    pub(super) fn shared_variable(&mut self, variable: &ast::Variable) -> Result<Home, Refusal> {
        if variable.external || variable.elements == 0 {
            self.dynamic_align = self.dynamic_align.max(variable.align).min(4096);
            return Ok(Home::DynamicShared);
        }
        let bytes = variable_bytes(variable)?;
        let offset = place(&mut self.shared, bytes, variable.align, SHARED_BYTES_MAX);
        offset.map(Home::Shared).ok_or_else(|| {
            let reason = format!(
                "`{}` does not fit: a block has {SHARED_BYTES_MAX} bytes of shared memory",
                variable.name
            );
            Refusal::new(variable.line, reason)
        })
    }

    fn finish(
        mut self,
        entry: &ast::Function,
        layout: ParameterLayout,
    ) -> Result<Program, Refusal> {
        let frames: Vec<FrameBytes> = self.members.iter().map(|m| m.frame).collect();
        let arrangement = arrange(&frames, &self.edges).ok_or_else(|| {
            let reason = "the kernel's functions need more memory than a block may have";
            Refusal::new(entry.line, reason)
        })?;
        self.link(&arrangement);
        let dynamic_shared_offset = self.shared.next_multiple_of(self.dynamic_align);
        let threads = |dimensions: [u32; 3]| {
            dimensions
                .iter()
                .fold(1_u32, |product, n| product.saturating_mul(*n))
        };
        let declared = entry.required_threads.or(entry.max_threads).map(threads);
        Ok(Program {
            isa: self.isa,
            name: entry.name.clone(),
            code: self.code,
            constants: self.constants.finish(dynamic_shared_offset),
            tables: self.tables,
            calls: self.calls,
            barriers: self.barriers,
            stack: arrangement.stack,
            shared_bytes: self.shared,
            dynamic_shared_offset,
            parameters: layout.parameters,
            parameter_bytes: layout.bytes,
            threads_max: declared.map_or(BLOCK_THREADS_MAX, |n| n.min(BLOCK_THREADS_MAX)),
            required_threads: entry.required_threads,
        })
    }

    /// Call sites name functions by number until all functions have their place.
    fn link(&mut self, arrangement: &Arrangement) {
        for (number, caller) in self.members.iter().enumerate() {
            for site in &mut self.calls[caller.sites.clone()] {
                let callee = &self.members[site.target as usize];
                site.distance = FrameBytes {
                    registers: arrangement.distance(number, site.target as usize),
                    local: caller.frame.local,
                };
                site.callee = callee.frame;
                site.target = callee.start.unwrap_or(0);
            }
        }
    }
}

/// The parameter block of a kernel.
struct ParameterLayout {
    parameters: Vec<Parameter>,
    homes: Vec<(String, Home)>,
    bytes: u32,
}

impl ParameterLayout {
    fn new(entry: &ast::Function) -> Result<Self, Refusal> {
        let mut layout = Self {
            parameters: Vec::new(),
            homes: Vec::new(),
            bytes: 0,
        };
        for parameter in &entry.parameters {
            match parameter {
                ast::Parameter::Variable(variable) => layout.add(variable)?,
                ast::Parameter::Register(registers) => {
                    let reason = "a kernel cannot have parameters in registers";
                    return Err(Refusal::new(registers.line, reason));
                }
            }
        }
        if layout.parameters.len() > PARAMETERS_MAX {
            let reason = format!(
                "the kernel has {} parameters; {PARAMETERS_MAX} are possible",
                layout.parameters.len()
            );
            return Err(Refusal::new(entry.line, reason));
        }
        Ok(layout)
    }

    fn add(&mut self, variable: &ast::Variable) -> Result<(), Refusal> {
        let too_large = || {
            let reason = format!("kernel parameters exceed {PARAMETER_BYTES_MAX} bytes");
            Refusal::new(variable.line, reason)
        };
        let size = variable_bytes(variable)?;
        let align = variable.align.max(scalar_bytes(variable.scalar));
        let offset = place(&mut self.bytes, size, align, PARAMETER_BYTES_MAX);
        let offset = offset.ok_or_else(too_large)?;
        let size = u16::try_from(size).map_err(|_| too_large())?;
        self.parameters.push(Parameter {
            offset: u16::try_from(offset).map_err(|_| too_large())?,
            size,
        });
        let home = Home::Parameter(offset, u32::from(size));
        self.homes.push((variable.name.clone(), home));
        Ok(())
    }
}
