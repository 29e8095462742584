//! Configuration of a VM.

use std::sync::Arc;

use super::attach::Attach;
pub use crate::boot::Privilege;
use crate::linux::Linux;
use crate::passthrough::DeviceSource;

/// Most virtual CPUs of a VM.
pub const VCPUS_MAX: u32 = 64;
/// Most VMs of a run.
pub const VMS_MAX: u32 = 64;
/// Longest arguments to a guest, in bytes (`causeway_protocol::boot::BootInfo`).
const ARGUMENT_BYTES_MAX: usize = 256;

/// Configuration of a VM.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Name, for logs, threads and reports.
    pub name: String,
    /// Index of this VM in the run.
    pub index: u32,
    /// Number of VMs in the run.
    pub vms: u32,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Guest RAM in bytes, a multiple of 1 MiB.
    pub memory_bytes: u64,
    /// The guest that it runs.
    pub boot: Boot,
    /// Size of the aperture in bytes, a power of two. It may become less, if the CPU has few
    /// address bits.
    pub aperture_bytes: u64,
    /// Whether RAM is to be of 2 MiB pages where the host can provide them.
    pub large_pages: bool,
    /// Host devices that are passed through to the VM. With any, a bare guest has interrupt
    /// controllers, too.
    pub devices: Option<Arc<dyn DeviceSource>>,
    /// Optional devices, which are attached behind all others, in this order.
    pub attached: Vec<Arc<dyn Attach>>,
}

/// The guest that a VM runs.
#[derive(Clone, Debug)]
pub enum Boot {
    /// A bare guest, on a machine without interrupts.
    Bare {
        /// ELF image.
        image: Arc<[u8]>,
        /// Arguments to the guest.
        arguments: String,
        /// Privilege level that it runs at.
        privilege: Privilege,
    },
    /// An operating system, on a small PC.
    Linux(Box<Linux>),
}

/// Why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The number of virtual CPUs is zero or too large.
    #[error("invalid number of virtual CPUs {vcpus}: 1 to {limit}")]
    Vcpus {
        /// The number in the configuration.
        vcpus: u32,
        /// The most that this host allows.
        limit: u32,
    },
    /// The index is not below the number of VMs, or there are too many VMs.
    #[error("invalid VM {index} of {vms}: a run has 1 to {VMS_MAX} VMs, from index 0")]
    Index {
        /// Index.
        index: u32,
        /// Number of VMs.
        vms: u32,
    },
    /// The arguments do not fit on the boot page.
    #[error("the guest's arguments have {bytes} bytes: at most {ARGUMENT_BYTES_MAX} fit")]
    Arguments {
        /// Length of the arguments.
        bytes: usize,
    },
}

impl VmConfig {
    /// Checks what can be checked without creating anything; `vcpus_max` is KVM's limit.
    ///
    /// # Errors
    /// [`ConfigError::Vcpus`], `Index` or `Arguments`, for the value that is invalid.
    pub fn check(&self, vcpus_max: u32) -> Result<(), ConfigError> {
        let limit = vcpus_max.min(VCPUS_MAX);
        if !(1..=limit).contains(&self.vcpus) {
            return Err(ConfigError::Vcpus {
                vcpus: self.vcpus,
                limit,
            });
        }
        if self.index >= self.vms || self.vms > VMS_MAX {
            return Err(ConfigError::Index {
                index: self.index,
                vms: self.vms,
            });
        }
        if let Boot::Bare { arguments, .. } = &self.boot
            && arguments.len() > ARGUMENT_BYTES_MAX
        {
            let bytes = arguments.len();
            return Err(ConfigError::Arguments { bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(arguments: &str) -> Boot {
        Boot::Bare {
            image: Arc::from([]),
            arguments: arguments.to_owned(),
            privilege: Privilege::default(),
        }
    }

    fn config() -> VmConfig {
        VmConfig {
            name: "test".to_owned(),
            index: 0,
            vms: 1,
            vcpus: 1,
            memory_bytes: 16 << 20,
            boot: bare(""),
            aperture_bytes: 1 << 30,
            large_pages: false,
            devices: None,
            attached: Vec::new(),
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_value() {
        assert_eq!(config().check(8), Ok(()));
        let spoiled = |spoil: fn(&mut VmConfig)| {
            let mut config = config();
            spoil(&mut config);
            config.check(8).unwrap_err().to_string()
        };
        assert!(spoiled(|c| c.vcpus = 0).starts_with("invalid number of virtual CPUs 0"));
        assert!(spoiled(|c| c.vcpus = 9).ends_with("1 to 8"));
        assert!(spoiled(|c| c.index = 1).starts_with("invalid VM 1 of 1"));
        assert!(spoiled(|c| c.vms = 65).starts_with("invalid VM 0 of 65"));
        assert!(spoiled(|c| c.boot = bare(&"a".repeat(257))).contains("257 bytes"));
    }
}
