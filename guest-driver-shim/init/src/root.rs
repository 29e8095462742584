//! The root file system of the program, on a disk or in a folder of the host.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind, mount_move};
use rustix::process::chroot;

use crate::configuration::FILES;
use crate::mounts;
use crate::shares;
use crate::sources::{Layer, Root};

/// Where the root file system is mounted before it becomes the root.
const NEW_ROOT: &str = "/new-root";
/// Where a root is mounted that stays as it is, below what the guest writes.
const LOWER: &str = "/lower";
/// Where a file system in memory is mounted that takes what the guest writes, and the folders in it
/// that overlayfs needs.
const UPPER: &str = "/upper";
const UPPER_CONTENT: &str = "/upper/content";
const UPPER_WORK: &str = "/upper/work";
/// Folder for what a running system keeps in memory, with its options there.
const RUN: (&str, &CStr) = ("/run", c"mode=755");
/// Likewise, of a root that cannot be written to: programs expect that they can write there.
const TEMPORARY: (&str, &CStr) = ("/tmp", c"mode=1777");

/// Why the guest cannot change to the root file system.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    /// The disk does not exist.
    #[error(
        "cannot use {device} as the root file system: it does not exist; add a disk with --disk{}",
        or_one_of(present)
    )]
    Missing {
        device: String,
        present: Vec<String>,
    },
    /// The kernel mounts the disk as none of its file systems.
    #[error(
        "cannot mount {device} as the root file system (tried {}; --module adds others): {source}",
        kinds.join(", ")
    )]
    Mount {
        device: String,
        kinds: Vec<String>,
        source: io::Error,
    },
    /// The folder of the host is not mounted.
    #[error("cannot mount the folder of the host that is to be the root: {0}")]
    Share(shares::ShareError),
    /// No layer in memory is mounted over the root.
    #[error(
        "cannot put a writable layer in memory over the root file system of {root} (the guest's \
         kernel needs overlayfs: CONFIG_OVERLAY_FS, or its module overlay): {source}"
    )]
    Layer { root: String, source: io::Error },
    /// The root file system lacks a folder, and it cannot be made.
    #[error(
        "cannot put {folder} into the root file system of {root}, which must have this folder if \
         it is read-only: {source}"
    )]
    Folder {
        root: String,
        folder: &'static str,
        source: io::Error,
    },
    /// The mounted file system does not become the root.
    #[error("cannot change to the root file system of {root}: {source}")]
    Change { root: String, source: io::Error },
}

/// Returns how the advice for a disk that does not exist ends.
fn or_one_of(present: &[String]) -> String {
    match present {
        [] => String::from(" (this guest has no block device)"),
        _ => format!(
            ", or give --root one of this guest's block devices: {}",
            present.join(", ")
        ),
    }
}

/// Makes `root` the root of this process, and of those that it starts. It is writable if its source
/// is, or has a layer in memory. What init has mounted, and the files of the initramfs in
/// [`FILES`], have the same paths in it as before.
pub(crate) fn enter(root: &Root) -> Result<(), RootError> {
    let is_read_only = match root.layer() {
        Layer::None => mount_source(root, NEW_ROOT, false)?,
        Layer::Memory => {
            mount_source(root, LOWER, true)?;
            add_layer().map_err(|source| RootError::Layer {
                root: root.to_string(),
                source,
            })?;
            false
        }
    };
    let name = || root.to_string();
    let kept = mounts::folders().map(|folder| (folder, Kept::Moved));
    let temporary = is_read_only.then_some(TEMPORARY);
    let memory = [RUN].into_iter().chain(temporary);
    let memory = memory.map(|(folder, options)| (folder, Kept::Memory(options)));
    for (folder, how) in kept.chain(memory).chain([(FILES, Kept::Shared)]) {
        keep(folder, how).map_err(|source| RootError::Folder {
            root: name(),
            folder,
            source,
        })?;
    }
    let changed = change();
    changed.map_err(|source| RootError::Change {
        root: name(),
        source,
    })
}

/// Mounts the root's source at `place`, only for reading if `read_only` is set. Returns whether it
/// is mounted like that.
fn mount_source(root: &Root, place: &str, read_only: bool) -> Result<bool, RootError> {
    match root {
        Root::Device(device, _) => mount_device(device, place, read_only),
        Root::Share(share, _) => {
            let read_only = read_only || share.read_only;
            let mounted = shares::mount_at(share, Path::new(place), read_only);
            mounted.map(|()| read_only).map_err(RootError::Share)
        }
    }
}

