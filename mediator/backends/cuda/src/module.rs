//! Modules and kernels of a guest.

use std::any::Any;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use causeway_mediator::backend::{
    Fault, Kernel, LaunchOptions, LaunchShape, Module, ModuleError, Variable,
};
use causeway_protocol::Access;
use causeway_protocol::message::{KERNEL_ATTRIBUTES, Parameter, Status};
use parking_lot::Mutex;

use crate::driver::{CudaError, JitFailure, KernelHandle, LoadedModule, code, link_ptx};
use crate::image::{Cubin, Image, classify, refused};
use crate::space::mapping::Mapping;
use crate::space::state::SpaceState;
use crate::support::{Attribute, Support};

/// Most bytes of local memory that all threads of the GPU may have together: the driver takes it
/// when a kernel is launched, and no quota counts it.
const LOCAL_BYTES_MAX: u64 = 1 << 30;
/// Most parameters of a kernel: far more than fit a parameter block.
const PARAMETERS_MAX: usize = 4096;

/// Numbers of `CUfunction_attribute`.
mod attribute {
    pub(super) const THREADS_MAX: u32 = 0;
    pub(super) const SHARED_BYTES: u32 = 1;
    pub(super) const LOCAL_BYTES: u32 = 3;
    pub(super) const DYNAMIC_SHARED_BYTES_MAX: u32 = 8;
}

/// A loaded module. Queues hold the kernels whose launches are under way, and kernels hold this.
struct Body {
    loaded: Arc<LoadedModule>,
    state: Arc<SpaceState>,
}

/// A guest's module, with its kernels by name.
pub(crate) struct CudaModule {
    kernels: BTreeMap<String, Arc<CudaKernel>>,
    bytes: u64,
    /// The variables that were asked for, by name. They are in the table of the address space, so
    /// that copies can use them.
    variables: Mutex<BTreeMap<String, Variable>>,
    body: Arc<Body>,
}

impl Drop for CudaModule {
    /// Takes the variables out of the address space. The module stays loaded until work under way,
    /// which may still copy to them, is done.
    fn drop(&mut self) {
        let variables = std::mem::take(self.variables.get_mut());
        if variables.is_empty() {
            return;
        }
        let state = &self.body.state;
        let addresses = variables.values().map(|variable| variable.address);
        let removed = state.table.remove_variables(addresses);
        state.deferred.defer(Box::new(removed));
    }
}

/// A kernel of a guest's module, with what the driver says about it.
pub(crate) struct CudaKernel {
    pub(crate) handle: KernelHandle,
    /// Number of the kernel. The process never uses a number again, unlike the driver's handles.
    pub(crate) number: u64,
    /// Name of the kernel in its module.
    pub(crate) name: Arc<str>,
    parameters: Vec<Parameter>,
    parameter_bytes: u32,
    threads_max: u32,
    shared_bytes: u32,
    /// Dynamic shared memory that launches may have now, and the most that the device allows, in
    /// bytes.
    dynamic_bytes: AtomicU32,
    dynamic_bytes_max: u32,
    /// Dynamic shared memory that launches may have without opting in, in bytes.
    dynamic_bytes_usual: u32,
    body: Arc<Body>,
}

/// Loads a guest's image as a module of the address space `state`.
///
/// # Errors
/// [`ModuleError`]: the image is not valid, or needs more than the GPU has.
pub(crate) fn load(state: &Arc<SpaceState>, image: &[u8]) -> Result<CudaModule, ModuleError> {
    let alive = state.check_poison();
    alive.map_err(|error| refused(error.to_string()))?;
    let (loaded, bytes) = load_image(state, classify(image, state.gpu.support.architecture())?)?;
    let body = Arc::new(Body {
        loaded: Arc::new(loaded),
        state: Arc::clone(state),
    });
    Ok(CudaModule {
        kernels: kernels(&body)?,
        bytes,
        variables: Mutex::default(),
        body,
    })
}

