//! The folders in which processes with guests can be found: a socket for each, named after the
//! process.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use causeway_terminal::Leftover;
use rustix::fs::Dir;

use super::folders::{Place, all_places, make, number, open, own_folders, own_uid, remove_empty};
use crate::listener::{self, ListenError, Listener};

/// Maximum number of entries that are read, in all folders together.
const ENTRIES_MAX: usize = 4096;

/// Why `causeway stat` cannot find this process.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// No folder can be used for the socket.
    #[error(
        "cannot use folder {folder} for the socket from which `causeway stat` reads the statistics \
         of this process",
        folder = path.display()
    )]
    Folder {
        /// The last folder that was tried.
        path: PathBuf,
        /// Why this folder cannot be used.
        source: io::Error,
    },
    /// The socket cannot be created in its folder.
    #[error(
        "cannot create socket {socket}, from which `causeway stat` reads the statistics of this \
         process",
        socket = path.display()
    )]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Why the socket cannot be created.
        source: ListenError,
    },
}

/// A socket file that may belong to a process with guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// User ID of the owner of the socket's folder. Monitors accept answers only from a process of
    /// this user, because the owner controls which sockets are in the folder.
    pub owner: u32,
    /// Process ID that the socket is named after. Monitors accept answers only from this process.
    pub pid: u32,
    /// Path of the socket.
    pub socket: PathBuf,
}

impl Entry {
    fn is_foreign(&self) -> bool {
        self.owner != own_uid()
    }
}

/// The socket by which monitors find this process. Dropping this object removes the socket, and its
/// folder if that is then empty.
#[derive(Debug)]
pub struct ProcessSocket {
    // Dropped before the folder, which is then empty.
    listener: Listener,
    folder: Folder,
}

/// The folder of a socket. A drop removes it if it is empty.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    _leftover: Leftover,
}

impl Folder {
    fn of_socket(path: &Path) -> Self {
        let left = path.to_owned();
        Self {
            path: path.to_owned(),
            _leftover: Leftover::new(move || remove_empty(&left)),
        }
    }
}

impl ProcessSocket {
    /// Creates the socket by which monitors find this process, and removes sockets that killed
    /// processes have left in the same folder. Monitors can connect after [`Self::listen`].
    ///
    /// # Errors
    /// [`SocketError::Folder`] if no folder can be used, [`SocketError::Socket`] if the socket
    /// cannot be created.
    pub fn new() -> Result<Self, SocketError> {
        let published = Self::within(&own_folders())?;
        forget_the_dead(&published.folder.path);
        Ok(published)
    }

    /// Lets monitors connect.
    ///
    /// # Errors
    /// [`ListenError::Failed`] if the system call fails.
    pub fn listen(&mut self) -> Result<(), ListenError> {
        self.listener.listen()
    }

    /// Returns the folder of the socket.
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// Creates the socket in the first of `folders` that can be used.
    pub(crate) fn within(folders: &[PathBuf]) -> Result<Self, SocketError> {
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
        Err(SocketError::Folder {
            path: folders.last().cloned().unwrap_or_default(),
            source: refused,
        })
    }

    fn at(folder: &Path) -> Result<Self, SocketError> {
        let path = folder.join(std::process::id().to_string());
        // Before the listener: what is left is undone in reverse.
        let held = Folder::of_socket(folder);
        let listener = match Listener::prepare_stream(&path) {
            // A process that has just ended may have removed the folder.
            Err(ListenError::Failed(e)) if e.kind() == io::ErrorKind::NotFound => {
                make(folder).map_err(|source| SocketError::Folder {
                    path: folder.to_owned(),
                    source,
                })?;
                Listener::prepare_stream(&path)
            }
            bound => bound,
        };
        match listener {
            Ok(listener) => Ok(Self {
                listener,
                folder: held,
            }),
            // The folder goes with `held`.
            Err(source) => Err(SocketError::Socket { path, source }),
        }
    }
}

impl AsFd for ProcessSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove_empty(&self.path);
    }
}

/// Returns the sockets of processes that may have guests: those of this user first; for root also
/// those of all other users. Processes that have ended may be among them, and a process may occur
/// more than once, because several folders are searched. Removes folders of this user that are
/// empty.
pub fn entries() -> Vec<Entry> {
    let folders: Vec<Vec<Entry>> = all_places().iter().map(search).collect();
    merge(folders)
}

