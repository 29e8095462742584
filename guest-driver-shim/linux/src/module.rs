//! Modules whose image is in the process's own memory.

use causeway_shim::{AddressSpace, AllocateError, Module, ModuleError, RamRange, Staging};

/// Room for the log of a refused module in bytes.
const LOG_BYTES: usize = 4096;

/// Why [`load_module`] failed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The device has no memory for the image.
    #[error("cannot allocate memory for a module image of {bytes} bytes")]
    Staging {
        /// Bytes of the image.
        bytes: usize,
        /// What the device said.
        source: AllocateError,
    },
    /// The device refused the image.
    #[error("the module was refused{}{}", if .log.is_empty() { "" } else { ": " }, .log)]
    Refused {
        /// The back end's reasons; may be empty.
        log: String,
        /// What the device said.
        source: ModuleError,
    },
}

/// Loads `image` (PTX, or another form that the back end knows) into `space`. Two exits.
///
/// # Errors
/// [`LoadError::Staging`] if there is no memory for the image, [`LoadError::Refused`] with the back
/// end's reasons if it refuses the image.
pub fn load_module<'d>(space: &AddressSpace<'d>, image: &[u8]) -> Result<Module<'d>, LoadError> {
    let bytes = image.len();
    let no_memory = |source| LoadError::Staging { bytes, source };
    let staging = Staging::new(space.device(), (bytes + LOG_BYTES) as u64).map_err(no_memory)?;
    let RamRange { address, .. } = staging.range();
    let (at_image, at_log) = (
        RamRange {
            address,
            bytes: bytes as u64,
        },
        RamRange {
            address: address + bytes as u64,
            bytes: LOG_BYTES as u64,
        },
    );
    // It was made large enough for both.
    let _ = staging.window().write(0, image);
    Module::load(space, at_image, at_log).map_err(|source| {
        let mut log = vec![0; (source.log_bytes as usize).min(LOG_BYTES)];
        let _ = staging.window().read(bytes, &mut log);
        LoadError::Refused {
            log: String::from_utf8_lossy(&log).into_owned(),
            source,
        }
    })
}
