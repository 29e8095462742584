//! Files: what a process can open (Landlock).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::fs::{Mode, OFlags};

use crate::profile::Profile;

/// The version of Landlock whose rights are asked for. An older kernel enforces those that it has:
/// the crate leaves out the others.
pub const NEWEST: ABI = ABI::V6;

/// Forbids this thread, and threads that it starts, to open anything but the files of `profile`; to
/// use the network; to signal and trace processes that are not confined with it, and to connect to
/// their abstract sockets. What is open stays open.
pub fn restrict(profile: &Profile) -> io::Result<()> {
    enforce(ruleset(profile, Scope::from_all(NEWEST))?)
}

/// Returns the rules of `profile` for [`enforce`]. `scopes` is what they keep inside.
pub fn ruleset(profile: &Profile, scopes: BitFlags<Scope>) -> io::Result<RulesetCreated> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let start = read | AccessFs::Execute;
    let device = read | AccessFs::WriteFile | AccessFs::IoctlDev;
    let rewrite = read | AccessFs::WriteFile | AccessFs::Truncate;
    let all: BitFlags<AccessFs> = AccessFs::from_all(NEWEST);
    // A program file that can be written must not be a way to start one.
    let write = all & !AccessFs::Execute;
    let folders = profile.folder.iter().map(|folder| {
        let files = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
        Ok::<_, RulesetError>(PathBeneath::new(folder, files | AccessFs::MakeReg))
    });
    let beside = profile.sockets.iter().filter_map(|folder| folder.parent());
    let rules = || -> Result<_, RulesetError> {
        Ruleset::default()
            .handle_access(all)?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(scopes)?
            .create()?
            .add_rules(path_beneath_rules(&profile.read, read))?
            .add_rules(path_beneath_rules(&profile.start, start))?
            .add_rules(path_beneath_rules(&profile.devices, device))?
            .add_rules(path_beneath_rules(&profile.rewrite, rewrite))?
            .add_rules(path_beneath_rules(&profile.write, write))?
            .add_rules(path_beneath_rules(&profile.sockets, AccessFs::RemoveFile))?
            .add_rules(path_beneath_rules(beside, AccessFs::RemoveDir))?
            .add_rules(path_beneath_rules(&profile.divided, AccessFs::RemoveDir))?
            .add_rules(folders)
    };
    let mut pinned = pin(&profile.read);
    pinned.extend(pin(&profile.rewrite));
    let ruleset = rules().map_err(io::Error::other)?;
    // Rules for them hold as long as the process does.
    pinned.into_iter().for_each(std::mem::forget);
    Ok(ruleset)
}

/// Holds this thread, and threads that it starts, to `ruleset`.
pub fn enforce(ruleset: RulesetCreated) -> io::Result<()> {
    match ruleset.restrict_self().map_err(io::Error::other)?.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

/// Opens the files of `/proc` among `paths`. A rule is about an inode; while it is open, the kernel
/// does not make another one for the same file of `/proc`.
fn pin(paths: &[impl AsRef<Path>]) -> Vec<OwnedFd> {
    let of_proc = paths
        .iter()
        .filter(|path| path.as_ref().starts_with("/proc"));
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    of_proc
        .filter_map(|path| rustix::fs::open(path.as_ref(), flags, Mode::empty()).ok())
        .collect()
}

/// Restricts this thread to nothing, and returns whether it then cannot open a folder.
pub fn try_out() -> io::Result<()> {
    restrict(&Profile::default())?;
    match File::open("/") {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        _ => Err(io::Error::other("it restricts nothing")),
    }
}
