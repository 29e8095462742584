//! Variables of modules.

use causeway_protocol::message::Status;
use causeway_shim_linux::shim::Module as OnDevice;

use crate::boundary::{Out, Text};
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::image::pointer_name;
use crate::memory::{self, InModule, ManagedVariables};
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

/// Puts address and size in bytes of the managed variable `name` where they are wanted.
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

/// Gives the managed variables with these names, of a module that has just been loaded, their
/// memory.
pub(super) fn place_managed(
    driver: &Driver,
    module: &OnDevice<'_>,
    names: Vec<String>,
) -> Answer<Option<ManagedVariables>> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        found.extend(in_module(module, name)?);
    }
    match found.is_empty() {
        true => Ok(None),
        false => ManagedVariables::place(driver, found).map(Some),
    }
}

/// Returns where a module has a variable and its pointer; `None` if it does not have the variable,
/// which linkers leave out if nothing uses it.
fn in_module(module: &OnDevice<'_>, name: String) -> Answer<Option<InModule>> {
    let initial = match module.variable(&name) {
        Ok(found) => found,
        Err(error) if error.status() == Status::NotInModule => return Ok(None),
        Err(error) => {
            log::error!("the managed variable {name} cannot be used: {error}");
            return Err(Code::NOT_SUPPORTED);
        }
    };
    let pointer = module.variable(&pointer_name(&name)).map_err(|error| {
        log::error!("the managed variable {name} has no pointer: {error}");
        Code::NOT_SUPPORTED
    })?;
    Ok(Some(InModule {
        name,
        initial: (initial.address, initial.bytes),
        pointer: pointer.address,
    }))
}
