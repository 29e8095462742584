//! Modules whose image is in the process's own memory.

use causeway_shim::{AddressSpace, AllocateError, Module, ModuleError, RamRange, Staging};

/// Room for the log of a refused module in bytes.
const LOG_BYTES: usize = 4096;

/// Why a module could not be loaded by [`load_module`].
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The device refused memory for the image.
    #[error("cannot allocate device memory for a module image of {bytes} bytes")]
    Staging {
        /// Size of the image in bytes.
        bytes: usize,
        /// Why the device refused.
        source: AllocateError,
    },
    /// The device refused the module.
    #[error(
        "the device refused the GPU module{separator}{log}",
        separator = if .log.is_empty() { "" } else { ": " }
    )]
    Refused {
        /// Reasons for the refusal, which the back end has written to the log; may be empty.
        log: String,
        /// The device's refusal, with the line of the image where the mistake is.
        source: ModuleError,
    },
}

/// Loads the module image `image` (PTX, or another form that the back end supports) from this
/// process's memory into the address space `space`. This causes two VM exits.
///
/// # Errors
/// [`LoadError::Staging`] if the device refuses memory for the image. [`LoadError::Refused`] if the
/// back end refuses the module; the error contains the back end's reasons.
pub fn load_module<'d>(space: &AddressSpace<'d>, image: &[u8]) -> Result<Module<'d>, LoadError> {
    let bytes = image.len();
    let no_memory = |source| LoadError::Staging { bytes, source };
    let staging = Staging::new(space.device(), (bytes + LOG_BYTES) as u64).map_err(no_memory)?;
    let part = |offset: usize, bytes: usize| RamRange {
        address: staging.range().address + offset as u64,
        bytes: bytes as u64,
    };
    // The memory was allocated large enough for both.
    let _ = staging.window().write(0, image);
    Module::load(space, part(0, bytes), part(bytes, LOG_BYTES)).map_err(|source| {
        let mut log = vec![0; (source.log_bytes as usize).min(LOG_BYTES)];
        let _ = staging.window().read(bytes, &mut log);
        LoadError::Refused {
            log: String::from_utf8_lossy(&log).into_owned(),
            source,
        }
    })
}
