//! A program under construction: operations, constants, and the functions that belong to it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::constants::Constants;
use super::frame::place;
use super::functions::Functions;
use super::parameters::ParameterLayout;
use super::refusal::{Refusal, Result};
use super::scope::Home;
use super::signature::Signature;
use super::stack::{Arrangement, Edge, arrange};
use super::variables::{ModuleVariable, Variables, variable_bytes};
use crate::isa::Isa;
use crate::limits::{BLOCK_THREADS_MAX, SHARED_BYTES_MAX};
use crate::program::{BarrierSite, CallSite, MatrixSite, Op, Program, SurfaceSite, TextureSite};
use crate::ptx::ast;
use crate::registers::FrameBytes;

/// A function of the program.
#[derive(Debug)]
struct Member<'a> {
    function: &'a ast::Function,
    /// Number of the module that defines the function.
    input: usize,
    start: u32,
    frame: FrameBytes,
    /// Its call sites among those of the program.
    sites: Range<usize>,
}

impl<'a> Member<'a> {
    fn new((input, function): (usize, &'a ast::Function)) -> Self {
        Self {
            function,
            input,
            start: 0,
            frame: FrameBytes::default(),
            sites: 0..0,
        }
    }
}

/// A program under construction.
#[derive(Debug)]
pub(super) struct ProgramBuilder<'a> {
    /// Instruction set to compile loops for.
    pub(super) isa: Isa,
    /// Operations that have been added.
    pub(super) code: Vec<Op>,
    /// Constants that operations use.
    pub(super) constants: Constants,
    /// Targets of indexed branches.
    pub(super) tables: Vec<Vec<u32>>,
    /// Call sites; their targets are filled in at the end.
    pub(super) calls: Vec<CallSite>,
    /// Barriers that operations name by index.
    pub(super) barriers: Vec<BarrierSite>,
    /// Number of source instructions lowered so far.
    pub(super) instructions: u32,
    /// Layout of the kernel's parameters.
    pub(super) layout: ParameterLayout,
    /// Whether the kernel may allocate memory.
    pub(super) allocates: bool,
    /// Whether the kernel may print.
    pub(super) prints: bool,
    /// Whether the kernel knows how to wait for all blocks of its grid.
    pub(super) meets: bool,
    /// Matrix instructions, which operations name by index.
    pub(super) matrices: Vec<MatrixSite>,
    /// Reads of textures, which operations name by index.
    pub(super) textures: Vec<TextureSite>,
    /// Accesses to surfaces, which operations name by index.
    pub(super) surfaces: Vec<SurfaceSite>,
    operations_left: &'a mut usize,
    stop: &'a AtomicBool,
    functions: &'a Functions<'a>,
    variables: &'a Variables<'a>,
    members: Vec<Member<'a>>,
    /// Members by the number of the function among all.
    known: HashMap<usize, usize>,
    edges: Vec<Edge>,
    shared: u32,
    /// Places of shared variables of the modules, by their number among all variables.
    shared_homes: HashMap<usize, Home>,
    dynamic_align: u32,
}