/// Returns the module, and the memory that it takes.
fn load_image(state: &SpaceState, image: Image<'_>) -> Result<(LoadedModule, u64), ModuleError> {
    let context = &state.maker.context;
    match image {
        Image::Cubin(cubin) => load_cubin(state, &cubin),
        Image::Ptx(text) => {
            let linked = link_ptx(context, &text).map_err(|f| jit_error(&f, state))?;
            match Cubin::parse(&linked) {
                Ok(cubin) => load_cubin(state, &cubin),
                Err(error) => {
                    log::warn!(
                        "the CUDA driver compiled a guest's PTX module to an image of an unknown \
                         format; the module is loaded, but the GPU memory that it takes is only \
                         estimated: {error}"
                    );
                    load_measured(state, &text)
                }
            }
        }
    }
}

fn load_cubin(state: &SpaceState, cubin: &Cubin<'_>) -> Result<(LoadedModule, u64), ModuleError> {
    let bytes = cubin.loaded_bytes();
    let limit = state.gpu.memory_bytes;
    if bytes > limit {
        let text = format!(
            "the module takes {bytes} bytes of GPU memory, and guests can have {limit} bytes"
        );
        return Err(refused(text));
    }
    let loaded = LoadedModule::load(&state.maker.context, cubin.bytes);
    Ok((loaded.map_err(|f| jit_error(&f, state))?, bytes))
}

/// Loads an image that does not say how much memory it takes, and measures that. Memory that other
/// processes take meanwhile is measured, too.
fn load_measured(state: &SpaceState, image: &[u8]) -> Result<(LoadedModule, u64), ModuleError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let context = &state.maker.context;
    let before = context.free_bytes()?;
    let loaded = LoadedModule::load(context, image).map_err(|f| jit_error(&f, state))?;
    let bytes = before.saturating_sub(context.free_bytes()?);
    let bytes = bytes.max(image.len() as u64);
    Ok((loaded, bytes))
}

impl From<CudaError> for ModuleError {
    fn from(error: CudaError) -> Self {
        refused(error.to_string())
    }
}

/// Returns the refusal of an image with the log of the driver's compiler, and the line if the log
/// names one.
fn jit_error(failure: &JitFailure, state: &SpaceState) -> ModuleError {
    let architecture = state.gpu.support.architecture();
    let way_out: &str = match failure.error.code {
        code::CUDA_ERROR_NO_BINARY_FOR_GPU => {
            &format!("; this GPU is sm_{architecture}: give PTX or a cubin for it")
        }
        code::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "; compile for an older version of PTX, or install a newer driver"
        }
        code::CUDA_ERROR_JIT_COMPILER_NOT_FOUND => {
            "; install the driver's PTX compiler (libnvidia-ptxjitcompiler.so.1)"
        }
        _ => "",
    };
    let separator = if failure.log.is_empty() { "" } else { ": " };
    ModuleError {
        line: line(&failure.log),
        reason: format!("{}{way_out}{separator}{}", failure.error, failure.log),
    }
}

/// Returns the number behind the first "line" of the compiler's log; 0 if there is none.
fn line(log: &str) -> u32 {
    let mut words = log.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .find(|word| *word == "line")
        .and_then(|_| words.find(|word| !word.is_empty())?.parse().ok())
        .unwrap_or(0)
}

fn kernels(body: &Arc<Body>) -> Result<BTreeMap<String, Arc<CudaKernel>>, ModuleError> {
    let loaded = &body.loaded;
    let mut kernels = BTreeMap::new();
    for handle in loaded.functions()? {
        let name = loaded.name(handle)?;
        // By its name once more: a name that cannot be asked for is one that cannot be launched.
        let Ok(handle) = loaded.function(&name) else {
            continue;
        };
        let kernel = CudaKernel::new(body, handle, &name)?;
        kernels.insert(name, Arc::new(kernel));
    }
    Ok(kernels)
}

