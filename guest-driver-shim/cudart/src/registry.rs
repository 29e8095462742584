//! What nvcc's code registers before `main` (`crt/host_runtime.h`): fat binaries, their kernels and
//! variables, by addresses in the program that stand for them. A fat binary is loaded when one of
//! its kernels or variables is first needed, as a library of the driver, which every context of
//! every device has.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use causeway_cuda_abi::error::{Answer, Code};
use parking_lot::{Mutex, RwLock};

use crate::context::{device, in_context};
use crate::driver::driver;
use crate::error::{INVALID_DEVICE_FUNCTION, INVALID_SYMBOL, record};

/// A fat binary of the program. One that was registered lives as long as the process, since the
/// program keeps pointers to it.
#[derive(Debug)]
pub struct FatBinary {
    /// Address of its wrapper (`__fatBinC_Wrapper_t`), which the driver knows.
    wrapper: usize,
    /// The driver's library, once it is loaded.
    library: Mutex<Option<usize>>,
    /// Its managed variables, whose addresses the program has not been told yet.
    managed: Mutex<Vec<&'static Variable>>,
}

/// A kernel of the program. One that was registered lives as long as the process, too.
#[derive(Debug)]
pub struct Kernel {
    binary: &'static FatBinary,
    /// Address of the function of the program that launches it.
    host_function: usize,
    name: CString,
    /// The driver's `CUkernel`, or 0 until it is known.
    handle: AtomicUsize,
}

/// A `__device__`, `__constant__` or `__managed__` variable of the program.
#[derive(Debug)]
pub struct Variable {
    binary: &'static FatBinary,
    name: CString,
    /// Where the program wants the address of a managed variable; 0 if it is not managed.
    pointer: usize,
}

/// Kernels, by the address of the host function that launches each.
static KERNELS: RwLock<Option<HashMap<usize, &'static Kernel>>> = RwLock::new(None);
/// Those of `KERNELS` that were asked for last, each in the place that [`recent`] gives it. They
/// change only under its lock, so that none is here that is not there.
static RECENT: [AtomicPtr<Kernel>; 256] = [const { AtomicPtr::new(ptr::null_mut()) }; 256];
/// Variables, by the address of what stands for each in the program.
static VARIABLES: RwLock<Option<HashMap<usize, &'static Variable>>> = RwLock::new(None);

impl FatBinary {
    /// Returns the driver's library, which is loaded if it is not yet.
    fn library(&self) -> Answer<usize> {
        let known = *self.library.lock();
        if let Some(library) = known {
            return Ok(library);
        }
        let mut library = 0_usize;
        let place = &raw mut library;
        let (none, no_options) = (0_usize, 0_u32);
        // Not under the lock: see `context`.
        in_context(|| {
            driver!(cuLibraryLoadData(
                place,
                self.wrapper,
                none,
                none,
                no_options,
                none,
                none,
                no_options
            ))
        })
        .inspect_err(|code| tell_flags(*code))?;
        let first = *self.library.lock().get_or_insert(library);
        if first != library {
            // Another thread was faster.
            driver!(cuLibraryUnload(library))?;
        }
        Ok(first)
    }

    /// Tells the program where its managed variables are.
    fn place_managed(&self) -> Answer {
        let mut waiting = self.managed.lock();
        for variable in waiting.iter() {
            let (address, _) = variable.place()?;
            // SAFETY: nvcc's code has registered this place for a pointer, and accesses it only
            // after it has asked for this.
            unsafe { (variable.pointer as *mut usize).write(address) };
            // From now on the program names the variable by the address in the pointer.
            let mut variables = VARIABLES.write();
            variables.get_or_insert_default().insert(address, variable);
        }
        waiting.clear();
        Ok(())
    }
}

impl Kernel {
    /// Returns the driver's handle.
    ///
    /// # Errors
    /// The fat binary cannot be loaded, or does not have the kernel.
    #[inline]
    pub fn handle(&self) -> Answer<usize> {
        match self.handle.load(Ordering::Acquire) {
            0 => self.find(),
            known => Ok(known),
        }
    }

    #[cold]
    fn find(&self) -> Answer<usize> {
        let library = self.binary.library()?;
        self.binary.place_managed()?;
        let mut handle = 0_usize;
        driver!(cuLibraryGetKernel(
            &raw mut handle,
            library,
            self.name.as_ptr()
        ))
        .map_err(|code| match code {
            Code::NOT_FOUND => INVALID_DEVICE_FUNCTION,
            other => other,
        })?;
        self.handle.store(handle, Ordering::Release);
        Ok(handle)
    }
}