impl<'a> ProgramBuilder<'a> {
    /// Creates a program with one function, number `entry`, which has no operations yet. What is
    /// added to the program is taken from `operations_left`.
    pub(super) fn new(
        entry: usize,
        functions: &'a Functions<'a>,
        variables: &'a Variables<'a>,
        (isa, stop): (Isa, &'a AtomicBool),
        operations_left: &'a mut usize,
    ) -> Result<Self> {
        Ok(Self {
            isa,
            code: Vec::new(),
            constants: Constants::default(),
            tables: Vec::new(),
            calls: Vec::new(),
            barriers: Vec::new(),
            instructions: 0,
            layout: ParameterLayout::new(functions.all[entry].1)?,
            allocates: false,
            prints: false,
            meets: false,
            matrices: Vec::new(),
            textures: Vec::new(),
            surfaces: Vec::new(),
            operations_left,
            stop,
            functions,
            variables,
            members: vec![Member::new(functions.all[entry])],
            known: HashMap::new(),
            edges: Vec::new(),
            shared: 0,
            shared_homes: HashMap::new(),
            dynamic_align: 16,
        })
    }

    /// Returns function number `index` of the program, and the number of its module; `None` if the
    /// program has fewer functions.
    pub(super) fn function(&self, index: usize) -> Option<(usize, &'a ast::Function)> {
        let member = self.members.get(index)?;
        Some((member.input, member.function))
    }

    /// Begins function number `index`: its operations follow.
    pub(super) fn begin_function(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.start = u32::try_from(self.code.len()).unwrap_or(u32::MAX);
        member.sites = self.calls.len()..self.calls.len();
    }

    /// Ends function number `index`, whose frame has this size.
    pub(super) fn end_function(&mut self, index: usize, frame: FrameBytes) {
        let member = &mut self.members[index];
        member.frame = frame;
        member.sites.end = self.calls.len();
    }

    /// Takes `count` from what the module may have: operations, and whatever else takes time or
    /// memory. Functions are lowered again for every kernel that calls them, so a short source can
    /// mean much work.
    pub(super) fn take(&mut self, count: usize, line: u32) -> Result {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Refusal::new(line, "the session ends"));
        }
        let left = self.operations_left.checked_sub(count).ok_or_else(|| {
            let reason = "the module's kernels, with the functions that they call, have more \
                          instructions and declarations than the software back end takes";
            Refusal::new(line, reason)
        })?;
        *self.operations_left = left;
        Ok(())
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, op: Op) -> Result {
        self.take(1, op.line)?;
        self.code.push(op);
        Ok(())
    }

    /// Returns the address of the device function `name` that function number `user` names; `None`
    /// if there is none, or no module defines it.
    pub(super) fn function_address(&self, user: usize, name: &str) -> Option<u64> {
        let (index, function) = self.functions.get(self.members[user].input, name)?;
        (!function.kernel && function.body.is_some()).then(|| Functions::address(index))
    }

    /// Returns address, number and signature of each function that a call through a register may
    /// mean, which function number `caller` makes with so many results and arguments.
    pub(super) fn callees_by_address(
        &mut self,
        caller: usize,
        counts: (usize, usize),
        line: u32,
    ) -> Result<Vec<(u64, usize, Signature)>> {
        let mut callees = Vec::new();
        for key in self.functions.addressed() {
            self.take(1, line)?;
            let function = self.functions.all[*key].1;
            if (function.results.len(), function.parameters.len()) == counts {
                // `member` builds the signature, which takes this many steps.
                self.take(counts.0 + counts.1, line)?;
                let (number, signature) = self.member(caller, *key)?;
                callees.push((Functions::address(*key), number, signature));
            }
        }
        Ok(callees)
    }

    /// Returns whether a module defines the function `name` that function number `caller` calls.
    pub(super) fn defines(&self, caller: usize, name: &str) -> bool {
        let found = self.functions.get(self.members[caller].input, name);
        found.is_some_and(|(_, function)| function.body.is_some())
    }

    /// Returns the number and the signature of the device function `name`, which function number
    /// `caller` calls.
    pub(super) fn callee(
        &mut self,
        caller: usize,
        name: &str,
        line: u32,
    ) -> Result<(usize, Signature)> {
        let input = self.members[caller].input;
        let Some((key, function)) = self.functions.get(input, name) else {
            let reason = format!("function `{name}` is not declared");
            return Err(Refusal::new(line, reason));
        };
        if function.kernel || function.body.is_none() {
            let reason = if function.kernel {
                format!("`{name}` is a kernel, and only device functions can be called")
            } else {
                format!(
                    "unresolved symbol: function `{name}` has no body in any module that is linked"
                )
            };
            return Err(Refusal::new(line, reason));
        }
        self.member(caller, key)
    }

    /// Makes function `key` of all functions part of the program, as one that `caller` calls.
    /// Returns its number in the program, and its signature.
    fn member(&mut self, caller: usize, key: usize) -> Result<(usize, Signature)> {
        let function = self.functions.all[key].1;
        let index = *self.known.entry(key).or_insert_with(|| {
            self.members.push(Member::new(self.functions.all[key]));
            self.members.len() - 1
        });
        self.edges.push(Edge {
            from: caller,
            to: index,
        });
        Ok((index, Signature::new(function)?))
    }

    /// Returns where this kernel finds the variable `name` that function number `user` names;
    /// `None` if the module of the function has no such variable.
    pub(super) fn module_variable(
        &mut self,
        user: usize,
        name: &str,
        line: u32,
    ) -> Result<Option<Home>> {
        match self.variables.get(self.members[user].input, name) {
            None => Ok(None),
            Some(ModuleVariable::Address(at)) => Ok(Some(Home::Generic(at))),
            Some(ModuleVariable::Missing) => {
                let reason =
                    format!("unresolved symbol: variable `{name}` is declared, but not defined");
                Err(Refusal::new(line, reason))
            }
            Some(ModuleVariable::Shared(number, variable)) => {
                if let Some(home) = self.shared_homes.get(&number) {
                    return Ok(Some(*home));
                }
                let home = self.shared_variable(variable)?;
                self.shared_homes.insert(number, home);
                Ok(Some(home))
            }
        }
    }

    /// Places a shared variable.
    pub(super) fn shared_variable(&mut self, variable: &ast::Variable) -> Result<Home> {
        if variable.linkage == ast::Linkage::Extern || variable.elements == 0 {
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

    /// Completes the program of kernel `entry`.
    pub(super) fn finish(mut self, entry: &ast::Function) -> Result<Program> {
        self.take(self.constants.rows(), entry.line)?;
        let frames: Vec<FrameBytes> = self.members.iter().map(|m| m.frame).collect();
        let arrangement = arrange(&frames, &self.edges).ok_or_else(|| {
            let reason =
                "the kernel and the functions it calls need too much register or local memory";
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
            name: entry.name.clone(),
            code: self.code,
            constants: self.constants.finish(dynamic_shared_offset),
            tables: self.tables,
            calls: self.calls,
            barriers: self.barriers,
            stack: arrangement.stack,
            shared_bytes: self.shared,
            dynamic_shared_offset,
            parameters: self.layout.parameters,
            parameter_bytes: self.layout.bytes,
            threads_max: declared.map_or(BLOCK_THREADS_MAX, |n| n.min(BLOCK_THREADS_MAX)),
            required_threads: entry.required_threads,
            required_cluster: entry.required_cluster,
            allocates: self.allocates,
            prints: self.prints,
            meets: self.meets,
            matrices: self.matrices,
            textures: self.textures,
            surfaces: self.surfaces,
            compiled: None,
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
                site.target = callee.start;
            }
        }
    }
}
