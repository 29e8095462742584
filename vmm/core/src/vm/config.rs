//! Configuration of a VM.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::attach::Attach;
pub use crate::boot::Privilege;
use crate::linux::Linux;
use crate::numa::Node;
use crate::passthrough::DeviceSource;
pub use crate::pci::GPUS_MAX;

/// Maximum number of virtual CPUs of one VM.
pub const VCPUS_MAX: u32 = 64;
/// Maximum number of VMs of one `causeway run`.
pub const VMS_MAX: u32 = 64;
/// Longest arguments of a bare guest, in bytes (`causeway_protocol::boot::BootInfo`).
const ARGUMENT_BYTES_MAX: usize = 256;

/// The configuration of a VM: its hardware, and the guest that it runs.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Name of the VM in logs and reports, and in the names of its threads.
    pub name: String,
    /// Index of this VM among those of its `causeway run`, from 0. A bare guest can read it.
    pub index: u32,
    /// Number of VMs in the same `causeway run`, this one included. A bare guest can read it.
    pub vms: u32,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Size of the guest's RAM in bytes, a multiple of 1 MiB.
    pub memory_bytes: u64,
    /// The guest that the VM runs.
    pub boot: Boot,
    /// Size of the aperture in bytes, a power of two. The VM gets a smaller aperture if the CPU has
    /// too few physical address bits for this one.
    pub aperture_bytes: u64,
    /// Whether guest RAM uses 2 MiB pages where the host can provide them.
    pub large_pages: bool,
    /// NUMA node of the host from which guest RAM comes, and on which the threads of the VM run;
    /// `None` leaves both to the host's kernel.
    pub node: Option<Node>,
    /// Host devices that are passed through to the VM; `None` if there are none. With such devices,
    /// a bare guest gets interrupt controllers, which it does not have otherwise.
    pub devices: Option<Arc<dyn DeviceSource>>,
    /// Optional devices. They are added to the VM in this order, after all its other devices.
    pub attached: Vec<Arc<dyn Attach>>,
}

/// The guest that a VM runs.
#[derive(Clone, Debug)]
pub enum Boot {
    /// A bare guest, on a machine without interrupt controllers unless devices are passed through.
    Bare {
        /// Content of the guest's ELF image.
        image: Image,
        /// Arguments of the guest, as one string.
        arguments: String,
        /// Privilege level at which the guest runs.
        privilege: Privilege,
    },
    /// A Linux kernel, on a machine like a small PC.
    Linux(Box<Linux>),
}

/// Content of a bare guest's ELF image.
#[derive(Clone)]
pub enum Image {
    /// Part of the program, so that no VM needs a copy of it.
    Embedded(&'static [u8]),
    /// Read from a file, or made at run time. Clones share the bytes.
    Shared(Arc<[u8]>),
}

impl Deref for Image {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Embedded(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes)", self.len())
    }
}

/// Why a VM's configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The number of virtual CPUs is zero or too large.
    #[error("invalid number of virtual CPUs {vcpus}: choose 1 to {limit} with --vcpus")]
    Vcpus {
        /// Number of virtual CPUs in the configuration.
        vcpus: u32,
        /// Maximum number of virtual CPUs of a VM on this host.
        limit: u32,
    },
    /// The index is not below the number of VMs, or the run has too many VMs.
    #[error(
        "invalid VM index {index} in a run of {vms} VMs: a run has 1 to {VMS_MAX} VMs, and their \
         indices begin at 0"
    )]
    Index {
        /// Index of the VM in the configuration.
        index: u32,
        /// Number of VMs in the configuration.
        vms: u32,
    },
    /// The VM has no GPU, or too many.
    #[error("invalid number of GPUs {0}: a VM has 1 to {GPUS_MAX}")]
    Gpus(usize),
    /// The guest's arguments are too long for the boot page.
    #[error(
        "the guest's arguments have {bytes} bytes, but at most {ARGUMENT_BYTES_MAX} fit: \
         shorten --arguments"
    )]
    Arguments {
        /// Length of the arguments in bytes.
        bytes: usize,
    },
}

impl VmConfig {
    /// Checks the configuration of a VM with this number of GPUs as far as possible without creating
    /// anything. `vcpus_max` is the maximum number of virtual CPUs that KVM allows.
    ///
    /// # Errors
    /// [`ConfigError::Gpus`] if the VM has no GPU or more than [`GPUS_MAX`], `Vcpus` if the number of virtual CPUs is zero, or more than `vcpus_max` or
    /// [`VCPUS_MAX`]; `Index` if the VM's index is not below the number of VMs, or that number
    /// exceeds [`VMS_MAX`]; `Arguments` if a bare guest's arguments are too long.
    pub fn check(&self, gpus: usize, vcpus_max: u32) -> Result<(), ConfigError> {
        if !(1..=GPUS_MAX as usize).contains(&gpus) {
            return Err(ConfigError::Gpus(gpus));
        }
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
            image: Image::Embedded(&[]),
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
            node: None,
            devices: None,
            attached: Vec::new(),
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_value() {
        assert_eq!(config().check(1, 8), Ok(()));
        assert_eq!(config().check(0, 8), Err(ConfigError::Gpus(0)));
        assert_eq!(config().check(9, 8), Err(ConfigError::Gpus(9)));
        let spoiled = |spoil: fn(&mut VmConfig)| {
            let mut config = config();
            spoil(&mut config);
            config.check(1, 8).unwrap_err().to_string()
        };
        assert!(spoiled(|c| c.vcpus = 0).starts_with("invalid number of virtual CPUs 0"));
        assert!(spoiled(|c| c.vcpus = 9).contains("1 to 8"));
        assert!(spoiled(|c| c.index = 1).starts_with("invalid VM index 1 in a run of 1"));
        assert!(spoiled(|c| c.vms = 65).starts_with("invalid VM index 0 in a run of 65"));
        assert!(spoiled(|c| c.boot = bare(&"a".repeat(257))).contains("257 bytes"));
    }
}
