//! Loaded modules and their kernels.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_cpu_queue::{Entry, HostMemory};
use causeway_mediator::backend::{
    Fault, Kernel, LaunchOptions, LaunchShape, Module, ModuleError, Reservation, Variable,
    is_cooperative, refuse_clusters,
};
use causeway_protocol::Access;
use causeway_protocol::message::{KERNEL_ATTRIBUTES, Parameter, Status};

use crate::compile::Compiler;
use crate::exec::{KEPT_BYTES, fits_together, footprint_bytes, thread_bytes};
use crate::image;
use crate::library;
use crate::limits::{CAPABILITY, REGISTERS, SHARED_BYTES_MAX, SHARED_BYTES_USUAL};
use crate::lower::{self, Variables};
use crate::pool::Charge;
use crate::program::Program;
use crate::ptx;
use crate::space_state::{SpaceState, SystemUse, VariableRange};

/// Most bytes of a module's text.
const IMAGE_BYTES_MAX: usize = 32 << 20;
/// Bytes of memory that a load may need while it is under way, for each byte of the image, and in
/// all: the syntax tree, and the code of a kernel before it is reserved. The most that
/// `tests/load_memory.rs` reaches, rounded up. The size of the tree bounds the rest.
const LOAD_FACTOR: u64 = 100;
const LOAD_BYTES_MAX: u64 = 384 << 20;
/// `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE` of `cuda.h`.
const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
/// Registers, local and shared memory of a block in bytes, at most.
const BLOCK_FOOTPRINT_MAX: u64 = 64 << 20;

/// A loaded module: its kernels, translated for execution, and its variables, mapped in the address
/// space.
#[derive(Debug)]
pub struct SoftwareModule {
    kernels: HashMap<String, Arc<SoftwareKernel>>,
    /// Address and size of each variable in global or constant memory.
    placed: HashMap<String, (u64, u64)>,
    /// Bytes of variables in global and in constant memory.
    segments: (u64, u64),
    variables: Arc<VariableMappings>,
}

impl SoftwareModule {
    /// Returns the GPU virtual address and the size in bytes of the `.global` or `.const` variable
    /// `name`; `None` if the module has no such variable.
    pub fn variable(&self, name: &str) -> Option<(u64, u64)> {
        self.placed.get(name).copied()
    }

    /// Returns the bytes that all `.global` variables take, and those that all `.const` variables
    /// take.
    pub fn variables_bytes(&self) -> (u64, u64) {
        self.segments
    }
}

/// A kernel of a loaded module.
#[derive(Debug)]
pub(crate) struct SoftwareKernel {
    /// Operations of the kernel.
    pub(crate) program: Arc<Program>,
    /// Bytes of the module's `.const` variables.
    constant_bytes: u32,
    /// Version of PTX in which the module is written: 80 for 8.0.
    ptx_version: u32,
    /// Variables stay mapped as long as a kernel can be launched that may use them.
    _variables: Arc<VariableMappings>,
}

/// Where the variables of a module are mapped, until dropped.
#[derive(Debug)]
struct VariableMappings {
    state: Arc<SpaceState>,
    starts: Vec<u64>,
    /// Bytes of code and variables, and of what the kernels use of the address space.
    bytes: u64,
    /// The memory of the kernels, which is the device's as well.
    _code: Charge,
    /// The heap and the output, as long as a kernel can be launched that may use them.
    _system: SystemUse,
    /// Given back after the mappings are gone.
    _range: VariableRange,
}

impl Drop for VariableMappings {
    fn drop(&mut self) {
        for start in &self.starts {
            self.state.mappings.change(|table| table.without(*start));
        }
    }
}

/// Returns the most bytes of memory that a load of an image of `image_bytes` bytes needs while it
/// is under way.
pub(crate) fn load_bytes(image_bytes: u64) -> u64 {
    image_bytes.saturating_mul(LOAD_FACTOR).min(LOAD_BYTES_MAX)
}

