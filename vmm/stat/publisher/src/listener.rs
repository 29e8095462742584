//! A socket file that other processes of the same user connect to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_terminal::Leftover;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Number of attempts to take the start lock. A process that removes stale sockets holds the lock
/// for a moment.
const LOCK_TRIES: u32 = 20;
/// Pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Why a process cannot listen at a path.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The path cannot be the name of a socket, for example because it is too long.
    #[error("no Unix socket can have this path (choose another path, such as a shorter one)")]
    Path(#[source] io::Error),
    /// Another process listens at the path.
    #[error("another process listens at this path: stop it, or choose another path")]
    InUse,
    /// The path names a file that is not a socket. It is not removed.
    #[error("the file at this path is not a socket: remove it, or choose another path")]
    NotASocket,
    /// A file that another program needs has the name of the lock. It is not touched.
    #[error(
        "the file {}, by which processes agree who listens at this path, is not theirs: remove \
         it, or choose another path",
        .0.display()
    )]
    LockTaken(PathBuf),
    /// The TCP address cannot be used.
    #[error("cannot listen at this address: choose an address of this host, and a free port")]
    Address(#[source] io::Error),
    /// A system call failed, with this error.
    #[error("cannot create a Unix socket at this path")]
    Failed(#[source] io::Error),
}

/// A socket file to which only processes of its owner can connect. A drop removes the file.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    file: SocketFile,
    /// Held until the socket listens, because another server would take it for a stale socket.
    starting: Option<StartLock>,
    /// Whether another process removes the file.
    is_left: bool,
    _leftover: Leftover,
}

/// The file of a socket that this process has created.
#[derive(Clone, Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode of the socket. Another server may have replaced it since.
    identity: (u64, u64),
}

impl SocketFile {
    /// Removes the file, unless it is another server's.
    fn remove(&self) -> io::Result<()> {
        let there = rustix::fs::lstat(&self.path);
        match there.is_ok_and(|there| identity(&there) == self.identity) {
            true => std::fs::remove_file(&self.path),
            false => Ok(()),
        }
    }
}

impl Listener {
    /// Listens at `path` for connections that preserve message boundaries (SOCK_SEQPACKET). A
    /// socket that a killed server has left at this path is replaced.
    ///
    /// # Errors
    /// [`ListenError::Path`] for an invalid path, `InUse` if another process listens there,
    /// `NotASocket` if the path names a file that is not a socket, `Failed` if a system call fails.
    pub fn bind(path: &Path) -> Result<Self, ListenError> {
        let mut listener = Self::bind_as(path, SocketType::SEQPACKET)?;
        listener.listen()?;
        Ok(listener)
    }

    /// Listens at `path` for stream connections (SOCK_STREAM). A socket that a killed server has
    /// left at this path is replaced.
    ///
    /// # Errors
    /// [`ListenError::Path`] for an invalid path, `InUse` if another process listens there,
    /// `NotASocket` if the path names a file that is not a socket, `Failed` if a system call fails.
    pub fn bind_stream(path: &Path) -> Result<Self, ListenError> {
        let mut listener = Self::prepare_stream(path)?;
        listener.listen()?;
        Ok(listener)
    }

    /// Does what [`Self::bind_stream`] does, but does not listen: nobody can connect until
    /// [`Self::listen`] is called. Other processes leave the socket alone meanwhile.
    ///
    /// # Errors
    /// As for [`Self::bind_stream`].
    pub(crate) fn prepare_stream(path: &Path) -> Result<Self, ListenError> {
        Self::bind_as(path, SocketType::STREAM)
    }

