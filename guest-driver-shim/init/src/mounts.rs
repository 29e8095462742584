//! File systems that programs expect.

use std::ffi::CString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use crate::console::say;

/// File system, where it is mounted, and its options. The root lies in memory as it is, and with it
/// `/tmp`.
const MOUNTS: [(&str, &str, &str); 5] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", "mode=755"),
    ("devpts", "/dev/pts", "mode=620,ptmxmode=666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
];

/// Returns the folders in the root on which [`mount_all`] mounts file systems, which may hold more.
pub(crate) fn folders() -> impl Iterator<Item = &'static str> {
    let places = MOUNTS.iter().map(|(_, place, _)| *place);
    places.filter(|place| place.matches('/').count() == 1)
}

/// Mounts the file systems, and reports those that the kernel does not have.
pub(crate) fn mount_all() {
    for (kind, place, options) in MOUNTS {
        match mount_one(kind, place, options) {
            // With CONFIG_DEVTMPFS_MOUNT the kernel may have done it already.
            Err(error) if error.kind() != ErrorKind::ResourceBusy => {
                say(&format!("cannot mount {kind} on {place}: {error}"));
            }
            _ => {}
        }
    }
}

fn mount_one(kind: &str, place: &str, options: &str) -> io::Result<()> {
    fs::create_dir_all(place)?;
    let options = CString::new(options)?;
    mount(kind, place, kind, MountFlags::empty(), &*options)?;
    Ok(())
}

/// Unmounts what the program has mounted, last first, so that disks are clean; what is in use is
/// made read-only, and so is a root on a disk.
pub(crate) fn unmount_all() {
    let table = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let read_only = |place: &Path| mount_remount(place, MountFlags::RDONLY, c"");
    for place in of_the_program(&table).iter().rev() {
        let done = unmount(place, UnmountFlags::empty()).or_else(|_| read_only(place));
        if let Err(error) = done {
            say(&format!("cannot unmount {}: {error}", place.display()));
        }
    }
    if is_root_on_disk(&table)
        && let Err(error) = read_only(Path::new("/"))
    {
        say(&format!(
            "cannot make the root file system read-only: {error}"
        ));
    }
}

/// Returns whether the root of a table of mounts is a block device's file system.
fn is_root_on_disk(table: &str) -> bool {
    let mut roots = table
        .lines()
        .filter(|line| line.split(' ').nth(1) == Some("/"));
    roots.any(|line| line.starts_with("/dev/"))
}

/// Places in a table of mounts (proc(5), "/proc/pid/mounts") that are neither the root nor the
/// init's.
fn of_the_program(table: &str) -> Vec<PathBuf> {
    let places = table.lines().filter_map(|line| line.split(' ').nth(1));
    places
        .map(|place| PathBuf::from(unescape(place)))
        .filter(|place| {
            place != Path::new("/") && !MOUNTS.iter().any(|(_, ours, _)| place == Path::new(ours))
        })
        .collect()
}

/// Blanks, tabs, newlines and backslashes are octal numbers in the table.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_of_the_program_are_undone() {
        let table = "rootfs / rootfs rw 0 0\nproc /proc proc rw 0 0\n\
                     /dev/vda /mnt/my\\040disk ext4 rw 0 0\n\
                     tmpfs /mnt/my\\040disk/x tmpfs rw 0 0\nshort\n";
        let places = of_the_program(table);
        assert_eq!(
            places,
            ["/mnt/my disk", "/mnt/my disk/x"].map(PathBuf::from)
        );
        assert!(!is_root_on_disk(table));
        assert!(is_root_on_disk(
            "/dev/vda1 / ext4 rw 0 0\nproc /proc proc rw 0 0\n"
        ));
    }
}
