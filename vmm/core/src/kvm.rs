//! Opening KVM, and what can be wrong with it.

use std::io;

use kvm_bindings::KVM_CAP_BINARY_STATS_FD;
use kvm_ioctls::{Cap, Kvm};

/// The KVM API version that every kernel since 2.6.22 speaks (Documentation/virt/kvm/api.rst, 4.1).
const API_VERSION: i32 = 12;

/// Why there is no KVM to run guests on.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    /// No such device.
    #[error(
        "there is no {path}: load the module (`modprobe kvm_intel` or `kvm_amd`), and enable virtualization in the firmware, or nested virtualization if this machine is a VM"
    )]
    Missing {
        /// Path of the device.
        path: String,
    },
    /// The user may not open KVM's device.
    #[error(
        "no permission to open {path}: join its group (usually `sudo usermod -aG kvm $USER`, then log in again), or run as root"
    )]
    Permission {
        /// Path of the device.
        path: String,
    },
    /// Something else.
    #[error("cannot open {path}")]
    Open {
        /// Path of the device.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// KVM has another API version.
    #[error("KVM has API version {version}, not {API_VERSION}: install a newer kernel")]
    Version {
        /// The error.
        version: i32,
    },
    /// A capability that guests need.
    #[error("KVM lacks {capability}: install Linux {since} or later")]
    Capability {
        /// Name, as in linux/kvm.h.
        capability: &'static str,
        /// Linux version that brought it.
        since: &'static str,
    },
}

/// Opens `/dev/kvm` and checks that it can do what guests need.
///
/// # Errors
/// [`KvmError`], which says the way out.
pub fn open() -> Result<Kvm, KvmError> {
    open_at("/dev/kvm")
}

/// Opens KVM like [`open`], at another path.
///
/// # Errors
/// [`KvmError::Missing`], `Permission` or `Open` if the device cannot be opened, `Version` or
/// `Capability` if KVM is too old.
pub fn open_at(path: &str) -> Result<Kvm, KvmError> {
    let name = std::ffi::CString::new(path).map_err(|e| KvmError::Open {
        path: path.to_owned(),
        source: e.into(),
    })?;
    let kvm = Kvm::new_with_path(&name).map_err(|e| open_error(path, e.errno()))?;
    check(&kvm)?;
    Ok(kvm)
}

fn open_error(path: &str, errno: i32) -> KvmError {
    let path = path.to_owned();
    match errno {
        libc::ENOENT | libc::ENODEV | libc::ENXIO => KvmError::Missing { path },
        libc::EACCES | libc::EPERM => KvmError::Permission { path },
        errno => KvmError::Open {
            path,
            source: io::Error::from_raw_os_error(errno),
        },
    }
}

fn check(kvm: &Kvm) -> Result<(), KvmError> {
    let version = kvm.get_api_version();
    if version != API_VERSION {
        return Err(KvmError::Version { version });
    }
    let needed = [
        (Cap::UserMemory, "KVM_CAP_USER_MEMORY", "2.6.25"),
        (Cap::ExtCpuid, "KVM_CAP_EXT_CPUID", "2.6.26"),
        (Cap::Ioeventfd, "KVM_CAP_IOEVENTFD", "2.6.32"),
        (Cap::ImmediateExit, "KVM_CAP_IMMEDIATE_EXIT", "4.13"),
    ];
    for (capability, name, since) in needed {
        if !kvm.check_extension(capability) {
            return Err(KvmError::Capability {
                capability: name,
                since,
            });
        }
    }
    Ok(())
}

/// Returns whether KVM counts exits for us to read (`KVM_GET_STATS_FD`, Linux 5.14).
pub fn has_statistics(kvm: &Kvm) -> bool {
    kvm.check_extension_raw(KVM_CAP_BINARY_STATS_FD.into()) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_and_a_forbidden_one_say_the_way_out() {
        let error = open_at("/dev/no-such-kvm").unwrap_err();
        assert!(matches!(error, KvmError::Missing { .. }), "{error}");
        assert!(error.to_string().contains("/dev/no-such-kvm"));
        let error = open_error("/dev/kvm", libc::EACCES);
        assert!(error.to_string().contains("usermod -aG kvm"), "{error}");
        assert!(matches!(
            open_error("/dev/kvm", libc::EMFILE),
            KvmError::Open { .. }
        ));
    }

    #[test]
    fn a_file_that_is_no_kvm_is_not_taken_for_one() {
        let error = open_at("/dev/null").unwrap_err();
        assert!(matches!(error, KvmError::Version { .. }), "{error}");
    }
}