/// Loads a module from its text, or from the texts of several that are linked. Reserves what the
/// module keeps before it is made, except for the code: that of each kernel as soon as it is made.
pub(crate) fn load(
    state: &Arc<SpaceState>,
    image: &[u8],
    reservation: &mut Reservation,
) -> Result<SoftwareModule, ModuleError> {
    if image.len() > IMAGE_BYTES_MAX {
        return Err(failed(format!(
            "the module image has {} bytes: back end software takes {IMAGE_BYTES_MAX} at most; \
             load its kernels as several modules",
            image.len()
        )));
    }
    let texts = image::texts(image).map_err(|e| failed(e.to_string()))?;
    let mut trees = ptx::parse_all(&texts).map_err(|(index, e)| {
        lower::within_input(index, texts.len(), ModuleError::new(e.line, e.reason))
    })?;
    library::add_to(&mut trees).map_err(|e| ModuleError::new(e.line, e.reason))?;
    let range = state
        .reserve_variables()
        .ok_or_else(|| failed("too many modules are loaded in this address space: unload one"))?;
    let variables = Variables::new(&trees, range.offset())?;
    reserve_variables(reservation, &variables)?;
    let compiles = state.device.compiles.load(Ordering::Relaxed);
    let mut compiler = compiles.then(|| Compiler::new(&state.stop));
    let mut programs = lower::lower(
        &trees,
        &variables,
        state.device.isa,
        &state.stop,
        |program| {
            let code = compiler.as_mut().map(|compiler| compiler.kernel(program));
            let what = format!("the code of kernel `{}` takes", program.name);
            reservation.memory(program.memory_bytes() + code.unwrap_or(0), &what)
        },
    )?;
    if let Some(compiler) = compiler.filter(Compiler::has_code) {
        map_code(state, compiler, reservation, &mut programs)?;
    }
    let system = begin_use(state, reservation, &programs)?;
    let code = programs.iter().map(Program::memory_bytes).sum::<u64>();
    let mappings = Arc::new(map_variables(state, &variables, (range, system), code)?);
    let newest = trees.iter().map(|tree| tree.version).max();
    let (major, minor) = newest.unwrap_or_default();
    let ptx_version = 10 * u32::from(major) + u32::from(minor);
    let kernels = programs.into_iter().map(|program| {
        let name = program.name.clone();
        let kernel = SoftwareKernel {
            program: Arc::new(program),
            constant_bytes: variables.constant.bytes,
            ptx_version,
            _variables: Arc::clone(&mappings),
        };
        (name, Arc::new(kernel))
    });
    Ok(SoftwareModule {
        kernels: kernels.collect(),
        placed: variables.placed(),
        segments: (
            u64::from(variables.global.bytes),
            u64::from(variables.constant.bytes),
        ),
        variables: mappings,
    })
}

/// Maps the machine code of the kernels. What it takes of the session's memory is reserved but for
/// what lies at its ends: a table, and the rest of a page.
fn map_code(
    state: &SpaceState,
    compiler: Compiler<'_>,
    reservation: &mut Reservation,
    programs: &mut [Program],
) -> Result<(), ModuleError> {
    const WHAT: &str = "the machine code of the module's kernels takes";
    let ends = "the table and the last page of the machine code take";
    reservation.memory(causeway_memory::PAGE_BYTES, ends)?;
    reservation.allocation(WHAT)?;
    if !compiler.finish(programs) {
        state.device.compiles.store(false, Ordering::Relaxed);
    }
    Ok(())
}

/// An error of the module as a whole, which has no line.
fn failed(reason: impl Into<String>) -> ModuleError {
    ModuleError::new(0, reason)
}

/// Reserves the memory of all variables, which are in one object.
fn reserve_variables(
    reservation: &mut Reservation,
    variables: &Variables<'_>,
) -> Result<(), ModuleError> {
    const WHAT: &str = "the module's variables take";
    match variables.bytes() {
        0 => Ok(()),
        bytes => {
            reservation.memory(bytes, WHAT)?;
            reservation.allocation(WHAT)
        }
    }
}