    /// Listens for connections.
    ///
    /// # Errors
    /// [`ListenError::Failed`] if the system call fails.
    pub(crate) fn listen(&mut self) -> Result<(), ListenError> {
        let listened = rustix::net::listen(&self.socket, BACKLOG);
        listened.map_err(|e| ListenError::Failed(e.into()))?;
        self.starting = None;
        Ok(())
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    /// Leaves the file to another process, which removes it.
    pub(crate) fn leave(&mut self) {
        self.is_left = true;
    }

    fn bind_as(path: &Path, kind: SocketType) -> Result<Self, ListenError> {
        let failed = |e: Errno| ListenError::Failed(e.into());
        let address = SocketAddrUnix::new(path).map_err(|e| ListenError::Path(e.into()))?;
        let starting = StartLock::begin(path, LOCK_TRIES)?;
        let socket = socket(kind).map_err(failed)?;
        // The file gets the mode that the socket has before it is bound (unix_bind in
        // net/unix/af_unix.c).
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                remove_stale(path, &address)?;
                rustix::net::bind(&socket, &address).map_err(failed)?;
            }
            bound => bound.map_err(failed)?,
        }
        let status = rustix::fs::lstat(path).map_err(|e| {
            let _ = std::fs::remove_file(path);
            failed(e)
        })?;
        let file = SocketFile {
            path: path.to_owned(),
            identity: identity(&status),
        };
        let left = file.clone();
        Ok(Self {
            socket,
            file,
            starting: Some(starting),
            is_left: false,
            _leftover: Leftover::new(move || drop(left.remove())),
        })
    }

    /// Accepts a connection and returns its socket. If no connection waits, this call blocks, or
    /// fails with [`Errno::AGAIN`] if the caller has made the listener non-blocking.
    ///
    /// # Errors
    /// The error of accept4(2).
    pub fn accept(&self) -> Result<OwnedFd, Errno> {
        rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.is_left
            && let Err(e) = self.file.remove()
        {
            log::warn!(
                "cannot remove the socket {path}, which this process created and no longer uses: \
                 {e}",
                path = self.file.path.display()
            );
        }
    }
}

/// The start lock of a path: a lock on a file beside it. Dropping the lock removes the file.
#[derive(Debug)]
struct StartLock {
    file: OwnedFd,
    path: PathBuf,
    _leftover: Leftover,
}

impl StartLock {
    /// Takes the lock, in at most `tries` attempts.
    fn begin(socket: &Path, mut tries: u32) -> Result<Self, ListenError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let failed = |e: Errno| ListenError::Failed(e.into());
        let mode = Mode::RUSR | Mode::WUSR;
        loop {
            let file = rustix::fs::open(&path, flags, mode).map_err(failed)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if tries <= 1 => return Err(ListenError::InUse),
                Err(Errno::WOULDBLOCK) => {
                    tries -= 1;
                    std::thread::sleep(LOCK_PAUSE);
                    continue;
                }
                locked => locked.map_err(failed)?,
            }
            let ours = rustix::fs::fstat(&file).map_err(failed)?;
            let is_file = FileType::from_raw_mode(ours.st_mode) == FileType::RegularFile;
            if !is_file || ours.st_size != 0 {
                return Err(ListenError::LockTaken(path));
            }
            // The previous holder may have removed the file meanwhile, which makes this lock void.
            let there = rustix::fs::lstat(&path);
            if there.is_ok_and(|there| identity(&there) == identity(&ours)) {
                let left = path.clone();
                return Ok(Self {
                    file,
                    path,
                    _leftover: Leftover::new(move || drop(std::fs::remove_file(left))),
                });
            }
        }
    }
}

