//! Modules whose image is in the process's own memory.

use causeway_shim::protocol::message::MODULE_BYTES_MAX;
use causeway_shim::{AddressSpace, AllocateError, Module, ModuleError, RamRange, Staging};

/// Room for the log of a refused module in bytes.
const LOG_BYTES: usize = 4096;

/// Why a module could not be loaded by [`load_module`].
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The image is empty, or too large for any device.
    #[error(
        "invalid module image of {bytes} bytes: give PTX, or another form that the back end \
         supports, of 1 to {MODULE_BYTES_MAX} bytes"
    )]
    Size {
        /// Size of the image in bytes.
        bytes: usize,
    },
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
/// [`LoadError::Size`] if the image is empty or too large. [`LoadError::Staging`] if the device
/// refuses memory for the image. [`LoadError::Refused`] if the back end refuses the module; the
/// error contains the back end's reasons.
pub fn load_module<'d>(space: &AddressSpace<'d>, image: &[u8]) -> Result<Module<'d>, LoadError> {
    let bytes = image.len();
    check_size(bytes)?;
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

fn check_size(bytes: usize) -> Result<(), LoadError> {
    match (1..=MODULE_BYTES_MAX).contains(&(bytes as u64)) {
        true => Ok(()),
        false => Err(LoadError::Size { bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_image_and_a_huge_one_are_refused_with_their_sizes() {
        let most = MODULE_BYTES_MAX as usize;
        for good in [1, most] {
            assert!(check_size(good).is_ok());
        }
        for bad in [0, most + 1] {
            let message = check_size(bad).unwrap_err().to_string();
            assert!(message.contains(&format!("of {bad} bytes")), "{message}");
            assert!(
                message.ends_with(&format!("1 to {most} bytes")),
                "{message}"
            );
        }
    }
}
