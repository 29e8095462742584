//! Looking for functions by name (CUDA driver API, "Driver Entry Point Access").

use std::ffi::CString;
use std::sync::OnceLock;

use crate::boundary::{Out, Text};
use crate::driver::answer;
use crate::error::Code;

/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`
const NOT_FOUND: u32 = 1;

/// This library, as the loader knows it; 0 if it does not.
fn library() -> usize {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    *LIBRARY.get_or_init(|| {
        // SAFETY: zero bytes are a value of the structure, which the call then fills.
        let mut own: libc::Dl_info = unsafe { std::mem::zeroed() };
        let address = cuGetProcAddress_v2 as *const libc::c_void;
        // SAFETY: any address may be asked for; the name that comes back stays.
        if unsafe { libc::dladdr(address, &mut own) } == 0 {
            return 0;
        }
        // SAFETY: the library is loaded already.
        unsafe { libc::dlopen(own.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) as usize }
    })
}

fn address(name: &str) -> Option<usize> {
    let library = library() as *mut libc::c_void;
    let name = CString::new(name).ok()?;
    // SAFETY: a library that stays loaded, and a name that ends in NUL.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!library.is_null() && !found.is_null()).then_some(found as usize)
}

/// The newest version of a function that this driver has.
#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    name: Text,
    function: Out<usize>,
    _version: i32,
    flags: u64,
    status: Out<u32>,
) -> u32 {
    answer(|| {
        let name = name.get()?;
        if function.is_null() || flags > 2 || !name.starts_with("cu") {
            return Err(Code::INVALID_VALUE);
        }
        let versions = ["_v4", "_v3", "_v2", ""];
        let mut names = versions.iter().map(|version| format!("{name}{version}"));
        let found = names.find_map(|name| address(&name));
        status.set_if_wanted(if found.is_some() { 0 } else { NOT_FOUND });
        function.set(found.unwrap_or(0))?;
        found.map(drop).ok_or(Code::NOT_FOUND)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(name: Text, function: Out<usize>, version: i32, flags: u64) -> u32 {
    cuGetProcAddress_v2(name, function, version, flags, Out::at(0))
}
