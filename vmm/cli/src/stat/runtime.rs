//! The folders in which processes with guests can be found: a socket for each, named after the process.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

use crate::listener::{self, ListenError, Listener};

/// Names a folder that takes the place of all others.
const VARIABLE: &str = "CAUSEWAY_RUNTIME_DIR";
/// What the folder is called in the folder of a user.
const NAME: &str = "causeway";
/// Most entries of a folder that are looked at.
const ENTRIES_MAX: usize = 4096;

/// Why a process cannot be found by others.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// No folder.
    #[error("there is no folder for its socket: {} cannot be used", path.display())]
    Folder {
        /// The last that was tried.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No socket.
    #[error("the socket {} cannot be made", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        source: ListenError,
    },
}

/// A process that may have guests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Whether it was found in the folder of another user, who may put there what they like.
    pub is_foreign: bool,
    /// Number of the process.
    pub pid: u32,
    /// Its socket.
    pub socket: PathBuf,
}

/// The socket of this process, in its folder. Both are removed on drop; the folder if nobody else uses it.
#[derive(Debug)]
pub struct Published {
    // Dropped by hand, before the folder is removed.
    listener: Option<Listener>,
    folder: PathBuf,
}

impl Published {
    /// Has this process be found.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn new() -> Result<Self, PublishError> {
        Self::within(&own_folders())
    }

    fn within(folders: &[PathBuf]) -> Result<Self, PublishError> {
        let mut refused = io::Error::from(io::ErrorKind::NotFound);
        for folder in folders {
            match make(folder) {
                Ok(()) => return Self::at(folder),
                Err(e) => {
                    log::debug!("{}: {e}", folder.display());
                    refused = e;
                }
            }
        }
        Err(PublishError::Folder {
            path: folders.last().cloned().unwrap_or_default(),
            source: refused,
        })
    }

    fn at(folder: &Path) -> Result<Self, PublishError> {
        let path = folder.join(std::process::id().to_string());
        let listener = match Listener::bind_stream(&path) {
            // Who ended just now may have removed the folder meanwhile.
            Err(ListenError::Failed(e)) if e.kind() == io::ErrorKind::NotFound => {
                let _ = make(folder);
                Listener::bind_stream(&path)
            }
            bound => bound,
        };
        match listener {
            Ok(listener) => Ok(Self {
                listener: Some(listener),
                folder: folder.to_owned(),
            }),
            Err(source) => {
                let _ = fs::remove_dir(folder);
                Err(PublishError::Socket { path, source })
            }
        }
    }

    /// What others connect to.
    pub fn listener(&self) -> Option<&Listener> {
        self.listener.as_ref()
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        drop(self.listener.take());
        // Refused while others are in it.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Processes that may have guests: those of this user, and, if this is root, after them those of all users.
pub fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = all_folders().iter().flat_map(|f| entries_of(f)).collect();
    entries.sort();
    let mut known = HashSet::new();
    entries.retain(|entry| known.insert(entry.pid));
    entries
}

/// Removes what a process that is no more has left, if that is ours to remove.
pub fn forget(entry: &Entry) {
    let Some(folder) = entry.socket.parent().filter(|_| !entry.is_foreign) else {
        return;
    };
    match listener::remove_leftovers(&entry.socket) {
        Ok(()) => {
            log::debug!("process {} is no more: its socket is removed", entry.pid);
            let _ = fs::remove_dir(folder);
        }
        Err(e) => log::debug!("{} stays: {e}", entry.socket.display()),
    }
}

/// Where this process may put its socket, the best first.
fn own_folders() -> Vec<PathBuf> {
    if let Some(only) = chosen() {
        return vec![only];
    }
    let uid = geteuid().as_raw();
    let mut folders: Vec<PathBuf> = session_folder().into_iter().collect();
    if uid == 0 {
        folders.push(Path::new("/run").join(NAME));
    }
    folders.push(PathBuf::from(format!("/tmp/{NAME}-{uid}")));
    folders
}

/// Where to look for the sockets of others.
fn all_folders() -> Vec<PathBuf> {
    let mut folders = own_folders();
    if chosen().is_some() {
        return folders;
    }
    let uid = geteuid().as_raw();
    let users = Path::new("/run/user");
    folders.push(users.join(uid.to_string()).join(NAME));
    if uid == 0 {
        let within = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
        folders.extend(within("/run/user").map(|user| user.path().join(NAME)));
        let named = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            let user = name.and_then(|name| name.strip_prefix("causeway-"));
            user.is_some_and(|user| user.parse::<u32>().is_ok())
        };
        folders.extend(within("/tmp").map(|entry| entry.path()).filter(named));
    }
    folders.sort();
    folders.dedup();
    folders
}

