//! Opening KVM, and what can be wrong with it.

use std::ffi::CStr;
use std::io;
use std::sync::OnceLock;

use kvm_bindings::{CpuId, KVM_CAP_BINARY_STATS_FD, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::{Cap, Kvm};

/// The KVM API version that every kernel since 2.6.22 speaks (Documentation/virt/kvm/api.rst, 4.1).
const API_VERSION: i32 = 12;

/// Why guests cannot run on this host's KVM.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    /// KVM's device does not exist.
    #[error(
        "this host has no {path}: load KVM's module (`modprobe kvm_intel` or `modprobe kvm_amd`), \
         and enable virtualization in the firmware, or nested virtualization if this host is a VM"
    )]
    Missing {
        /// Path of KVM's device.
        path: String,
    },
    /// The user has no permission to open KVM's device.
    #[error(
        "no permission to open {path}: join its group (usually `sudo usermod -aG kvm $USER`, then \
         log in again), or run as root"
    )]
    Permission {
        /// Path of KVM's device.
        path: String,
    },
    /// KVM's device cannot be opened for another reason.
    #[error("cannot open {path}")]
    Open {
        /// Path of KVM's device.
        path: String,
        /// The Linux kernel's error.
        source: io::Error,
    },
    /// KVM has another API version than all Linux kernels since 2.6.22 have.
    #[error("KVM has API version {version}, not {API_VERSION}: install a newer Linux kernel")]
    Version {
        /// The API version that KVM has.
        version: i32,
    },
    /// KVM lacks a capability that guests need.
    #[error("KVM lacks {capability}: install Linux {since} or later")]
    Capability {
        /// Name of the capability, as in linux/kvm.h.
        capability: &'static str,
        /// First Linux version that has the capability.
        since: &'static str,
    },
}

/// A failed system call, in most cases an ioctl of KVM.
#[derive(Debug, thiserror::Error)]
#[error("the system call {call} failed")]
pub struct CallError {
    /// Name of the system call or of the ioctl, such as `KVM_CREATE_VM`.
    pub call: &'static str,
    /// The error that the failed system call returned.
    pub source: io::Error,
}

/// Returns a function that makes the error of `call` a [`CallError`].
pub(crate) fn failed<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> CallError {
    move |error| CallError {
        call,
        source: error.into(),
    }
}

/// Opens `/dev/kvm` and checks that KVM has the capabilities that guests need.
///
/// # Errors
/// [`KvmError::Missing`], `Permission` or `Open` if the device cannot be opened, `Version` or
/// `Capability` if KVM is too old.
pub fn open() -> Result<Kvm, KvmError> {
    open_at(c"/dev/kvm")
}

/// Returns what KVM can show guests of the host's processor. It is the same for all VMs of a
/// process, and the kernel takes half a millisecond to collect it, so it is asked for once.
///
/// # Errors
/// The kernel's error for `KVM_GET_SUPPORTED_CPUID`.
pub fn supported_cpuid(kvm: &Kvm) -> Result<&'static CpuId, CallError> {
    static SUPPORTED: OnceLock<CpuId> = OnceLock::new();
    if let Some(supported) = SUPPORTED.get() {
        return Ok(supported);
    }
    let asked = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
    let asked = asked.map_err(failed("KVM_GET_SUPPORTED_CPUID"))?;
    Ok(SUPPORTED.get_or_init(|| asked))
}

fn open_at(path: &CStr) -> Result<Kvm, KvmError> {
    let kvm = Kvm::new_with_path(path).map_err(|e| open_error(path, e.errno()))?;
    check(&kvm)?;
    Ok(kvm)
}

fn open_error(path: &CStr, errno: i32) -> KvmError {
    let path = path.to_string_lossy().into_owned();
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

/// Returns whether KVM has statistics, which count exits (`KVM_GET_STATS_FD`, Linux 5.14).
pub fn has_statistics(kvm: &Kvm) -> bool {
    kvm.check_extension_raw(KVM_CAP_BINARY_STATS_FD.into()) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_and_a_forbidden_one_say_the_way_out() {
        let error = open_at(c"/dev/no-such-kvm").unwrap_err();
        assert!(matches!(error, KvmError::Missing { .. }), "{error}");
        assert!(error.to_string().contains("/dev/no-such-kvm"));
        let error = open_error(c"/dev/kvm", libc::EACCES);
        assert!(error.to_string().contains("usermod -aG kvm"), "{error}");
        assert!(matches!(
            open_error(c"/dev/kvm", libc::EMFILE),
            KvmError::Open { .. }
        ));
    }

    #[test]
    fn a_file_that_is_no_kvm_is_not_taken_for_one() {
        let error = open_at(c"/dev/null").unwrap_err();
        assert!(matches!(error, KvmError::Version { .. }), "{error}");
    }
}