impl Variable {
    /// Returns its address and its size in bytes, in the current context.
    pub fn place(&self) -> Answer<(usize, usize)> {
        let library = self.binary.library()?;
        let (mut address, mut bytes) = (0_usize, 0_usize);
        let (at, size, name) = (&raw mut address, &raw mut bytes, self.name.as_ptr());
        let is_managed = self.pointer != 0;
        let found = in_context(|| match is_managed {
            false => driver!(cuLibraryGetGlobal(at, size, library, name)),
            true => driver!(cuLibraryGetManaged(at, size, library, name)),
        });
        found.map_err(|code| match code {
            Code::NOT_FOUND => INVALID_SYMBOL,
            other => other,
        })?;
        Ok((address, bytes))
    }
}

/// Returns the place of the kernel of a host function among those that were asked for last.
#[inline]
fn recent(host_function: usize) -> &'static AtomicPtr<Kernel> {
    // Most functions are at least 16 bytes apart. Two that have the same place displace each other.
    &RECENT[(host_function >> 4) % RECENT.len()]
}

/// Returns the kernel that the host function at `address` launches.
#[inline]
pub fn kernel(address: usize) -> Option<&'static Kernel> {
    // SAFETY: it is null, or points to a kernel that `__cudaRegisterFunction` has leaked: that is
    // never freed, and nothing of it changes but its atomic.
    match unsafe { recent(address).load(Ordering::Acquire).as_ref() } {
        Some(kernel) if kernel.host_function == address => Some(kernel),
        _ => look_up(address),
    }
}

/// Another kernel can be there from now on. `KERNELS` is locked.
fn forget(host_function: usize) {
    recent(host_function).store(ptr::null_mut(), Ordering::Release);
}

#[cold]
fn look_up(address: usize) -> Option<&'static Kernel> {
    let kernels = KERNELS.read();
    let kernel = *kernels.as_ref()?.get(&address)?;
    // Under the lock: nobody takes it away meanwhile.
    recent(address).store(ptr::from_ref(kernel).cast_mut(), Ordering::Release);
    Some(kernel)
}

/// Returns the kernels that the driver has: the host function of each, and the driver's handle.
pub fn loaded() -> Vec<(usize, usize)> {
    let kernels = KERNELS.read();
    let handle_of = |kernel: &Kernel| kernel.handle.load(Ordering::Acquire);
    let all = kernels.iter().flatten();
    let all = all.map(|(address, kernel)| (*address, handle_of(kernel)));
    all.filter(|(_, handle)| *handle != 0).collect()
}

/// Returns the variable that what is at `address` in the program stands for.
pub fn variable(address: usize) -> Answer<&'static Variable> {
    let variables = VARIABLES.read();
    let found = variables
        .as_ref()
        .and_then(|all| all.get(&address).copied());
    found.ok_or(INVALID_SYMBOL)
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(wrapper: usize) -> *const FatBinary {
    Box::leak(Box::new(FatBinary {
        wrapper,
        library: Mutex::new(None),
        managed: Mutex::new(Vec::new()),
    }))
}

/// Of what no header of 13.0 says more than the name.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterHostVar() {}

/// As before.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterUnifiedTable() {}

/// The program has registered everything of the fat binary.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_binary: &'static FatBinary) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(binary: &'static FatBinary) {
    let is_other = |of: &FatBinary| !ptr::eq(of, binary);
    if let Some(all) = KERNELS.write().as_mut() {
        for (_, gone) in all.extract_if(|_, kernel| !is_other(kernel.binary)) {
            forget(gone.host_function);
        }
    }
    if let Some(all) = VARIABLES.write().as_mut() {
        all.retain(|_, variable| is_other(variable.binary));
    }
    if let Some(library) = binary.library.lock().take() {
        // At the end of a process the driver may be gone already: nobody asks.
        let _ = driver!(cuLibraryUnload(library));
    }
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFunction(
    binary: &'static FatBinary,
    host_function: usize,
    _device_function: usize,
    device_name: *const c_char,
    _thread_limit: i32,
    _tid: usize,
    _bid: usize,
    _block: usize,
    _grid: usize,
    _warp_size: usize,
) {
    let kernel = Kernel {
        binary,
        host_function,
        name: name(device_name),
        handle: AtomicUsize::new(0),
    };
    let mut kernels = KERNELS.write();
    let all = kernels.get_or_insert_default();
    all.insert(host_function, Box::leak(Box::new(kernel)));
    forget(host_function);
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterVar(
    binary: &'static FatBinary,
    host_variable: usize,
    _device_address: usize,
    device_name: *const c_char,
    _is_external: i32,
    _bytes: usize,
    _is_constant: i32,
    _is_global: i32,
) {
    add_variable(&[host_variable], binary, device_name, 0);
}

/// `pointer` is where the program wants the variable's address; the variable itself is known by
/// this place, by what it holds until then, and by the address.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterManagedVar(
    binary: &'static FatBinary,
    pointer: usize,
    device_address: usize,
    device_name: *const c_char,
    _is_external: i32,
    _bytes: usize,
    _is_constant: i32,
    _is_global: i32,
) {
    let variable = add_variable(&[pointer, device_address], binary, device_name, pointer);
    binary.managed.lock().push(variable);
}