/// Reserves what the kernels use of the address space, and begins its use.
fn begin_use(
    state: &Arc<SpaceState>,
    reservation: &mut Reservation,
    programs: &[Program],
) -> Result<SystemUse, ModuleError> {
    let allocates = programs.iter().any(|program| program.allocates);
    let prints = programs.iter().any(|program| program.prints);
    if allocates {
        reservation.allocation("the heap for `malloc` takes")?;
    }
    let what = "the heap for `malloc` and the text of `printf` take";
    reservation.memory(SystemUse::bytes_of(allocates, prints), what)?;
    state
        .begin_use(allocates, prints)
        .map_err(|e| failed(format!("the heap for `malloc` cannot be mapped: {e}")))
}

fn map_variables(
    state: &Arc<SpaceState>,
    variables: &Variables<'_>,
    (range, system): (VariableRange, SystemUse),
    code_bytes: u64,
) -> Result<VariableMappings, ModuleError> {
    let code_bytes = code_bytes.next_multiple_of(causeway_memory::PAGE_BYTES);
    let charge = state.device.pool.charge(code_bytes);
    let charge = charge.ok_or_else(|| {
        failed(format!(
            "the module's code takes {code_bytes} bytes, which is more than the device has left"
        ))
    })?;
    let mut mappings = VariableMappings {
        state: Arc::clone(state),
        starts: Vec::new(),
        bytes: code_bytes + system.bytes(),
        _code: charge,
        _system: system,
        _range: range,
    };
    if variables.bytes() == 0 {
        return Ok(mappings);
    }
    let memory = variables_memory(state, variables.bytes())?;
    // Constants lie behind the other variables.
    let segments = [
        (variables.global, 0, Access::ReadWrite),
        (
            variables.constant,
            variables.global.mapped_bytes(),
            Access::Read,
        ),
    ];
    variables.initialize(|at, bytes| {
        for (segment, offset, _) in &segments {
            let range = segment.start..segment.start + u64::from(segment.bytes);
            if range.contains(&at) {
                let written = memory.mapping().write(offset + at - segment.start, bytes);
                debug_assert!(written.is_ok(), "variables lie within their segment");
            }
        }
    })?;
    for (segment, offset, access) in segments {
        let bytes = segment.mapped_bytes();
        if bytes == 0 {
            continue;
        }
        let entry = Entry::new(
            segment.start,
            Arc::clone(&memory) as _,
            offset,
            bytes,
            access,
        );
        let entry = entry.map(Entry::filled_by_copies);
        let mapped = entry.is_some_and(|entry| state.mappings.change(|table| table.with(entry)));
        if !mapped {
            return Err(failed("the module's variables cannot be mapped"));
        }
        mappings.starts.push(segment.start);
        mappings.bytes += bytes;
    }
    Ok(mappings)
}

/// Makes the memory of all variables of a module: one object, because each takes a file descriptor.
fn variables_memory(state: &SpaceState, bytes: u64) -> Result<Arc<HostMemory>, ModuleError> {
    let none = |why: String| failed(format!("the module's variables take {bytes} bytes: {why}"));
    let charge = state.device.pool.charge(bytes);
    let charge = charge.ok_or_else(|| none(String::from("the device has less memory left")))?;
    let memory = HostMemory::allocate(bytes, causeway_memory::PageSize::Large)
        .map_err(|e| none(e.to_string()))?;
    Ok(Arc::new(memory.charged(charge)))
}

impl Module for SoftwareModule {
    fn kernel(&self, name: &str) -> Option<Arc<dyn Kernel>> {
        let kernel = self.kernels.get(name)?;
        Some(Arc::clone(kernel) as Arc<dyn Kernel>)
    }

