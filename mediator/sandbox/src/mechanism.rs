//! The mechanisms of the kernel by which a process is confined.

use std::io;

/// A mechanism of the kernel that confines a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// A user namespace of its own: what rights the user has elsewhere mean nothing in it.
    UserNamespace,
    /// A network namespace of its own, in which there is no network.
    NetworkNamespace,
    /// An IPC namespace of its own: no System V objects and message queues of others.
    IpcNamespace,
    /// Limits on what the process may use.
    Limits,
    /// No capabilities, and no way to get any.
    Capabilities,
    /// No program that it starts has more rights than it has.
    NoNewPrivileges,
    /// Landlock: only the files and folders of its profile can be opened.
    Files,
    /// Seccomp: only the system calls of its profile.
    Calls,
}

impl Mechanism {
    /// All mechanisms, in the order in which a process takes them on.
    pub const ALL: [Self; 8] = [
        Self::UserNamespace,
        Self::NetworkNamespace,
        Self::IpcNamespace,
        Self::Limits,
        Self::Capabilities,
        Self::NoNewPrivileges,
        Self::Files,
        Self::Calls,
    ];

    /// Returns the name of the mechanism, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UserNamespace => "user namespace",
            Self::NetworkNamespace => "network namespace",
            Self::IpcNamespace => "IPC namespace",
            Self::Limits => "resource limits",
            Self::Capabilities => "dropping capabilities",
            Self::NoNewPrivileges => "no_new_privs",
            Self::Files => "Landlock",
            Self::Calls => "seccomp filter",
        }
    }

    /// Returns whether the process can do much more without this mechanism than with it, so that
    /// users should know.
    pub const fn is_essential(self) -> bool {
        match self {
            Self::Capabilities | Self::NoNewPrivileges | Self::Files | Self::Calls => true,
            Self::UserNamespace | Self::NetworkNamespace | Self::IpcNamespace | Self::Limits => {
                false
            }
        }
    }

    /// Returns how an administrator can give the host this mechanism.
    pub const fn way_out(self) -> &'static str {
        match self {
            Self::UserNamespace | Self::NetworkNamespace | Self::IpcNamespace => {
                "allow user namespaces: `sysctl user.max_user_namespaces`, on Debian \
                 `kernel.unprivileged_userns_clone=1`, on Ubuntu \
                 `kernel.apparmor_restrict_unprivileged_userns=0`, in a container a seccomp \
                 profile that allows `unshare`"
            }
            Self::Files => {
                "use Linux 5.13 or later with `landlock` in the kernel's parameter `lsm=`, in a \
                 container a seccomp profile that allows the Landlock calls"
            }
            Self::Calls => {
                "use a kernel with CONFIG_SECCOMP_FILTER, in a container a seccomp profile that \
                 allows `seccomp`"
            }
            Self::Limits | Self::Capabilities | Self::NoNewPrivileges => {
                "in a container, allow `prlimit64`, `capset` and `prctl`"
            }
        }
    }
}

/// A mechanism that the host lacks, and why.
#[derive(Debug, thiserror::Error)]
#[error("{} ({source})", mechanism.name())]
pub struct Missing {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}
