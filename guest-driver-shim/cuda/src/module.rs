//! Modules and their functions (CUDA driver API, "Module Management").

mod loading;
mod variable;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::boundary::{In, Out, Text};
use crate::context::Context;
use crate::driver::{Driver, call, call_about, call_in_context, call_of};
use crate::error::{Answer, Code};
use crate::handles::Handles;
use crate::image::{self, Image, Target};
use crate::jit::Logs;
use crate::kernel::{Kernel, Kernels, Owner};
use crate::library::Library;
use crate::link::Linker;
use crate::rings::Rings;

pub(crate) use loading::{Loaded, check, load, loads_early, read_file, target};
pub(crate) use variable::{find as find_variable, find_managed};

/// `CU_MODULE_EAGER_LOADING` and `CU_MODULE_LAZY_LOADING`
const LOADING_MODES: (u32, u32) = (1, 2);

/// All code of a device.
pub(crate) struct Modules {
    pub(crate) table: Mutex<Handles<Module>>,
    pub(crate) libraries: Mutex<Handles<Library>>,
    pub(crate) linkers: Mutex<Handles<Mutex<Linker>>>,
    pub(crate) kernels: Kernels,
}

impl Modules {
    /// Returns an empty table. Handles of kernels have these bits.
    pub(crate) fn new(handle_bits: usize) -> Self {
        Self {
            table: Mutex::default(),
            libraries: Mutex::default(),
            linkers: Mutex::default(),
            kernels: Kernels::new(handle_bits),
        }
    }

    /// Unloads the modules of a context.
    pub(crate) fn end_of_context(&self, rings: &Rings, context: usize) {
        let ended = self
            .table
            .lock()
            .take(|module| module.owner.context == context);
        for module in &ended {
            self.kernels.remove_module(rings, module.owner.module);
        }
        self.linkers
            .lock()
            .take(|linker| linker.lock().context == context);
    }
}

/// A module: loaded code, and the functions that were asked for.
pub(crate) struct Module {
    pub(crate) owner: Owner,
    pub(crate) loaded: Arc<Loaded>,
    /// Handles of functions by name.
    kernels: Mutex<BTreeMap<String, usize>>,
}

impl Module {
    /// Makes a module of loaded code, with a handle.
    pub(crate) fn new(
        driver: &Driver,
        loaded: Loaded,
        context: usize,
        library: usize,
    ) -> Arc<Self> {
        let owner = Owner {
            module: driver.fresh_handle(),
            context,
            library,
        };
        let made = Arc::new(Self {
            owner,
            loaded: Arc::new(loaded),
            kernels: Mutex::default(),
        });
        let mut table = driver.modules.table.lock();
        table.put(owner.module, Arc::clone(&made));
        made
    }

    /// Returns the handle of the function `name`.
    pub(crate) fn kernel(&self, driver: &Driver, name: &str) -> Answer<usize> {
        let mut known = self.kernels.lock();
        if let Some(known) = known.get(name) {
            return Ok(*known);
        }
        let kernel = Kernel::find_in(driver, &self.loaded, self.owner, name)?;
        let handle = driver.modules.kernels.insert(kernel)?;
        known.insert(name.to_owned(), handle);
        Ok(handle)
    }

    /// Puts the handles of the first `room` functions.
    pub(crate) fn enumerate(&self, driver: &Driver, into: Out<usize>, room: u32) -> Answer {
        for (index, entry) in self.loaded.entries().iter().take(room as usize).enumerate() {
            into.set_at(index, self.kernel(driver, &entry.name)?)?;
        }
        Ok(())
    }
}

/// Returns the module of a handle.
pub(crate) fn find(driver: &Driver, handle: usize) -> Answer<Arc<Module>> {
    let found = driver.modules.table.lock().get(handle);
    found.ok_or(Code::INVALID_HANDLE)
}

/// Ends a module and the handles of its functions. The code stays on the device until the work that
/// uses it is done.
pub(crate) fn unload(driver: &Driver, module: &Module) {
    // Waiting prints. The device keeps only some text of modules that it has no more; a fault shows
    // in later calls, too.
    if driver.output.is_expected()
        && let Err(code) = driver.rings.drain(driver)
    {
        log::debug!(
            "text of kernels may be lost with their module: error {}",
            code.0
        );
    }
    driver.modules.table.lock().remove(module.owner.module);
    let kernels = &driver.modules.kernels;
    kernels.remove_module(&driver.rings, module.owner.module);
}

fn load_into(
    (driver, context): (&'static Driver, &Context),
    module: Out<usize>,
    image: impl FnOnce(&Target) -> Answer<Image>,
    logs: &Logs,
) -> Answer {
    if module.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let image = image(&target(driver))?;
    let loaded = load(driver, &image, logs)?;
    module.set(Module::new(driver, loaded, context.handle, 0).owner.module)
}

fn load_at(module: Out<usize>, address: usize) -> u32 {
    call_in_context(|driver, context| {
        let image = |target: &Target| image::at(address, target);
        load_into((driver, context), module, image, &Logs::none())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoad(module: Out<usize>, file: Text) -> u32 {
    call_in_context(|driver, context| {
        let bytes = read_file(file)?;
        let image = |target: &Target| image::of(&&bytes[..], target);
        load_into((driver, context), module, image, &Logs::none())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: Out<usize>, image: usize) -> u32 {
    load_at(module, image)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadFatBinary(module: Out<usize>, image: usize) -> u32 {
    load_at(module, image)
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
        let image = |target: &Target| image::at(image, target);
        load_into((driver, context), module, image, &logs)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: usize) -> u32 {
    call_about(module, |driver| {
        let module = find(driver, module)?;
        if module.owner.library != 0 {
            // It ends with its library.
            return Err(Code::NOT_PERMITTED);
        }
        driver.captures.check_unsafe()?;
        unload(driver, &module);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetLoadingMode(mode: Out<u32>) -> u32 {
    call(|_| {
        let (eager, lazy) = LOADING_MODES;
        mode.set(if loads_early() { eager } else { lazy })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(function: Out<usize>, module: usize, name: Text) -> u32 {
    call_of(module, |driver| {
        let name = name.get()?;
        if function.is_null() || name.is_empty() {
            return Err(Code::INVALID_VALUE);
        }
        function.set(find(driver, module)?.kernel(driver, &name)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunctionCount(count: Out<u32>, module: usize) -> u32 {
    call_about(module, |driver| {
        let module = find(driver, module)?;
        count.set(module.loaded.entries().len() as u32)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleEnumerateFunctions(functions: Out<usize>, room: u32, module: usize) -> u32 {
    call_about(module, |driver| {
        find(driver, module)?.enumerate(driver, functions, room)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetGlobal_v2(
    address: Out<u64>,
    bytes: Out<usize>,
    module: usize,
    name: Text,
) -> u32 {
    call_about(module, |driver| {
        let module = find(driver, module)?;
        find_variable(driver, &module, name, address, bytes)
    })
}