/// Tells the program, which is about to access one, where the managed variables of a fat binary
/// are. Returns whether they are there.
#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(binary: &'static FatBinary) -> c_char {
    c_char::from(record(binary.place_managed()) == 0)
}

fn add_variable(
    known_by: &[usize],
    binary: &'static FatBinary,
    device_name: *const c_char,
    pointer: usize,
) -> &'static Variable {
    let variable: &'static Variable = Box::leak(Box::new(Variable {
        binary,
        name: name(device_name),
        pointer,
    }));
    let mut variables = VARIABLES.write();
    let all = variables.get_or_insert_default();
    all.extend(known_by.iter().map(|&address| (address, variable)));
    variable
}

/// Says, once, how to build a program that has no code for the device.
#[cold]
fn tell_flags(code: Code) {
    static TOLD: Once = Once::new();
    if code != Code::NO_BINARY_FOR_GPU {
        return;
    }
    TOLD.call_once(|| {
        causeway_cuda_abi::logging::start("libcudart");
        match capability() {
            Ok((major, minor)) => log::error!(
                "the program has no code for this device, which wants PTX or machine code for \
                 compute capability {major}.{minor}: build it with \
                 nvcc -arch=compute_{major}{minor}, without -rdc=true"
            ),
            Err(_) => log::error!("the program has no code for this device: build it for it"),
        }
    });
}

/// Returns the compute capability of the thread's device.
fn capability() -> Answer<(i32, i32)> {
    /// Of `enum CUdevice_attribute`.
    const MAJOR: u32 = 75;
    const MINOR: u32 = 76;
    let (mut major, mut minor, device) = (0_i32, 0_i32, device());
    driver!(cuDeviceGetAttribute(&raw mut major, MAJOR, device))?;
    driver!(cuDeviceGetAttribute(&raw mut minor, MINOR, device))?;
    Ok((major, minor))
}

/// Copies a name of the program.
fn name(text: *const c_char) -> CString {
    // SAFETY: nvcc's code passes the address of a string in the program.
    unsafe { CStr::from_ptr(text) }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(binary: &'static FatBinary, host_function: usize, name: &CStr) {
        __cudaRegisterFunction(binary, host_function, 0, name.as_ptr(), 0, 0, 0, 0, 0, 0);
    }

    fn name_of(host_function: usize) -> Option<&'static CStr> {
        kernel(host_function).map(|kernel| kernel.name.as_c_str())
    }

    #[test]
    fn a_kernel_is_known_until_it_is_taken_away() {
        // SAFETY: fat binaries live as long as the process.
        let binary = || unsafe { &*__cudaRegisterFatBinary(0) };
        let (first, second) = (binary(), binary());
        // Both have the same place among the recent ones.
        let (here, there) = (0x10_0000, 0x10_0000 + 16 * RECENT.len());
        register(first, here, c"one");
        register(first, there, c"two");
        for _ in 0..3 {
            assert_eq!(name_of(here), Some(c"one"));
            assert_eq!(name_of(there), Some(c"two"));
        }
        // A library that is loaded where another was.
        register(second, there, c"three");
        assert_eq!(name_of(there), Some(c"three"));
        __cudaUnregisterFatBinary(second);
        assert_eq!([name_of(there), name_of(here)], [None, Some(c"one")]);
        __cudaUnregisterFatBinary(first);
        assert_eq!(name_of(here), None);
    }
}
