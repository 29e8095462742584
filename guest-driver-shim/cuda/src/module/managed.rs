//! Managed variables of modules.

use causeway_shim_linux::shim::Module;

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::image::pointer_name;
use crate::memory::{InModule, ManagedVariables};

/// Gives the managed variables with these names, of a module that has just been loaded, their
/// memory.
pub(super) fn place(
    driver: &Driver,
    module: &Module<'_>,
    names: Vec<String>,
) -> Answer<Option<ManagedVariables>> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        match in_module(module, name) {
            Ok(Some(variable)) => found.push(variable),
            Ok(None) => {}
            Err(code) => return Err(code),
        }
    }
    match found.is_empty() {
        true => Ok(None),
        false => ManagedVariables::place(driver, found).map(Some),
    }
}

/// Returns where a module has a variable and its pointer; `None` if it does not have the variable,
/// which linkers leave out if nothing uses it.
fn in_module(module: &Module<'_>, name: String) -> Answer<Option<InModule>> {
    let Ok(initial) = module.variable(&name) else {
        log::debug!("the module does not have its managed variable {name}");
        return Ok(None);
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
