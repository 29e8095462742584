//! Loading of code into the device.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;

use causeway_protocol::message::Status;
use causeway_shim_linux::shim::Module;
use causeway_shim_linux::{LoadError, load_module};
use parking_lot::Mutex;

use crate::boundary::Text;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::image::{BYTES_MAX, Compilation, Entry, Image, Target};
use crate::jit::Logs;
use crate::memory::ManagedVariables;
use crate::module::variable::place_managed;
use crate::{device, memory};

/// Attributes of devices with the compute capability.
const CAPABILITY: (u32, u32) = (75, 76);

/// Code that the device has loaded. Dropping this value unloads it, after the work that was
/// submitted.
pub(crate) struct Loaded {
    driver: &'static Driver,
    module: ManuallyDrop<Module<'static>>,
    entries: Box<[Entry]>,
    /// Addresses of the variables that were asked for.
    variables: Mutex<BTreeSet<u64>>,
    managed: Option<ManagedVariables>,
}

impl Loaded {
    /// Returns the module.
    pub(crate) fn module(&self) -> &Module<'static> {
        &self.module
    }

    /// Returns the kernels of the module, in the order of the image.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns address and size in bytes of a managed variable.
    pub(crate) fn managed(&self, name: &str) -> Option<(u64, u64)> {
        self.managed.as_ref()?.find(name)
    }

    /// Returns whether the module has managed variables.
    pub(crate) const fn has_managed(&self) -> bool {
        self.managed.is_some()
    }

    /// Notes the address of a variable. Returns whether it is new.
    pub(crate) fn note(&self, address: u64) -> bool {
        self.variables.lock().insert(address)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // A packet in the ring may launch a kernel of this module. After a fault none is executed.
        let _ = self.driver.rings.drain(self.driver);
        for address in self.variables.get_mut().iter() {
            memory::forget_module_range(self.driver, *address);
        }
        if let Some(managed) = self.managed.take() {
            managed.end(self.driver);
        }
        // SAFETY: the module is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.module) };
    }
}

/// Returns whether programs want code to be loaded before it is used (CUDA programming guide,
/// "Lazy Loading").
pub(crate) fn loads_early() -> bool {
    std::env::var_os("CUDA_MODULE_LOADING").is_some_and(|mode| mode == "EAGER")
}

/// Returns what the device can load.
pub(crate) fn target(driver: &Driver) -> Target {
    let attribute = |number| {
        device::attribute(driver, number)
            .unwrap_or(0)
            .cast_unsigned()
    };
    Target {
        architecture: 10 * attribute(CAPABILITY.0) + attribute(CAPABILITY.1),
        // A device's name begins with that of the back end.
        takes_machine_code: driver.attributes.name.starts_with(b"cuda"),
        ptx_version_max: ptx_version(device::version(driver)),
    }
}

/// Returns the version of PTX that a version of CUDA has (PTX ISA, "Release Notes").
const fn ptx_version(cuda: i32) -> (u32, u32) {
    let (major, minor) = (
        (cuda / 1000).cast_unsigned(),
        (cuda % 1000 / 10).cast_unsigned(),
    );
    match (major, minor) {
        (..=11, minor) => (7, minor),
        // CUDA 12.6 has the PTX of 12.5.
        (12, 6..) => (8, minor - 1),
        (12, minor) => (8, minor),
        (major, minor) => (major - 4, minor),
    }
}

/// Returns the content of a file.
pub(crate) fn read_file(name: Text) -> Answer<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt as _;
    let name = std::ffi::OsString::from_vec(name.bytes()?);
    if name.is_empty() {
        return Err(Code::INVALID_VALUE);
    }
    let size = std::fs::metadata(&name).map_err(|_| Code::FILE_NOT_FOUND)?;
    if size.len() > BYTES_MAX {
        return Err(Code::OUT_OF_MEMORY);
    }
    std::fs::read(&name).map_err(|_| Code::FILE_NOT_FOUND)
}

/// Loads an image. The reasons of a refusal go to `logs`.
pub(crate) fn load(driver: &'static Driver, image: &Image, logs: &Logs) -> Answer<Loaded> {
    image.check(&target(driver))?;
    let how = logs.compilation;
    let compiled = (how != Compilation::default()).then(|| image.clone().compiled(how));
    let (image, managed) = compiled.as_ref().unwrap_or(image).with_pointers()?;
    let image = &*image;
    match load_module(driver.space, &image.bytes()) {
        Ok(module) => {
            logs.write("")?;
            let mut loaded = Loaded {
                driver,
                module: ManuallyDrop::new(module),
                entries: image.entries().into(),
                variables: Mutex::default(),
                managed: None,
            };
            loaded.managed = place_managed(driver, &loaded.module, managed)?;
            Ok(loaded)
        }
        Err(error) => {
            logs.write(&explain(&error))?;
            Err(refused(driver, image, &error))
        }
    }
}

/// Loads an image to find out whether the device takes it.
pub(crate) fn check(driver: &'static Driver, image: &Image, logs: &Logs) -> Answer {
    load(driver, image, logs).map(drop)
}

/// Returns what the compiler says of code that it refuses.
fn explain(error: &LoadError) -> String {
    match error {
        LoadError::Refused { log, .. } if !log.is_empty() => log.clone(),
        other => other.to_string(),
    }
}

fn refused(driver: &Driver, image: &Image, error: &LoadError) -> Code {
    log::warn!("the device refuses a module: {error}");
    let (log, status) = match error {
        LoadError::Refused { log, source } => (log, source.status()),
        LoadError::Size { .. } | LoadError::Staging { .. } => return Code::OUT_OF_MEMORY,
    };
    match status {
        // As the compiler of NVIDIA's driver says it.
        Status::BadModule if log.contains("nsupported .version") => Code::UNSUPPORTED_PTX_VERSION,
        Status::BadModule if image.is_machine_code() => Code::INVALID_IMAGE,
        Status::BadModule => Code::INVALID_PTX,
        Status::Unsupported => Code::NOT_SUPPORTED,
        shortage if shortage.is_shortage() => Code::OUT_OF_MEMORY,
        _ => driver
            .check_sticky()
            .err()
            .unwrap_or(Code::DEVICE_UNAVAILABLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_ptx_are_those_of_the_release_notes() {
        for (cuda, ptx) in [
            (11080, (7, 8)),
            (12000, (8, 0)),
            (12050, (8, 5)),
            (12060, (8, 5)),
            (12080, (8, 7)),
            (12090, (8, 8)),
            (13000, (9, 0)),
            (13010, (9, 1)),
        ] {
            assert_eq!(ptx_version(cuda), ptx, "{cuda}");
        }
    }

    #[test]
    fn files_are_read_or_are_not_there() {
        let path = std::env::temp_dir().join(format!("causeway-image-{}", std::process::id()));
        std::fs::write(&path, b"text").unwrap();
        let name = format!("{}\0", path.display());
        let read = read_file(Text::at(name.as_ptr() as usize));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read, Ok(b"text".to_vec()));
        let again = read_file(Text::at(name.as_ptr() as usize));
        assert_eq!(again, Err(Code::FILE_NOT_FOUND));
    }
}