impl Drop for StartLock {
    fn drop(&mut self) {
        // The holder of the lock owns the file.
        if let Err(e) = std::fs::remove_file(&self.path) {
            log::warn!(
                "cannot remove the lock file {path}, which this process created to open its \
                 socket: {e}",
                path = self.path.display()
            );
        }
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

const fn identity(status: &Stat) -> (u64, u64) {
    (status.st_dev, status.st_ino)
}

fn socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

/// Removes the socket and the lock file that a killed process has left at `path`. Files that a
/// process still uses stay.
///
/// # Errors
/// [`ListenError::Path`] for an invalid path, `InUse` if another process listens there,
/// `NotASocket` if the path names a file that is not a socket, `Failed` if a system call fails.
pub fn remove_leftovers(path: &Path) -> Result<(), ListenError> {
    let address = SocketAddrUnix::new(path).map_err(|e| ListenError::Path(e.into()))?;
    let _starting = StartLock::begin(path, 1)?;
    match remove_stale(path, &address) {
        Err(ListenError::Failed(e)) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes a socket on which no process listens.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), ListenError> {
    let failed = |e: Errno| ListenError::Failed(e.into());
    let status = rustix::fs::lstat(path).map_err(failed)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        return Err(ListenError::NotASocket);
    }
    let probe = socket(SocketType::SEQPACKET).map_err(failed)?;
    // Nonblocking, because the listener may accept no connections.
    rustix::io::ioctl_fionbio(&probe, true).map_err(failed)?;
    match rustix::net::connect(probe, address) {
        // A listener of another socket type is also in use.
        Ok(()) | Err(Errno::PROTOTYPE | Errno::AGAIN) => Err(ListenError::InUse),
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(ListenError::Failed),
        Err(e) => Err(failed(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("causeway-listener-{name}-{}", std::process::id()))
    }

    #[test]
    fn the_socket_is_its_owners_and_goes_with_the_listener() {
        let path = path("mode");
        let listener = Listener::bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(Listener::bind(&path), Err(ListenError::InUse)));
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_file_is_not() {
        let path = path("stale");
        let left = socket(SocketType::SEQPACKET).unwrap();
        rustix::net::bind(&left, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        drop(left);
        drop(Listener::bind(&path).unwrap());
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(
            Listener::bind(&path),
            Err(ListenError::NotASocket)
        ));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_lock_of_a_socket_is_no_file_of_another_program() {
        let path = path("lock");
        let lock = path.with_extension("lock");
        std::fs::write(&lock, "precious").unwrap();
        let error = Listener::bind(&path).unwrap_err();
        assert!(
            error.to_string().contains(lock.to_str().unwrap()),
            "{error}"
        );
        assert_eq!(std::fs::read(&lock).unwrap(), b"precious");
        std::fs::remove_file(&lock).unwrap();
        drop(Listener::bind(&path).unwrap());
        assert!(!lock.exists());
    }

    #[test]
    fn a_server_that_starts_is_not_taken_for_a_dead_one() {
        let path = path("starting");
        let starting = StartLock::begin(&path, 1).unwrap();
        // Bound, but not listening yet.
        let bound = socket(SocketType::SEQPACKET).unwrap();
        rustix::net::bind(&bound, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert!(matches!(Listener::bind(&path), Err(ListenError::InUse)));
        assert!(path.exists());
        let lock = starting.path.clone();
        drop((starting, bound));
        drop(Listener::bind(&path).unwrap());
        assert!(!path.exists() && !lock.exists());
    }

    #[test]
    fn of_servers_that_start_at_once_one_listens() {
        let path = path("race");
        for _ in 0..100 {
            let starts = (0..4).map(|_| {
                let path = path.clone();
                std::thread::spawn(move || Listener::bind(&path))
            });
            let starts: Vec<_> = starts.collect();
            let outcomes = starts.into_iter().map(|start| start.join().unwrap());
            let listeners: Vec<_> = outcomes.filter_map(Result::ok).collect();
            assert_eq!(listeners.len(), 1);
            let address = SocketAddrUnix::new(&path).unwrap();
            rustix::net::connect(socket(SocketType::SEQPACKET).unwrap(), &address).unwrap();
        }
    }

    #[test]
    fn leftovers_go_and_what_is_in_use_stays() {
        let path = path("leftovers");
        let listener = Listener::bind_stream(&path).unwrap();
        assert!(matches!(remove_leftovers(&path), Err(ListenError::InUse)));
        assert!(path.exists());
        drop(listener);
        let left = socket(SocketType::STREAM).unwrap();
        rustix::net::bind(&left, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        drop(left);
        remove_leftovers(&path).unwrap();
        assert!(!path.exists());
        let mut lock = path.clone().into_os_string();
        lock.push(".lock");
        std::fs::write(&lock, "").unwrap();
        remove_leftovers(&path).unwrap();
        assert!(!Path::new(&lock).exists());
    }

    #[test]
    fn a_path_that_is_no_sockets_is_refused() {
        let long = Path::new("/tmp").join("x".repeat(200));
        assert!(matches!(Listener::bind(&long), Err(ListenError::Path(_))));
    }
}
