//! Libraries of kernels, which belong to no context (CUDA driver API, "Library Management").
//!
//! A device gets the code of a library when a program first asks for a part of it there.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::boundary::{In, Out, Text};
use crate::driver::{Driver, call_in_context, call_of, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::image::{self, Image, Target};
use crate::jit::Logs;
use crate::kernel::Kernel;
use crate::module::{self, Module, load, loads_early, read_file, target};

/// A library.
pub(crate) struct Library {
    handle: usize,
    /// Number of its kernels.
    kernels: usize,
    state: Mutex<State>,
}

struct State {
    /// The code, as long as a device may want it: a device alone wants it once.
    image: Option<Image>,
    /// The modules of the devices that have the code, by their numbers.
    modules: BTreeMap<usize, Arc<Module>>,
}

impl Library {
    /// Returns the module of this library on a device, which loads it if it has not done so.
    fn module(&self, driver: &'static Driver, logs: &Logs) -> Answer<Arc<Module>> {
        let mut state = self.state.lock();
        if let Some(module) = state.modules.get(&driver.ordinal) {
            return Ok(Arc::clone(module));
        }
        // Managed memory is one device's: another would have variables of its own.
        let mut others = state.modules.values();
        if others.any(|module| module.loaded.has_managed()) {
            log::error!(
                "a library with managed variables is loaded on another device: a process can use \
                 it on one device only"
            );
            return Err(Code::NOT_SUPPORTED);
        }
        let image = state.image.as_ref().ok_or(Code::INVALID_HANDLE)?;
        let loaded = load(driver, image, logs)?;
        let module = Module::new(driver, loaded, 0, self.handle);
        state.modules.insert(driver.ordinal, Arc::clone(&module));
        if Driver::all().len() == 1 {
            state.image = None;
        }
        Ok(module)
    }
}

fn find(driver: &'static Driver, handle: usize) -> Answer<Arc<Library>> {
    let found = driver.owner_of(handle).modules.libraries.lock().get(handle);
    found.ok_or(Code::INVALID_HANDLE)
}

/// Returns the kernel of a library that a handle of another device means, as `driver`'s device has
/// it.
#[cold]
pub(crate) fn kernel_on(driver: &Driver, handle: usize) -> Answer<Arc<Kernel>> {
    let driver = driver.lasting()?;
    let known = driver.owner_of(handle).modules.kernels.get(handle)?;
    if known.owner.library == 0 {
        return Err(Code::INVALID_HANDLE);
    }
    let module = module_of(driver, known.owner.library)?;
    let own = module.kernel(driver, &known.name_text())?;
    driver.modules.kernels.get(own)
}

/// Returns the module of a library.
fn module_of(driver: &'static Driver, handle: usize) -> Answer<Arc<Module>> {
    find(driver, handle)?.module(driver, &Logs::none())
}

/// Makes a library of an image. A log of the compiler can be written now only: its buffers may not
/// be there later.
fn create(
    driver: &'static Driver,
    into: Out<usize>,
    image: impl FnOnce(&Target) -> Answer<Image>,
    logs: &Logs,
) -> Answer {
    if into.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let target = target(driver);
    let image = image(&target)?.compiled(logs.compilation);
    image.check(&target)?;
    let library = Arc::new(Library {
        handle: driver.fresh_handle(),
        kernels: image.entries().len(),
        state: Mutex::new(State {
            image: Some(image),
            modules: BTreeMap::new(),
        }),
    });
    if loads_early() || logs.wants_errors() {
        library.module(driver, logs)?;
    } else {
        logs.write("")?;
    }
    let handle = library.handle;
    driver.modules.libraries.lock().put(handle, library);
    into.set(handle)
}

/// Refuses options of libraries that are unknown.
fn check_options(options: In<u32>, count: u32) -> Answer {
    if options.is_null() {
        return Ok(());
    }
    (0..count as usize).try_for_each(|index| match options.get_at(index)? {
        0 | 1 => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    })
}

/// Options of libraries say how long the caller keeps the image, and where its own tables are:
/// neither matters to a library that copies the image.
#[unsafe(no_mangle)]
extern "C" fn cuLibraryLoadData(
    library: Out<usize>,
    code: usize,
    options: In<u32>,
    values: Out<usize>,
    count: u32,
    library_options: In<u32>,
    _library_values: In<usize>,
    library_count: u32,
) -> u32 {
    call_unless_faulted(|driver| {
        let logs = Logs::of(count, options, values)?;
        check_options(library_options, library_count)?;
        create(driver, library, |target| image::at(code, target), &logs)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryLoadFromFile(
    library: Out<usize>,
    file: Text,
    options: In<u32>,
    values: Out<usize>,
    count: u32,
    library_options: In<u32>,
    _library_values: In<usize>,
    library_count: u32,
) -> u32 {
    call_unless_faulted(|driver| {
        let logs = Logs::of(count, options, values)?;
        check_options(library_options, library_count)?;
        let bytes = read_file(file)?;
        let image = |target: &Target| image::of(&&bytes[..], target);
        create(driver, library, image, &logs)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryUnload(library: usize) -> u32 {
    call_of(library, |driver| {
        let removed = driver.modules.libraries.lock().remove(library);
        let removed = removed.ok_or(Code::INVALID_HANDLE)?;
        for (ordinal, module) in &removed.state.lock().modules {
            let loaded_on = Driver::all().get(*ordinal).ok_or(Code::INVALID_HANDLE)?;
            module::unload(loaded_on, module);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryGetKernel(kernel: Out<usize>, library: usize, name: Text) -> u32 {
    call_unless_faulted(|driver| {
        let name = name.get()?;
        if kernel.is_null() || name.is_empty() {
            return Err(Code::INVALID_VALUE);
        }
        kernel.set(module_of(driver, library)?.kernel(driver, &name)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryGetKernelCount(count: Out<u32>, library: usize) -> u32 {
    call_unless_faulted(|driver| count.set(find(driver, library)?.kernels as u32))
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryEnumerateKernels(kernels: Out<usize>, room: u32, library: usize) -> u32 {
    call_unless_faulted(|driver| module_of(driver, library)?.enumerate(driver, kernels, room))
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryGetModule(module: Out<usize>, library: usize) -> u32 {
    call_in_context(|driver, _| module.set(module_of(driver, library)?.owner.module))
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryGetGlobal(
    address: Out<u64>,
    bytes: Out<usize>,
    library: usize,
    name: Text,
) -> u32 {
    call_in_context(|driver, _| {
        let module = module_of(driver, library)?;
        module::find_variable(driver, &module, name, address, bytes)
    })
}

/// Managed variables are those of the one device that has the library.
#[unsafe(no_mangle)]
extern "C" fn cuLibraryGetManaged(
    address: Out<u64>,
    bytes: Out<usize>,
    library: usize,
    name: Text,
) -> u32 {
    call_unless_faulted(|driver| {
        let module = module_of(driver, library)?;
        module::find_managed(&module, name, address, bytes)
    })
}