impl CudaKernel {
    fn new(body: &Arc<Body>, handle: KernelHandle, name: &str) -> Result<Self, ModuleError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let loaded = &body.loaded;
        let ask = |number| loaded.attribute(handle, number);
        let support = &body.state.gpu.support;
        let local_bytes = ask(attribute::LOCAL_BYTES)?;
        check_local(name, local_bytes, resident_threads(support))?;
        let (parameters, parameter_bytes) = parameters(loaded, handle, name)?;
        let shared_bytes = ask(attribute::SHARED_BYTES)?;
        let dynamic_bytes = ask(attribute::DYNAMIC_SHARED_BYTES_MAX)?;
        Ok(Self {
            handle,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            name: Arc::from(name),
            parameters,
            parameter_bytes,
            threads_max: ask(attribute::THREADS_MAX)?,
            shared_bytes,
            dynamic_bytes: AtomicU32::new(dynamic_bytes),
            dynamic_bytes_usual: dynamic_bytes,
            dynamic_bytes_max: support
                .count(Attribute::SharedOptIn)
                .saturating_sub(shared_bytes),
            body: Arc::clone(body),
        })
    }

    /// Allows launches of the kernel to have `bytes` bytes of dynamic shared memory. Returns a
    /// fault with status `BadLaunch` if the device does not allow so much.
    pub(crate) fn allow_dynamic(&self, bytes: u32) -> Result<(), Fault> {
        if bytes <= self.dynamic_bytes.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.opt_in().map_err(|error| {
            let text = format!(
                "kernel `{}` cannot have {bytes} bytes of dynamic shared memory: {error}",
                self.name
            );
            Fault::new(Status::BadLaunch, text).with_cuda_result(error.code)
        })
    }

    /// Asks once for all that the device allows.
    #[cold]
    fn opt_in(&self) -> Result<(), CudaError> {
        let most = self.dynamic_bytes_max;
        self.body
            .loaded
            .set_attribute(self.handle, attribute::DYNAMIC_SHARED_BYTES_MAX, most)?;
        self.dynamic_bytes.store(most, Ordering::Relaxed);
        Ok(())
    }
}

/// Refuses kernels whose local memory would take too much of the GPU when they are launched.
fn check_local(name: &str, bytes: u32, threads: u64) -> Result<(), ModuleError> {
    let all = u64::from(bytes).saturating_mul(threads);
    if all <= LOCAL_BYTES_MAX {
        return Ok(());
    }
    Err(refused(format!(
        "kernel `{name}` has {bytes} bytes of local memory for each thread, which is {all} bytes \
         for the {threads} threads that the GPU runs at once; at most {LOCAL_BYTES_MAX} bytes are \
         possible"
    )))
}

/// Refuses variables that are larger than the memory that their module is charged for: the guest
/// would reach what it has not been given.
fn check_variable(name: &str, bytes: u64, module_bytes: u64) -> Result<(), ModuleError> {
    if bytes <= module_bytes {
        return Ok(());
    }
    Err(refused(format!(
        "variable `{name}` has {bytes} bytes, and its module only {module_bytes}: \
         it is not given to the guest"
    )))
}

/// Threads that a GPU runs at once.
fn resident_threads(support: &Support) -> u64 {
    u64::from(support.count(Attribute::Multiprocessors))
        * u64::from(support.count(Attribute::ThreadsPerMultiprocessor))
}

/// Returns the layout of the parameter block, and its size.
fn parameters(
    loaded: &LoadedModule,
    handle: KernelHandle,
    name: &str,
) -> Result<(Vec<Parameter>, u32), ModuleError> {
    let mut parameters = Vec::new();
    let mut end = 0;
    while parameters.len() < PARAMETERS_MAX {
        let Some((offset, size)) = loaded.parameter(handle, parameters.len())? else {
            break;
        };
        let (Ok(offset), Ok(size)) = (u16::try_from(offset), u16::try_from(size)) else {
            return Err(refused(format!(
                "kernel `{name}` has a parameter of {size} bytes at offset {offset}: \
                 all parameters must lie within 64 KiB"
            )));
        };
        end = end.max(u32::from(offset) + u32::from(size));
        parameters.push(Parameter { offset, size });
    }
    Ok((parameters, end))
}

