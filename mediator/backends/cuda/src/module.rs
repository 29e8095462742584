//! Modules and kernels of a guest.

mod loading;

use std::any::Any;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use causeway_mediator::backend::{
    Fault, Kernel, LaunchOptions, LaunchShape, Module, ModuleError, Reservation, Variable,
};
use causeway_protocol::Access;
use causeway_protocol::message::{KERNEL_ATTRIBUTES, Parameter, Status};
use parking_lot::Mutex;

use crate::driver::{CudaError, KernelHandle, LoadedModule};
use crate::image::{classify, refused};
use crate::output::KEPT_BYTES;
use crate::space::mapping::Mapping;
use crate::space::state::SpaceState;
use crate::support::{Attribute, Support};

/// Most local memory that all threads of the GPU may have together: this part of the GPU's memory,
/// or what guests may allocate if that is less, but at least [`LOCAL_BYTES`]. The driver takes it
/// when a kernel is launched, and no quota counts it.
const LOCAL_SHARE: u64 = 32;
const LOCAL_BYTES: u64 = 1 << 30;
/// Most parameters of a kernel: far more than fit a parameter block.
const PARAMETERS_MAX: usize = 4096;

/// Numbers of `CUfunction_attribute`.
mod attribute {
    pub(super) const THREADS_MAX: u32 = 0;
    pub(super) const SHARED_BYTES: u32 = 1;
    pub(super) const LOCAL_BYTES: u32 = 3;
    pub(super) const DYNAMIC_SHARED_BYTES_MAX: u32 = 8;
}

/// How compilers call the function that prints, in the code of modules.
const PRINTF: &[u8] = b"vprintf";
const CANNOT_PRINT: &str = "a kernel of the module prints (vprintf), and the host's process that \
                            runs it cannot take the text: it must be a worker process, as with \
                            --gpu cuda,isolation=process, and have a file descriptor left for a \
                            pipe (its log says so otherwise)";

/// A loaded module. Queues hold the kernels whose launches are under way, and kernels hold this.
struct Body {
    loaded: Arc<LoadedModule>,
    /// Whether kernels of the module may print.
    prints: bool,
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
/// [`ModuleError`]: the image is not valid, or needs more than the GPU or the session has.
pub(crate) fn load(
    state: &Arc<SpaceState>,
    image: &[u8],
    reservation: &mut Reservation,
) -> Result<CudaModule, ModuleError> {
    let alive = state.check_poison();
    alive.map_err(|error| refused(error.to_string()))?;
    let prints = mentions_printf(image);
    if prints && !state.expect_output()? {
        return Err(refused(CANNOT_PRINT));
    }
    let classified = classify(image, state.gpu.support.architecture())?;
    let (loaded, bytes) = loading::load(state, classified, reservation)?;
    let body = Arc::new(Body {
        loaded: Arc::new(loaded),
        prints,
        state: Arc::clone(state),
    });
    Ok(CudaModule {
        kernels: kernels(&body)?,
        bytes,
        variables: Mutex::default(),
        body,
    })
}

/// Returns whether the code of `image` names the function that prints. Text and symbols are as they
/// are in an image: what is compressed is refused.
fn mentions_printf(image: &[u8]) -> bool {
    image.windows(PRINTF.len()).any(|window| window == PRINTF)
}

impl From<CudaError> for ModuleError {
    fn from(error: CudaError) -> Self {
        refused(error.to_string())
    }
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
        let memory_bytes = body.state.gpu.device.memory_bytes()?;
        let share = (memory_bytes / LOCAL_SHARE).min(body.state.gpu.memory_bytes);
        let local_bytes_max = share.max(LOCAL_BYTES);
        check_local(
            name,
            local_bytes,
            resident_threads(support),
            local_bytes_max,
        )?;
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
fn check_local(name: &str, bytes: u32, threads: u64, bytes_max: u64) -> Result<(), ModuleError> {
    let all = u64::from(bytes).saturating_mul(threads);
    if all <= bytes_max {
        return Ok(());
    }
    Err(refused(format!(
        "kernel `{name}` has {bytes} bytes of local memory for each thread, which is {all} bytes \
         for the {threads} threads that the GPU runs at once; at most {bytes_max} bytes are \
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

    /// The text that is kept counts, too: for every module that prints, because the last one may
    /// stay.
    fn memory_bytes(&self) -> u64 {
        let text = if self.body.prints { KEPT_BYTES } else { 0 };
        self.bytes + text as u64
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

    fn prints(&self) -> bool {
        self.body.prints
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
        assert!(check_local("deep", 3968, h200, 1 << 30).is_ok());
        let refused = check_local("deep", 8192, h200, 1 << 30).unwrap_err();
        for part in ["`deep`", "8192", "2214592512", "270336", "1073741824"] {
            assert!(refused.reason.contains(part), "{refused}");
        }
        assert!(check_local("absurd", u32::MAX, u64::MAX, 1 << 30).is_err());
    }

    #[test]
    fn variables_are_no_larger_than_their_module() {
        assert!(check_variable("fits", 1024, 1024).is_ok());
        let refused = check_variable("patched", 64 << 30, 1024).unwrap_err();
        for part in ["`patched`", "68719476736", "1024"] {
            assert!(refused.reason.contains(part), "{refused}");
        }
    }
}