    fn kernels(&self) -> Vec<String> {
        let mut names: Vec<String> = self.kernels.keys().cloned().collect();
        names.sort();
        names
    }

    fn variable(&self, name: &str) -> Option<Variable> {
        let (address, bytes) = self.placed.get(name).copied()?;
        Some(Variable { address, bytes })
    }

    fn memory_bytes(&self) -> u64 {
        self.variables.bytes
    }
}

impl Kernel for SoftwareKernel {
    fn parameters(&self) -> &[Parameter] {
        &self.program.parameters
    }

    fn parameter_bytes(&self) -> u32 {
        self.program.parameter_bytes
    }

    fn block_threads_max(&self) -> u32 {
        self.program.threads_max
    }

    fn shared_bytes(&self) -> u32 {
        self.program.shared_bytes
    }

    fn dynamic_shared_bytes_max(&self) -> u32 {
        SHARED_BYTES_MAX.saturating_sub(self.program.dynamic_shared_offset)
    }

    fn cuda_attributes(&self) -> [Option<i32>; KERNEL_ATTRIBUTES] {
        let program = &self.program;
        let value = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let mut attributes = [Some(0); KERNEL_ATTRIBUTES];
        attributes[0] = Some(value(program.threads_max));
        attributes[1] = Some(value(program.shared_bytes));
        attributes[2] = Some(value(self.constant_bytes));
        attributes[3] = Some(value(program.stack.local));
        attributes[4] = Some(REGISTERS);
        // The version of PTX, and of the "machine code": the capability of the device.
        attributes[5] = Some(value(self.ptx_version));
        attributes[6] = Some(CAPABILITY);
        attributes[8] = Some(value(
            SHARED_BYTES_USUAL.saturating_sub(program.shared_bytes),
        ));
        // No preference for a part of shared memory.
        attributes[9] = Some(-1);
        let cluster = program.required_cluster.unwrap_or_default();
        for (attribute, side) in attributes[11..=13].iter_mut().zip(cluster) {
            *attribute = Some(value(side));
        }
        attributes
    }

    fn prints(&self) -> bool {
        self.program.prints
    }

    fn check_shape(&self, shape: &LaunchShape) -> Result<(), String> {
        let name = &self.program.name;
        if let Some(required) = self.program.required_threads
            && required != shape.block
        {
            return Err(format!(
                "block {:?}: kernel `{name}` requires {required:?}",
                shape.block
            ));
        }
        if let Some(cluster) = self.program.required_cluster
            && cluster != [1; 3]
        {
            return Err(format!(
                "kernel `{name}` requires clusters of {cluster:?} blocks: this device has clusters \
                 of one block only"
            ));
        }
        let bytes = footprint_bytes(&self.program, shape);
        if bytes > BLOCK_FOOTPRINT_MAX {
            return Err(format!(
                "{bytes} bytes of registers, local and shared memory for a block of kernel \
                 `{name}`: at most {BLOCK_FOOTPRINT_MAX}"
            ));
        }
        Ok(())
    }

    fn check_options(&self, shape: &LaunchShape, options: &LaunchOptions) -> Result<(), Fault> {
        refuse_clusters(options)?;
        if !is_cooperative(options) || fits_together(&self.program, shape) {
            return Ok(());
        }
        let text = format!(
            "kernel `{}` cannot be launched cooperatively: {:?} blocks of {:?} threads do not run \
             at the same time",
            self.program.name, shape.grid, shape.block
        );
        Err(Fault::new(Status::BadLaunch, text).with_cuda_result(COOPERATIVE_LAUNCH_TOO_LARGE))
    }

    /// The threads of the cores are left out: there are as many of them however many sessions there
    /// are.
    fn launch_bytes(&self, shape: &LaunchShape, options: &LaunchOptions) -> u64 {
        let bytes = thread_bytes(&self.program, shape, is_cooperative(options));
        bytes.saturating_sub(KEPT_BYTES as u64)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