fn chosen() -> Option<PathBuf> {
    std::env::var_os(VARIABLE)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The folder of the user's login session (XDG Base Directory Specification), which must be absolute.
fn session_folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    folder.is_absolute().then(|| folder.join(NAME))
}

/// Makes a folder that only its owner can enter. One that another user made is refused: they could put there what they like.
fn make(path: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let folder = open(path)?;
    if owner(&folder) != Some(geteuid().as_raw()) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user",
        ));
    }
    rustix::fs::fchmod(&folder, Mode::RWXU)?;
    Ok(())
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn owner(folder: &OwnedFd) -> Option<u32> {
    rustix::fs::fstat(folder).ok().map(|status| status.st_uid)
}

fn entries_of(path: &Path) -> Vec<Entry> {
    let uid = geteuid().as_raw();
    let owner = open(path).ok().as_ref().and_then(owner);
    let is_foreign = owner != Some(uid);
    // What other users say is for root to look at, who asked for it.
    if owner.is_none() || is_foreign && uid != 0 {
        return Vec::new();
    }
    let files = fs::read_dir(path).into_iter().flatten().flatten();
    let files = files.take(ENTRIES_MAX);
    let entry = |file: fs::DirEntry| {
        let pid = pid_of(file.file_name().to_str()?)?;
        let socket = path.join(pid.to_string());
        Some(Entry {
            is_foreign,
            pid,
            socket,
        })
    };
    let mut entries: Vec<Entry> = files.filter_map(entry).collect();
    entries.sort();
    entries.dedup();
    entries
}

/// The process that a file is named after: its socket, or the lock under which it starts.
fn pid_of(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".lock").unwrap_or(name);
    let pid: u32 = number.parse().ok()?;
    (pid != 0 && pid.to_string() == number).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    /// A folder of a test, removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("causeway-runtime-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_process_is_found_as_long_as_it_is_published_and_leaves_nothing() {
        let folder = Folder::new("life");
        let own = folder.0.join(NAME);
        let published = Published::within(std::slice::from_ref(&own)).unwrap();
        let mode = fs::metadata(&own).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        let found = entries_of(&own);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].pid, std::process::id());
        assert!(!found[0].is_foreign);
        forget(&found[0]);
        assert!(found[0].socket.exists(), "it is in use");
        drop(published);
        assert!(!own.exists(), "nothing is left");
    }

    #[test]
    fn the_next_folder_is_taken_if_one_cannot_be_made() {
        let folder = Folder::new("next");
        let (absent, own) = (folder.0.join("absent/causeway"), folder.0.join("own"));
        drop(Published::within(&[absent.clone(), own]).unwrap());
        let refused = Published::within(&[absent]).unwrap_err().to_string();
        assert!(refused.contains("absent/causeway"), "{refused}");
    }

    #[test]
    fn a_link_or_a_file_in_place_of_the_folder_is_refused() {
        let folder = Folder::new("link");
        let (link, file) = (folder.0.join("link"), folder.0.join("file"));
        symlink(&folder.0, &link).unwrap();
        fs::write(&file, "").unwrap();
        for path in [link, file] {
            assert!(matches!(
                Published::within(&[path]),
                Err(PublishError::Folder { .. })
            ));
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
    }

    #[test]
    fn what_a_killed_process_left_is_found_and_forgotten() {
        let folder = Folder::new("stale");
        let socket = folder.0.join("4711");
        drop(UnixListener::bind(&socket).unwrap());
        fs::write(folder.0.join("4712.lock"), "").unwrap();
        for name in ["0", "04711", "x", "4711.x", "-1", "99999999999"] {
            fs::write(folder.0.join(name), "").unwrap();
        }
        let found = entries_of(&folder.0);
        let pids: Vec<u32> = found.iter().map(|entry| entry.pid).collect();
        assert_eq!(pids, [4711, 4712]);
        found.iter().for_each(forget);
        assert!(entries_of(&folder.0).is_empty());
        let left = fs::read_dir(&folder.0).unwrap().count();
        assert_eq!(left, 6, "what is not ours stays");
    }
}
