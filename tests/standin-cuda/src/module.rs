//! Modules and their functions (CUDA driver API, "Module Management").

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use causeway_mediator::backend::{Module as _, ModuleError};
use causeway_mediator::linked;
use causeway_software::SoftwareModule;

use crate::attributes::SHARED_BYTES;
use crate::boundary::{In, Out, Text};
use crate::context::Context;
use crate::driver::{Charge, Driver, call_in_context, lock};
use crate::error::{Answer, Code};
use crate::function::Kernel;
use crate::image::{Bytes, Image, inspect, wrapped};

/// The highest PTX ISA that the driver takes: that of CUDA 13.0.
pub(crate) const PTX_VERSION_MAX: (u32, u32) = (9, 0);

/// What separates texts that are linked when they are loaded.
pub(crate) const BETWEEN_TEXTS: &str = "\u{1e}";

/// Whether a module was loaded. Programs can have kernels of their own, and load them when they
/// begin.
static HAS_LOADED: AtomicBool = AtomicBool::new(false);

/// A module of a context.
pub(crate) struct Module {
    pub(crate) context: usize,
    module: Arc<SoftwareModule>,
    kernels: Mutex<HashMap<String, usize>>,
    _charge: Charge,
}

/// Where a client wants to read what the compiler says (`CU_JIT_…_LOG_BUFFER` and its size).
pub(crate) struct Logs {
    error: usize,
    error_room: usize,
    /// Where the size is to be replaced by the bytes written.
    sizes: Vec<usize>,
    error_size: Option<usize>,
}

impl Logs {
    /// Reads the options of a call. Those that steer a compiler have no effect here.
    pub(crate) fn of(count: u32, options: In<u32>, values: Out<usize>) -> Answer<Self> {
        let mut logs = Self {
            error: 0,
            error_room: 0,
            sizes: Vec::new(),
            error_size: None,
        };
        for (index, option) in options.list(count as usize)?.into_iter().enumerate() {
            let slot = values.address_of(index)?;
            match option {
                4 => logs.sizes.push(slot),
                5 => logs.error = In::at(slot).get()?,
                // A size is 32 bits in the slot of a pointer.
                6 => {
                    logs.error_room = In::<usize>::at(slot).get()? & 0xffff_ffff;
                    logs.error_size = Some(slot);
                }
                _ => {}
            }
        }
        Ok(logs)
    }

    /// Writes what went wrong.
    pub(crate) fn write(&self, text: &str) -> Answer {
        for size in &self.sizes {
            Out::<usize>::at(*size).set(0)?;
        }
        let mut written = 0;
        if !text.is_empty() && self.error != 0 && self.error_room != 0 {
            written = Out::<u8>::at(self.error).set_text(text, self.error_room)?;
        }
        match self.error_size {
            Some(size) => Out::<usize>::at(size).set(written),
            None => Ok(()),
        }
    }
}

/// An image somewhere in the client's memory. It is as long as its content says.
struct Unbounded(usize);

impl Bytes for Unbounded {
    fn get(&self, offset: u64, count: u64) -> Option<Vec<u8>> {
        // Anything longer is no image, but garbage taken for one.
        if count > 1 << 30 {
            return None;
        }
        let start = self.0.checked_add(usize::try_from(offset).ok()?)?;
        In::<u8>::at(start).list(usize::try_from(count).ok()?).ok()
    }
}

/// The PTX text of an image.
pub(crate) fn text_of(driver: &Driver, image: Image) -> Answer<String> {
    match image {
        Image::Ptx(text) => Ok(text),
        Image::OtherDevice => Err(Code::NO_BINARY_FOR_GPU),
        Image::MachineCode => {
            let capability = driver.capability();
            eprintln!("stand-in driver: machine code for {capability} cannot be executed here");
            Err(Code::NOT_SUPPORTED)
        }
        Image::Unknown => Err(Code::INVALID_IMAGE),
    }
}

fn read(driver: &Driver, image: usize) -> Answer<String> {
    if image == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let start = match wrapped(&Unbounded(image)) {
        Some(fat) => fat as usize,
        None => image,
    };
    if let Some(found) = inspect(&Unbounded(start), driver.capability().cast_unsigned()) {
        return text_of(driver, found);
    }
    Text::at(start).get().map_err(|_| Code::INVALID_IMAGE)
}

/// What the driver's compiler says of a module that the engine refuses.
pub(crate) fn explain(error: &ModuleError) -> String {
    format!(
        "ptxas application ptx input, line {}; error   : {}\nptxas fatal   : Ptx assembly aborted due to errors\n",
        error.line, error.reason
    )
}

/// Returns the word behind the first `name`.
fn directive<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let rest = text.split(name).nth(1)?;
    rest.split_whitespace().next()
}

