//! Variables of modules.

use crate::boundary::{Out, Text};
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::memory;
use crate::module::{Loaded, Module};

/// Puts address and size in bytes of the variable `name` of a module, where they are wanted.
pub(crate) fn find(
    driver: &Driver,
    module: &Module,
    name: Text,
    address: Out<u64>,
    bytes: Out<usize>,
) -> Answer {
    let name = name.get()?;
    if address.is_null() && bytes.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let (at, size) = match module.loaded.managed(&name) {
        Some(managed) => managed,
        None => {
            let (at, size) = variable(&module.loaded, &name)?;
            if module.loaded.note(at) {
                memory::note_module_range(driver, at, size);
            }
            (at, size)
        }
    };
    put((at, size), address, bytes)
}

/// Puts address and size in bytes of the managed variable `name` of a module, where they are wanted.
pub(crate) fn find_managed(
    module: &Module,
    name: Text,
    address: Out<u64>,
    bytes: Out<usize>,
) -> Answer {
    let name = name.get()?;
    if address.is_null() && bytes.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let found = module.loaded.managed(&name).ok_or(Code::NOT_FOUND)?;
    put(found, address, bytes)
}

fn put((at, size): (u64, u64), address: Out<u64>, bytes: Out<usize>) -> Answer {
    address.set_if_wanted(at);
    bytes.set_if_wanted(size as usize);
    Ok(())
}

/// Returns address and size in bytes of a variable.
fn variable(loaded: &Loaded, name: &str) -> Answer<(u64, u64)> {
    let found = loaded.module().variable(name).map_err(|error| {
        log::debug!("{error}");
        Code::NOT_FOUND
    })?;
    Ok((found.address, found.bytes))
}
