//! Connections to `causeway serve`: where its socket is, and which servers are trusted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use causeway_protocol::socket::{DEFAULT_NAME, Greeting, MAGIC, REASON_BYTES_MAX, VERSION};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Uid, geteuid};
use zerocopy::FromBytes;

use crate::APERTURE_BYTES_MAX;
use crate::socket::receive;

/// Environment variable that contains the path of the socket of `causeway serve`.
pub const SOCKET_VARIABLE: &str = "CAUSEWAY_SOCKET";

/// Environment variable that contains the user ID as which the server runs, if that is neither this
/// process's user nor root.
pub const OWNER_VARIABLE: &str = "CAUSEWAY_SOCKET_OWNER";

/// Why a process cannot connect to `causeway serve`.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No server listens at the socket.
    #[error(
        "cannot connect to {path}: is `causeway serve --socket {path}` running?",
        path = .path.display()
    )]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The server runs as another user, who would see this process's memory.
    #[error(
        "the server at {path} runs as user {uid}, which is neither the user of this process nor \
         root: set CAUSEWAY_SOCKET_OWNER={uid} if you trust that user with this program's data",
        path = .path.display()
    )]
    Foreign {
        /// Path of the socket.
        path: PathBuf,
        /// The server's user ID.
        uid: u32,
    },
    /// The server closed the connection before it sent anything.
    #[error(
        "the server at {path} has ended before it answered: is `causeway serve --socket {path}` \
         running?",
        path = .path.display()
    )]
    Ended {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The server is another program, or another version of `causeway serve`.
    #[error(
        "the server at {path} is not a `causeway serve` that this program's driver supports: \
         {what}; run `causeway serve` of the same version as the driver",
        path = .path.display()
    )]
    Stranger {
        /// Path of the socket.
        path: PathBuf,
        /// What is wrong with the server's greeting.
        what: &'static str,
    },
    /// The server does not serve this process.
    #[error(
        "the Causeway server at {path} refuses this process: {reason}",
        path = .path.display()
    )]
    Refused {
        /// Path of the socket.
        path: PathBuf,
        /// The server's reason.
        reason: String,
    },
    /// The process cannot reserve addresses for the aperture.
    #[error(
        "cannot reserve {bytes} bytes of this process's virtual addresses for the aperture (if the \
         process has a limit, raise it with `ulimit -v`)"
    )]
    Aperture {
        /// Size of the aperture in bytes.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Connects to the server that listens at the socket `path`.
pub(crate) fn open(path: &Path) -> Result<(OwnedFd, Greeting), ConnectError> {
    let failed = |source: Errno| ConnectError::Connect {
        path: path.to_owned(),
        source: source.into(),
    };
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(failed)?;
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    rustix::net::connect(&socket, &address).map_err(failed)?;
    let uid = socket_peercred(&socket).map_err(failed)?.uid;
    if !is_trusted(uid, std::env::var(OWNER_VARIABLE).ok().as_deref()) {
        return Err(ConnectError::Foreign {
            path: path.to_owned(),
            uid: uid.as_raw(),
        });
    }
    let greeting = greeting(socket.as_fd()).map_err(|denial| denial.error(path))?;
    Ok((socket, greeting))
}

/// Why a server's greeting does not begin a session.
enum Denial {
    /// There is none: the server has closed the connection, as the kernel does when it is killed.
    Ended,
    /// It is no greeting that this driver supports.
    Stranger(&'static str),
    /// It is a refusal, with this reason.
    Refused(String),
}

impl Denial {
    fn error(self, path: &Path) -> ConnectError {
        let path = path.to_owned();
        match self {
            Self::Ended => ConnectError::Ended { path },
            Self::Stranger(what) => ConnectError::Stranger { path, what },
            Self::Refused(reason) => ConnectError::Refused { path, reason },
        }
    }
}

/// Returns the path at which `causeway serve` listens if it is told no other: in the user's runtime
/// directory, to which no other user has access. `None` if there is no such directory.
#[must_use]
pub fn default_socket() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    folder.is_absolute().then(|| folder.join(DEFAULT_NAME))
}

/// Returns whether a server that runs as `uid` may see this process's memory: it is of the same
/// user, of root, or of the user whom the environment names.
fn is_trusted(uid: Uid, named: Option<&str>) -> bool {
    uid == geteuid() || uid.is_root() || named.is_some_and(|named| named == uid.to_string())
}

/// Receives the greeting of the server.
fn greeting(socket: BorrowedFd<'_>) -> Result<Greeting, Denial> {
    let mut buffer = [0; size_of::<Greeting>() + REASON_BYTES_MAX + 1];
    let received = receive(socket, &mut buffer);
    let (bytes, _) = received.map_err(|_| Denial::Ended)?;
    check_greeting(&buffer[..bytes])
}

fn check_greeting(datagram: &[u8]) -> Result<Greeting, Denial> {
    let stranger = |what| Err(Denial::Stranger(what));
    let Ok((greeting, reason)) = Greeting::read_from_prefix(datagram) else {
        return stranger("its first message is not a greeting");
    };
    if greeting.magic != MAGIC {
        return stranger("its first message is not a greeting");
    }
    if greeting.version != VERSION {
        return stranger("it has another version");
    }
    let bytes = greeting.aperture_bytes;
    if bytes == 0 && !reason.is_empty() && reason.len() <= REASON_BYTES_MAX {
        let reason = String::from_utf8_lossy(reason);
        let reason = reason.chars().filter(|character| !character.is_control());
        return Err(Denial::Refused(reason.collect()));
    }
    if !reason.is_empty() {
        return stranger("its first message is not a greeting");
    }
    if bytes == 0 || bytes > APERTURE_BYTES_MAX || !bytes.is_multiple_of(4096) {
        return stranger("its aperture has an invalid size");
    }
    Ok(greeting)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::SocketTransport;

    fn denied(aperture_bytes: u64, behind: &[u8]) -> Option<String> {
        let greeting = Greeting {
            magic: MAGIC,
            version: VERSION,
            aperture_bytes,
        };
        let datagram = [greeting.as_bytes(), behind].concat();
        let denial = check_greeting(&datagram).err()?;
        Some(denial.error(Path::new("/gpu")).to_string())
    }

    #[test]
    fn a_server_of_another_user_is_not_trusted_unless_it_is_named() {
        let (own, other) = (geteuid(), Uid::from_raw(geteuid().as_raw() + 1));
        assert!(is_trusted(own, None) && is_trusted(Uid::ROOT, None));
        assert!(!is_trusted(other, None) && !is_trusted(other, Some("")));
        assert!(!is_trusted(other, Some(&own.to_string())));
        assert!(is_trusted(other, Some(&other.to_string())));
    }

    /// Listens as another user, which only root can do, and only for this thread.
    #[test]
    fn a_server_that_listens_as_another_user_is_refused_before_it_learns_anything() {
        if !geteuid().is_root() {
            eprintln!("skipped: only root can listen as another user");
            return;
        }
        let path = std::env::temp_dir().join(format!("causeway-foreign-{}", std::process::id()));
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let become_user = |uid| rustix::thread::set_thread_res_uid(Uid::ROOT, uid, Uid::ROOT);
        become_user(Uid::from_raw(65_534)).unwrap();
        let listening = rustix::net::listen(&listener, 1);
        become_user(Uid::ROOT).unwrap();
        listening.unwrap();
        let refused = SocketTransport::connect(&path);
        std::fs::remove_file(&path).unwrap();
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("runs as user 65534"), "{message}");
        assert!(message.contains("CAUSEWAY_SOCKET_OWNER=65534"), "{message}");
    }

    #[test]
    fn a_server_that_ends_before_it_answers_is_not_taken_for_another_program() {
        let (own, servers) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        drop(servers);
        let denial = greeting(own.as_fd()).err().unwrap();
        assert_eq!(
            denial.error(Path::new("/gpu")).to_string(),
            "the server at /gpu has ended before it answered: is `causeway serve --socket /gpu` \
             running?"
        );
    }

    #[test]
    fn a_refusal_is_told_from_a_greeting_and_from_noise() {
        assert_eq!(denied(1 << 30, b""), None);
        assert_eq!(
            denied(0, b"all 8 places\x1b are taken").unwrap(),
            "the Causeway server at /gpu refuses this process: all 8 places are taken"
        );
        for (bytes, behind) in [(0, &b""[..]), (1 << 30, b"x"), (0, &[b'x'; 513])] {
            let message = denied(bytes, behind).unwrap();
            assert!(message.contains("is not a `causeway serve`"), "{message}");
        }
        assert!(check_greeting(b"").is_err());
    }
}
