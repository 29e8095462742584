//! The places at which monitors connect: Unix sockets, and a TCP address if the user wants one.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Uid;

use crate::http::Resource;
use crate::listener::{ListenError, Listener};
use crate::publisher::PublishError;
use crate::runtime::ProcessSocket;
use crate::socket_keeper::SocketKeeper;

/// Where a process serves metrics to scrapers, beside its own socket.
#[derive(Clone, Debug, Default)]
pub struct MetricsPlaces {
    /// Path of a Unix socket, as of `--metrics-socket`; `None` for no such socket.
    pub socket: Option<PathBuf>,
    /// TCP address, as of `--metrics`; `None` for no such address. With port 0, the Linux kernel
    /// chooses a free port, which an info line of the log names.
    pub address: Option<SocketAddr>,
}

/// A place at which monitors connect.
#[derive(Debug)]
pub enum Door {
    /// The socket by which `causeway stat` finds this process.
    Process(ProcessSocket),
    /// The socket of `--metrics-socket`, and the process that removes it, if this one may not.
    Socket(Listener, Option<SocketKeeper>),
    /// The TCP address of `--metrics`.
    Address(TcpListener),
    /// The socket of `--control`, as that of `--metrics-socket`.
    Control(Listener, Option<SocketKeeper>),
}

impl Door {
    /// Opens all of `places`, and the control socket at `control`, if there is to be one. Monitors
    /// can connect, and are answered after [`Self::listen`].
    ///
    /// # Errors
    /// [`PublishError::Metrics`], [`PublishError::Address`] or [`PublishError::Control`] for the
    /// place that cannot be opened.
    pub fn open(places: &MetricsPlaces, control: Option<&Path>) -> Result<Vec<Self>, PublishError> {
        let control = control.map(self::control).transpose()?;
        let socket = places.socket.as_deref().map(socket).transpose()?;
        let address = places.address.map(address).transpose()?;
        let all = control.into_iter().chain(socket).chain(address);
        Ok(all.collect())
    }

    /// Lets monitors connect, and makes [`Self::accept`] return at once if none does.
    pub fn listen(&mut self) -> io::Result<()> {
        if let Self::Process(socket) = self {
            socket.listen().map_err(io::Error::other)?;
        }
        Ok(rustix::io::ioctl_fionbio(&*self, true)?)
    }

    /// Returns the folder in which this process must be able to remove files at its end.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Process(socket) => Some(socket.folder()),
            Self::Socket(..) | Self::Address(_) | Self::Control(..) => None,
        }
    }

    /// Starts a process that removes the socket when this one ends, if the user chose its path.
    pub fn keep(&mut self) -> io::Result<()> {
        if let Self::Socket(listener, keeper) | Self::Control(listener, keeper) = self {
            *keeper = Some(SocketKeeper::start(listener.path())?);
            listener.leave();
        }
        Ok(())
    }

    /// Accepts a connection and returns its socket, which never waits, or `None` for a connection
    /// that is refused because its peer is not trusted.
    ///
    /// # Errors
    /// The error of the system call that failed; [`Errno::AGAIN`] if no connection waits.
    pub fn accept(&self) -> Result<Option<OwnedFd>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(self, flags)?;
        let admitted = match self {
            // TCP does not name the peer's user. The user of `--metrics` lets every process read
            // that can reach the address.
            Self::Address(_) => true,
            Self::Process(_) | Self::Socket(..) | Self::Control(..) => is_trusted(&socket),
        };
        Ok(admitted.then_some(socket))
    }

    /// Returns whether who connects here gets `resource`. Who gets a path or an address for metrics
    /// may only read.
    pub fn offers(&self, resource: Resource) -> bool {
        match (self, resource) {
            (Self::Control(..), _) => true,
            (_, Resource::Info | Resource::Action(_)) => false,
            (Self::Address(_), _) => resource == Resource::Metrics,
            (Self::Socket(..), _) => resource != Resource::Limits,
            (Self::Process(_), _) => true,
        }
    }

    /// Returns whether refusals are told in JSON here.
    pub fn refuses_in_json(&self) -> bool {
        matches!(self, Self::Control(..))
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Process(socket) => socket.as_fd(),
            Self::Socket(listener, _) | Self::Control(listener, _) => listener.as_fd(),
            Self::Address(listener) => listener.as_fd(),
        }
    }
}

fn socket(path: &Path) -> Result<Door, PublishError> {
    let listener = Listener::bind_stream(path).map_err(|source| PublishError::Metrics {
        path: path.to_owned(),
        source,
    })?;
    Ok(Door::Socket(listener, None))
}

fn control(path: &Path) -> Result<Door, PublishError> {
    let listener = Listener::bind_stream(path).map_err(|source| PublishError::Control {
        path: path.to_owned(),
        source,
    })?;
    Ok(Door::Control(listener, None))
}

fn address(address: SocketAddr) -> Result<Door, PublishError> {
    let failed = |e| PublishError::Address {
        address,
        source: ListenError::Address(e),
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    log::info!("metrics are at http://{bound}/metrics");
    if !bound.ip().is_loopback() {
        log::warn!(
            "everybody who can reach {bound} can read the metrics of this process's guests; \
             nothing is encrypted"
        );
    }
    Ok(Door::Address(listener))
}

/// Returns whether the peer is a process of this user or of root. The mode of the socket ensures
/// the same, unless it was changed.
fn is_trusted(socket: &OwnedFd) -> bool {
    let uid = socket_peercred(socket).map(|peer| peer.uid);
    let trusted = uid.is_ok_and(|uid| trusts(rustix::process::geteuid(), uid));
    if !trusted {
        log::debug!("refused a process of another user: {uid:?}");
    }
    trusted
}

/// Returns whether a process of user `own` answers one of user `peer`, and lets it change limits.
fn trusts(own: Uid, peer: Uid) -> bool {
    peer.is_root() || peer == own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_answers_its_own_user_and_root_and_nobody_else() {
        let [root, user, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert!(trusts(user, user) && trusts(user, root) && trusts(root, root));
        assert!(!trusts(user, other) && !trusts(root, user));
    }
}