/// Returns the entries of a folder. Removes the folder if it is empty and belongs to this user: a
/// process that was killed before it had a socket leaves such a folder.
fn search(place: &Place) -> Vec<Entry> {
    let found = entries_of(place);
    if found.is_empty() && place.owner == own_uid() {
        remove_empty(&place.path);
    }
    found
}

/// Returns the first entry of each folder, then the second, and so on, so that many entries of one
/// user do not hide those of another.
fn merge(folders: Vec<Vec<Entry>>) -> Vec<Entry> {
    let ranked = folders
        .into_iter()
        .map(|entries| entries.into_iter().enumerate());
    let mut ranked: Vec<(usize, Entry)> = ranked.flatten().collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(ENTRIES_MAX);
    let mut entries: Vec<Entry> = ranked.into_iter().map(|(_, entry)| entry).collect();
    entries.sort_by_key(|entry| (entry.is_foreign(), entry.pid));
    entries
}

/// Removes the socket `entry` of a process that has ended. A socket in another user's folder, or
/// one on which a process still listens, stays.
pub fn forget(entry: &Entry) {
    let Some(folder) = entry.socket.parent().filter(|_| !entry.is_foreign()) else {
        return;
    };
    match listener::remove_leftovers(&entry.socket) {
        Ok(()) => {
            log::debug!("removed the socket of process {}", entry.pid);
            remove_empty(folder);
        }
        Err(e) => log::debug!("cannot remove {}: {e}", entry.socket.display()),
    }
}

/// Removes the files of killed processes in a folder of this user.
fn forget_the_dead(folder: &Path) {
    let is_dead = |entry: &Entry| !Path::new(&format!("/proc/{}", entry.pid)).exists();
    let entries = entries_of(&Place::own(folder.to_owned())).into_iter();
    entries.filter(is_dead).for_each(|entry| forget(&entry));
}

fn entries_of(place: &Place) -> Vec<Entry> {
    // Read through the checked descriptor, because the path may name another folder by now.
    let checked = || {
        let folder = open(&place.path).ok()?;
        let status = rustix::fs::fstat(&folder).ok()?;
        (status.st_uid == place.owner).then_some(())?;
        Dir::read_from(&folder).ok()
    };
    let files = checked().into_iter().flatten().flatten().take(ENTRIES_MAX);
    let pids = files.filter_map(|file| pid_of(file.file_name().to_str().ok()?));
    let pids: BTreeSet<u32> = pids.collect();
    let entry = |pid: u32| Entry {
        owner: place.owner,
        pid,
        socket: place.path.join(pid.to_string()),
    };
    pids.into_iter().map(entry).collect()
}