/// Returns the version of PTX that text is written in.
pub(crate) fn version_of(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = directive(text, ".version")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Refuses text for a later driver or another device before it is parsed.
pub(crate) fn check_text(driver: &Driver, text: &str) -> Answer {
    if directive(text, ".version").is_none() {
        // An image that is no PTX at all.
        return Err(Code::INVALID_IMAGE);
    }
    if version_of(text).is_some_and(|version| version > PTX_VERSION_MAX) {
        return Err(Code::UNSUPPORTED_PTX_VERSION);
    }
    let target = directive(text, ".target").and_then(|target| target.strip_prefix("sm_"));
    let digits = target.map(|target| target.trim_end_matches(|c: char| !c.is_ascii_digit()));
    let target =
        digits.and_then(|target| target.split([',', 'a', 'f']).next()?.parse::<i32>().ok());
    if target.is_some_and(|target| target > driver.capability()) {
        return Err(Code::INVALID_PTX);
    }
    Ok(())
}

/// Loads text into a device.
pub(crate) fn load_text(
    driver: &Driver,
    device: usize,
    text: &str,
) -> Answer<Result<Arc<SoftwareModule>, ModuleError>> {
    let texts: Vec<&str> = text.split(BETWEEN_TEXTS).collect();
    texts.iter().try_for_each(|text| check_text(driver, text))?;
    let space = &driver.devices[device].space;
    Ok(match texts[..] {
        [text] => space.load(text.as_bytes()),
        _ => space.load(&several(&texts)),
    })
}

/// Returns an image of several texts, as the engine takes it.
fn several(texts: &[&str]) -> Vec<u8> {
    let mut image = linked::MAGIC.to_vec();
    image.extend_from_slice(&(texts.len() as u64).to_le_bytes());
    for text in texts {
        image.extend_from_slice(&(text.len() as u64).to_le_bytes());
        image.extend_from_slice(text.as_bytes());
        image.resize(image.len().next_multiple_of(8), 0);
    }
    image
}

fn load(
    (driver, context): (&'static Driver, &Context),
    module: Out<usize>,
    image: usize,
    logs: &Logs,
) -> Answer {
    if module.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let text = read(driver, image)?;
    let loaded = match load_text(driver, context.device, &text)? {
        Ok(loaded) => loaded,
        Err(error) => {
            logs.write(&explain(&error))?;
            return Err(Code::INVALID_PTX);
        }
    };
    let made = Module {
        context: context.handle,
        kernels: Mutex::default(),
        _charge: driver.charge(context.device, loaded.memory_bytes())?,
        module: loaded,
    };
    logs.write("")?;
    module.set(driver.state().modules.insert(Arc::new(made)))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: Out<usize>, image: usize) -> u32 {
    cuModuleLoadDataEx(module, image, 0, In::at(0), Out::at(0))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadFatBinary(module: Out<usize>, image: usize) -> u32 {
    cuModuleLoadDataEx(module, image, 0, In::at(0), Out::at(0))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    module: Out<usize>,
    image: usize,
    count: u32,
    options: In<u32>,
    values: Out<usize>,
) -> u32 {
    call_in_context(|driver, context| {
        let logs = Logs::of(count, options, values)?;
        if HAS_LOADED.swap(true, Ordering::Relaxed) {
            driver.settings.hang_for(driver.settings.hang_load);
        }
        load((driver, context), module, image, &logs)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: usize) -> u32 {
    call_in_context(|driver, context| {
        driver.await_work_of(context.handle, "a module is unloaded");
        let mut state = driver.state();
        let removed = state.modules.remove(module).ok_or(Code::INVALID_HANDLE)?;
        let kernels = state.kernels.take(|kernel| kernel.module == module);
        drop(state);
        drop((removed, kernels));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetLoadingMode(mode: Out<u32>) -> u32 {
    // CU_MODULE_EAGER_LOADING
    crate::driver::call(|_| mode.set(1))
}

fn kernel_handle(driver: &Driver, handle: usize, name: &str) -> Answer<usize> {
    let mut state = driver.state();
    let module = state.modules.get(handle).ok_or(Code::INVALID_HANDLE)?;
    let mut known = lock(&module.kernels);
    if let Some(known) = known.get(name) {
        return Ok(*known);
    }
    let function = module.module.kernel(name).ok_or(Code::NOT_FOUND)?;
    let device = state.contexts.get(module.context);
    let device = device.ok_or(Code::CONTEXT_IS_DESTROYED)?.device;
    let static_bytes = function.shared_bytes();
    let made = Kernel {
        context: module.context,
        device,
        function,
        dynamic_shared_max: AtomicU32::new(SHARED_BYTES.saturating_sub(static_bytes)),
        module: handle,
        name: name.to_owned(),
        c_name: [name.as_bytes(), b"\0"].concat().into(),
    };
    let kernel = state.kernels.insert(Arc::new(made));
    known.insert(name.to_owned(), kernel);
    Ok(kernel)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(function: Out<usize>, module: usize, name: Text) -> u32 {
    call_in_context(|driver, _| {
        let name = name.get()?;
        if function.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        function.set(kernel_handle(driver, module, &name)?)
    })
}

fn kernels_of(driver: &Driver, module: usize) -> Answer<Vec<String>> {
    let module = driver.state().modules.get(module);
    Ok(module.ok_or(Code::INVALID_HANDLE)?.module.kernels())
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunctionCount(count: Out<u32>, module: usize) -> u32 {
    call_in_context(|driver, _| count.set(kernels_of(driver, module)?.len() as u32))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleEnumerateFunctions(functions: Out<usize>, room: u32, module: usize) -> u32 {
    call_in_context(|driver, _| {
        let names = kernels_of(driver, module)?;
        for (index, name) in names.iter().take(room as usize).enumerate() {
            functions.set_at(index, kernel_handle(driver, module, name)?)?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetGlobal_v2(
    address: Out<u64>,
    bytes: Out<usize>,
    module: usize,
    name: Text,
) -> u32 {
    call_in_context(|driver, _| {
        let name = name.get()?;
        let module = driver.state().modules.get(module);
        let module = module.ok_or(Code::INVALID_HANDLE)?;
        let (at, size) = module.module.variable(&name).ok_or(Code::NOT_FOUND)?;
        address.set_if_wanted(at);
        bytes.set_if_wanted(size as usize);
        Ok(())
    })
}
