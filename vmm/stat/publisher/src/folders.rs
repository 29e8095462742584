//! Where the sockets of processes with guests are: a folder for each user.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

/// Environment variable that names the parent of the only folder to use.
const VARIABLE: &str = "CAUSEWAY_RUNTIME_DIR";
/// Name of the folder for sockets inside a user's runtime folder.
pub const NAME: &str = "causeway";

/// A folder in which to search for sockets, and the user who must own it.
pub struct Place {
    /// Path of the folder.
    pub path: PathBuf,
    /// User ID that the folder's owner must have.
    pub owner: u32,
}

impl Place {
    /// Returns a place at `path` that this user must own.
    pub fn own(path: PathBuf) -> Self {
        let owner = own_uid();
        Self { path, owner }
    }
}

/// Returns the folders in which this process may create its socket, the preferred one first.
pub fn own_folders() -> Vec<PathBuf> {
    if let Some(only) = chosen() {
        return vec![only];
    }
    let mut folders: Vec<PathBuf> = session_folder().into_iter().collect();
    if own_uid() == 0 {
        folders.push(Path::new("/run").join(NAME));
    }
    folders.push(Path::new("/tmp").join(shared_name(own_uid())));
    folders
}

/// Returns the folders in which sockets of other processes may be: those of this user, and for root
/// those of all users.
pub fn all_places() -> Vec<Place> {
    let mut places: Vec<Place> = own_folders().into_iter().map(Place::own).collect();
    if chosen().is_some() {
        return places;
    }
    let session = |uid: u32| Path::new("/run/user").join(uid.to_string()).join(NAME);
    places.push(Place::own(session(own_uid())));
    // Only root searches the folders of other users.
    if own_uid() == 0 {
        let prefix = format!("{NAME}-");
        let shared = |uid| Path::new("/tmp").join(shared_name(uid));
        let foreign = |(path, owner)| Place { path, owner };
        let users = users_in("/run/user", "").map(|uid| (session(uid), uid));
        places.extend(users.map(foreign));
        let users = users_in("/tmp", &prefix).map(|uid| (shared(uid), uid));
        places.extend(users.map(foreign));
    }
    let mut known = HashSet::new();
    places.retain(|place| known.insert(place.path.clone()));
    places
}

/// Returns the user IDs that follow `prefix` in the names of files in `folder`.
fn users_in(folder: &str, prefix: &str) -> impl Iterator<Item = u32> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(move |file| {
        let name = file.file_name();
        number(name.to_str()?.strip_prefix(prefix)?)
    })
}

/// Returns the name of a user's folder in a folder that all users share.
fn shared_name(uid: u32) -> String {
    format!("{NAME}-{uid}")
}

/// Returns the effective user ID of this process.
pub fn own_uid() -> u32 {
    geteuid().as_raw()
}

/// Returns the folder inside the one that the environment variable names, which may be shared with
/// other programs or users.
fn chosen() -> Option<PathBuf> {
    std::env::var_os(VARIABLE)
        .filter(|value| !value.is_empty())
        .map(|parent| PathBuf::from(parent).join(NAME))
}

/// Returns the folder of the user's login session (XDG Base Directory Specification). Its path must
/// be absolute, and the user must own it, because a command that is run as another user may inherit
/// the variable.
fn session_folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    let is_own = fs::metadata(&folder).is_ok_and(|status| status.uid() == own_uid());
    (folder.is_absolute() && is_own).then(|| folder.join(NAME))
}

/// Creates a folder that only its owner can enter, or checks one that exists. A folder that another
/// user owns or can enter is refused, because that user could replace its content.
///
/// # Errors
/// An error whose text says what is wrong with the folder and how to repair it, or the error of the
/// system call that failed.
pub fn make(path: &Path) -> io::Result<()> {
    let is_new = match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) => true,
        Err(rustix::io::Errno::EXIST) => false,
        Err(e) => return Err(e.into()),
    };
    let folder = open(path)?;
    let status = rustix::fs::fstat(&folder)?;
    let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if status.st_uid != own_uid() {
        return refused(format!(
            "the folder belongs to user {}: remove it, or name another folder with {VARIABLE}",
            status.st_uid
        ));
    }
    if is_new {
        // The mode that is left after the umask.
        return Ok(rustix::fs::fchmod(&folder, Mode::RWXU)?);
    }
    if status.st_mode & 0o077 != 0 {
        return refused(format!(
            "other users can enter the folder (mode {:o}): `chmod 700 {}`, or name another folder \
             with {VARIABLE}",
            status.st_mode & 0o7777,
            path.display()
        ));
    }
    Ok(())
}

/// Opens a folder for reading. Symbolic links are refused.
///
/// # Errors
/// The error of the system call that failed.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Removes `folder` if it is empty and has one of the names that Causeway gives to folders of this
/// user. Errors are ignored.
pub fn remove_empty(folder: &Path) {
    let own = shared_name(own_uid());
    let name = folder.file_name();
    if name == Some(OsStr::new(NAME)) || name == Some(OsStr::new(&own)) {
        let _ = fs::remove_dir(folder);
    }
}

/// Parses a decimal number without leading zeros or sign. Returns `None` for any other text.
pub fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