/// Returns the process ID in the name of a socket or start lock.
fn pid_of(name: &str) -> Option<u32> {
    number(name.strip_suffix(".lock").unwrap_or(name)).filter(|pid| *pid != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folders::NAME;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    /// A folder of a test, removed on drop.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("causeway-runtime-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn entries(&self) -> Vec<Entry> {
            entries_of(&Place::own(self.0.clone()))
        }

        fn mode(path: &Path) -> u32 {
            fs::metadata(path).unwrap().permissions().mode() & 0o7777
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_process_is_found_as_long_as_it_is_published_and_leaves_nothing() {
        let folder = Scratch::new("life");
        let own = folder.0.join(NAME);
        let published = ProcessSocket::within(std::slice::from_ref(&own)).unwrap();
        assert_eq!(Scratch::mode(&own), 0o700);
        let found = entries_of(&Place::own(own.clone()));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].pid, std::process::id());
        assert!(!found[0].is_foreign());
        forget(&found[0]);
        assert!(found[0].socket.exists(), "it is in use");
        drop(published);
        assert!(!own.exists(), "nothing is left");
    }

    #[test]
    fn the_next_folder_is_taken_if_one_cannot_be_made() {
        let folder = Scratch::new("next");
        let (absent, own) = (folder.0.join("absent/causeway"), folder.0.join(NAME));
        drop(ProcessSocket::within(&[absent.clone(), own]).unwrap());
        let refused = ProcessSocket::within(&[absent]).unwrap_err().to_string();
        assert!(refused.contains("absent/causeway"), "{refused}");
    }

    #[test]
    fn a_link_or_a_file_in_place_of_the_folder_is_refused() {
        let folder = Scratch::new("link");
        let (link, file) = (folder.0.join("link"), folder.0.join("file"));
        symlink(&folder.0, &link).unwrap();
        fs::write(&file, "").unwrap();
        for path in [link, file] {
            assert!(matches!(
                ProcessSocket::within(&[path]),
                Err(SocketError::Folder { .. })
            ));
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
    }

    #[test]
    fn what_a_killed_process_left_is_found_and_forgotten() {
        let folder = Scratch::new("stale");
        let socket = folder.0.join("4711");
        drop(UnixListener::bind(&socket).unwrap());
        fs::write(folder.0.join("4712.lock"), "").unwrap();
        for name in ["0", "04711", "x", "4711.x", "-1", "99999999999"] {
            fs::write(folder.0.join(name), "").unwrap();
        }
        let found = folder.entries();
        let pids: Vec<u32> = found.iter().map(|entry| entry.pid).collect();
        assert_eq!(pids, [4711, 4712]);
        found.iter().for_each(forget);
        assert!(folder.entries().is_empty());
        let left = fs::read_dir(&folder.0).unwrap().count();
        assert_eq!(left, 6, "what is not ours stays");
    }

    #[test]
    fn a_folder_that_a_killed_process_left_empty_is_removed_if_it_is_ours() {
        let folder = Scratch::new("empty");
        let own = folder.0.join(NAME);
        fs::create_dir(&own).unwrap();
        let foreign = Place {
            path: own.clone(),
            owner: own_uid() + 1,
        };
        assert!(search(&foreign).is_empty() && own.exists());
        fs::write(own.join("x"), "").unwrap();
        assert!(search(&Place::own(own.clone())).is_empty() && own.exists());
        fs::remove_file(own.join("x")).unwrap();
        assert!(search(&Place::own(own.clone())).is_empty());
        assert!(!own.exists());
    }

    #[test]
    fn a_folder_that_was_there_keeps_its_mode_and_is_refused_if_others_can_enter() {
        let folder = Scratch::new("mode");
        let own = folder.0.join(NAME);
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = ProcessSocket::within(std::slice::from_ref(&own)).unwrap_err();
        let SocketError::Folder { source, .. } = &refused else {
            panic!("{refused}")
        };
        assert!(source.to_string().contains("chmod 700"), "{source}");
        assert_eq!(Scratch::mode(&own), 0o755);
        // One that is not called as ours are stays when it is empty.
        let other = folder.0.join("other");
        fs::create_dir(&other).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
        drop(ProcessSocket::within(std::slice::from_ref(&other)).unwrap());
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_counts_only_if_it_is_of_the_user_whom_its_path_names() {
        let folder = Scratch::new("owner");
        fs::write(folder.0.join("4711"), "").unwrap();
        assert_eq!(folder.entries().len(), 1);
        let other = Place {
            path: folder.0.clone(),
            owner: own_uid() + 1,
        };
        assert!(entries_of(&other).is_empty());
    }

    #[test]
    fn the_many_of_one_user_do_not_hide_the_few_of_another() {
        let entry = |owner: u32, pid: u32| Entry {
            owner,
            pid,
            socket: PathBuf::new(),
        };
        let foreign = own_uid() + 1;
        let many = (1..=ENTRIES_MAX as u32).map(|pid| entry(foreign, pid));
        let few = [entry(foreign + 1, 7), entry(own_uid(), 9_999)];
        let merged = merge(vec![many.collect(), few[..1].to_vec(), few[1..].to_vec()]);
        assert_eq!(merged.len(), ENTRIES_MAX);
        assert_eq!(merged[0], few[1], "our own are the first");
        assert!(merged.contains(&few[0]));
        let same = merged.iter().filter(|entry| entry.pid == 7);
        assert_eq!(same.count(), 2, "which of them answers is not known yet");
    }

    #[test]
    fn what_the_dead_have_left_goes_when_another_is_published() {
        let folder = Scratch::new("dead");
        let own = folder.0.join(NAME);
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        // Beyond PID_MAX_LIMIT (include/linux/threads.h), so that there can be none.
        let dead = own.join("5000000");
        drop(UnixListener::bind(&dead).unwrap());
        forget_the_dead(&own);
        assert!(!dead.exists());
    }
}