impl Module for CudaModule {
    fn kernel(&self, name: &str) -> Option<Arc<dyn Kernel>> {
        let kernel = self.kernels.get(name)?;
        Some(Arc::clone(kernel) as _)
    }

    fn kernels(&self) -> Vec<String> {
        self.kernels.keys().cloned().collect()
    }

    /// The driver is asked once for each name.
    fn variable(&self, name: &str) -> Option<Variable> {
        let mut variables = self.variables.lock();
        let place = match variables.entry(name.to_owned()) {
            Entry::Occupied(known) => return Some(*known.get()),
            Entry::Vacant(place) => place,
        };
        let found = self.body.loaded.variable(name);
        let found = found.inspect_err(|e| log::debug!("cannot find variable `{name}`: {e}"));
        let (address, bytes) = found.ok().flatten()?;
        check_variable(name, bytes, self.bytes)
            .inspect_err(|e| log::warn!("{e}"))
            .ok()?;
        let mapping = Arc::new(Mapping::variable(&self.body.loaded));
        if bytes != 0 {
            let table = &self.body.state.table;
            let mapped = table.insert(address, bytes, Access::ReadWrite, mapping);
            mapped
                .inspect_err(|e| log::warn!("variable `{name}` of a module overlaps: {e}"))
                .ok()?;
        }
        Some(*place.insert(Variable { address, bytes }))
    }

    fn memory_bytes(&self) -> u64 {
        self.bytes
    }
}

impl Kernel for CudaKernel {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn parameter_bytes(&self) -> u32 {
        self.parameter_bytes
    }

    fn block_threads_max(&self) -> u32 {
        self.threads_max
    }

    fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    fn cuda_attributes(&self) -> [Option<i32>; KERNEL_ATTRIBUTES] {
        let loaded = &self.body.loaded;
        let mut number = 0;
        let mut attributes = [(); KERNEL_ATTRIBUTES].map(|()| {
            number += 1;
            loaded.signed_attribute(self.handle, number - 1).ok()
        });
        // What launches were allowed meanwhile is an affair of this back end.
        let usual = i32::try_from(self.dynamic_bytes_usual).ok();
        attributes[attribute::DYNAMIC_SHARED_BYTES_MAX as usize] = usual;
        attributes
    }

    fn dynamic_shared_bytes_max(&self) -> u32 {
        let without_opt_in = self.dynamic_bytes.load(Ordering::Relaxed);
        without_opt_in.max(self.dynamic_bytes_max)
    }

    /// The driver knows which options the GPU has, and says so at the launch.
    fn check_options(&self, _: &LaunchShape, _: &LaunchOptions) -> Result<(), Fault> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_memory_of_all_threads_is_bounded() {
        let h200 = 132 * 2048;
        assert!(check_local("deep", 3968, h200).is_ok());
        let refused = check_local("deep", 8192, h200).unwrap_err();
        for part in ["`deep`", "8192", "2214592512", "270336", "1073741824"] {
            assert!(refused.reason.contains(part), "{refused}");
        }
        assert!(check_local("absurd", u32::MAX, u64::MAX).is_err());
    }

    #[test]
    fn variables_are_no_larger_than_their_module() {
        assert!(check_variable("fits", 1024, 1024).is_ok());
        let refused = check_variable("patched", 64 << 30, 1024).unwrap_err();
        for part in ["`patched`", "68719476736", "1024"] {
            assert!(refused.reason.contains(part), "{refused}");
        }
    }

    #[test]
    fn the_line_is_found_in_the_compilers_log() {
        for (log, number) in [
            (
                "ptxas application ptx input, line 12; error   : Unknown symbol 'x'",
                12,
            ),
            ("ptxas fatal   : Ptx assembly aborted due to errors", 0),
            ("line", 0),
            ("line x", 0),
            ("", 0),
            ("line 3: unknown opcode", 3),
        ] {
            assert_eq!(line(log), number, "{log}");
        }
    }
}
