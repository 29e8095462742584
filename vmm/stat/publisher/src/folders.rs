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

/// Names the folder in which the only one is that counts.
const VARIABLE: &str = "CAUSEWAY_RUNTIME_DIR";
/// What the folder is called in the folder of a user.
pub const NAME: &str = "causeway";

/// A folder to look in, and the user whose it must be to count.
pub struct Place {
    /// Where.
    pub path: PathBuf,
    /// Number of the user.
    pub owner: u32,
}

impl Place {
    /// One of this user.
    pub fn own(path: PathBuf) -> Self {
        let owner = own_uid();
        Self { path, owner }
    }
}

/// Where this process may put its socket, the best first.
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

/// Where to look for the sockets of others.
pub fn all_places() -> Vec<Place> {
    let mut places: Vec<Place> = own_folders().into_iter().map(Place::own).collect();
    if chosen().is_some() {
        return places;
    }
    let session = |uid: u32| Path::new("/run/user").join(uid.to_string()).join(NAME);
    places.push(Place::own(session(own_uid())));
    // What other users say is for root to look at, who asked for it.
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

/// Users whose numbers are in the names of files, after `prefix`.
fn users_in(folder: &str, prefix: &str) -> impl Iterator<Item = u32> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(move |file| {
        let name = file.file_name();
        number(name.to_str()?.strip_prefix(prefix)?)
    })
}

/// What a user's folder is called where those of all users are.
fn shared_name(uid: u32) -> String {
    format!("{NAME}-{uid}")
}

/// The user on whose behalf this process acts.
pub fn own_uid() -> u32 {
    geteuid().as_raw()
}

/// The folder in the one that was chosen, which may hold other things, or be everybody's.
fn chosen() -> Option<PathBuf> {
    std::env::var_os(VARIABLE)
        .filter(|value| !value.is_empty())
        .map(|parent| PathBuf::from(parent).join(NAME))
}

/// The folder of the user's login session (XDG Base Directory Specification), which must be absolute and the user's own: a command
/// that is run as another user may have inherited the variable.
fn session_folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    let is_own = fs::metadata(&folder).is_ok_and(|status| status.uid() == own_uid());
    (folder.is_absolute() && is_own).then(|| folder.join(NAME))
}

/// Makes a folder that only its owner can enter, or finds it. One that another user made, or that others can enter, is refused: they
/// could put there what they like.
///
/// # Errors
/// What is wrong with it, and the way out.
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
            "the folder belongs to user {}: remove it, or name another with {VARIABLE}",
            status.st_uid
        ));
    }
    if is_new {
        // Whatever the umask has left of it.
        return Ok(rustix::fs::fchmod(&folder, Mode::RWXU)?);
    }
    if status.st_mode & 0o077 != 0 {
        return refused(format!(
            "other users can enter the folder (mode {:o}): `chmod 700 {}`, or name another with {VARIABLE}",
            status.st_mode & 0o7777,
            path.display()
        ));
    }
    Ok(())
}

/// Opens a folder, and no link to one.
///
/// # Errors
/// What the kernel said.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Removes a folder of ours, unless somebody is in it.
pub fn remove_empty(folder: &Path) {
    let own = shared_name(own_uid());
    if [NAME, &own]
        .map(OsStr::new)
        .iter()
        .any(|name| folder.file_name() == Some(name))
    {
        let _ = fs::remove_dir(folder);
    }
}

/// A number as it is written here: without zeros or a sign before it.
pub fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