/// Mounts what is at [`LOWER`] as the new root, with a layer in memory that takes what is written.
fn add_layer() -> io::Result<()> {
    for folder in [UPPER, NEW_ROOT] {
        fs::create_dir_all(folder)?;
    }
    mount("tmpfs", UPPER, "tmpfs", MountFlags::empty(), c"mode=755")?;
    for folder in [UPPER_CONTENT, UPPER_WORK] {
        fs::create_dir_all(folder)?;
    }
    // The root of an overlay has the owner and the mode of its upper folder.
    let below = fs::metadata(LOWER)?;
    chown(UPPER_CONTENT, Some(below.uid()), Some(below.gid()))?;
    fs::set_permissions(UPPER_CONTENT, below.permissions())?;
    let options = format!("lowerdir={LOWER},upperdir={UPPER_CONTENT},workdir={UPPER_WORK}");
    let options = CString::new(options)?;
    Ok(mount(
        "overlay",
        NEW_ROOT,
        "overlay",
        MountFlags::empty(),
        &*options,
    )?)
}

/// How a folder of the initramfs gets into the new root.
#[derive(Clone, Copy)]
enum Kept {
    /// The file system that is mounted there moves.
    Moved,
    /// The folder is seen there, too.
    Shared,
    /// The new root has an empty one in memory, with these options.
    Memory(&'static CStr),
}

fn keep(folder: &'static str, how: Kept) -> io::Result<()> {
    let place = inside(folder);
    if !place.is_dir() {
        fs::create_dir_all(&place)?;
    }
    match how {
        Kept::Moved => mount_move(folder, &place)?,
        Kept::Shared => {
            fs::create_dir_all(folder)?;
            mount_bind(folder, &place)?;
        }
        Kept::Memory(options) => mount("tmpfs", &place, "tmpfs", MountFlags::empty(), options)?,
    }
    Ok(())
}

/// Returns a path of the initramfs below the new root.
fn inside(path: &str) -> PathBuf {
    Path::new(NEW_ROOT).join(path.trim_start_matches('/'))
}

fn change() -> io::Result<()> {
    std::env::set_current_dir(NEW_ROOT)?;
    mount_move(".", "/")?;
    chroot(".")?;
    std::env::set_current_dir("/")
}

/// Mounts the device at `place` as the first file system of the kernel's that fits, only for
/// reading if `read_only` is set or the disk is so. Returns whether it is mounted like that.
fn mount_device(device: &Path, place: &str, read_only: bool) -> Result<bool, RootError> {
    if !device.exists() {
        return Err(RootError::Missing {
            device: device.display().to_string(),
            present: block_devices(),
        });
    }
    let failed = |kinds: &[String], error: io::Error| RootError::Mount {
        device: device.display().to_string(),
        kinds: kinds.to_vec(),
        source: error,
    };
    fs::create_dir_all(place).map_err(|e| failed(&[], e))?;
    let table = fs::read_to_string("/proc/filesystems").map_err(|e| failed(&[], e))?;
    let kinds = on_disks(&table);
    let mut last = Errno::NODEV;
    // The kernel would name the file systems that it is not.
    let ways = [MountFlags::SILENT, MountFlags::SILENT | MountFlags::RDONLY];
    for kind in &kinds {
        for flags in &ways[usize::from(read_only)..] {
            match mount(device, place, kind.as_str(), *flags, c"") {
                Ok(()) => return Ok(flags.contains(MountFlags::RDONLY)),
                Err(error @ (Errno::ROFS | Errno::ACCESS)) => last = error,
                Err(error) => {
                    last = error;
                    break;
                }
            }
        }
    }
    Err(failed(&kinds, last.into()))
}

/// Returns the file systems of a table (proc(5), "/proc/filesystems") that lie on block devices.
fn on_disks(table: &str) -> Vec<String> {
    let lines = table.lines().filter_map(|line| line.strip_prefix('\t'));
    lines.map(str::to_owned).collect()
}

/// Returns the paths of the guest's block devices.
fn block_devices() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/block").into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut paths: Vec<String> = names.map(|name| format!("/dev/{name}")).collect();
    paths.sort_unstable();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_of_disks_are_tried() {
        let table = "nodev\tsysfs\nnodev\tproc\n\text3\n\text4\nnodev\ttmpfs\n\tsquashfs\n";
        assert_eq!(on_disks(table), ["ext3", "ext4", "squashfs"]);
    }

    #[test]
    fn a_missing_disk_is_told_with_those_that_exist() {
        let told = |present: &[&str]| {
            let error = RootError::Missing {
                device: String::from("/dev/vdb"),
                present: present.iter().copied().map(str::to_owned).collect(),
            };
            let text = error.to_string();
            let (_, advice) = text.split_once("; ").unwrap();
            advice.to_owned()
        };
        assert_eq!(
            told(&[]),
            "add a disk with --disk (this guest has no block device)"
        );
        let two = told(&["/dev/vda", "/dev/vdc"]);
        assert!(two.ends_with(
            "with --disk, or give --root one of this guest's block devices: /dev/vda, /dev/vdc"
        ));
    }

    #[test]
    fn paths_lie_below_the_new_root() {
        assert_eq!(inside("/dev"), Path::new("/new-root/dev"));
        assert_eq!(inside(FILES), Path::new("/new-root/run/causeway"));
    }
}
