//! Control groups that bound the host memory of worker processes, one group for each worker
//! (Linux, `Documentation/admin-guide/cgroup-v2.rst`).
//!
//! The user names a folder of a control group that is theirs to divide. The process that starts
//! workers makes a group in it for each, and the VMM removes the group when the worker has ended.
//! A VMM that is killed leaves empty groups; the next one removes them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the workers of a VMM get their groups, and what each may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryGroups {
    /// The folder of a control group (cgroup v2) without processes of its own.
    pub folder: PathBuf,
    /// Host memory that each worker may use, in bytes (`memory.max`), with what the kernel has for
    /// it. The kernel kills a worker that needs more.
    pub memory_max_bytes: u64,
}

/// Why a folder cannot hold groups of workers.
#[derive(Debug, thiserror::Error)]
pub enum MemoryGroupsError {
    /// It is no control group, or one of another hierarchy.
    #[error("{} is no folder of a control group (cgroup v2)", .0.display())]
    NoGroup(PathBuf),
    /// It is the group of the whole machine, which nobody may divide without capabilities.
    #[error("{} is the root of all control groups: name a folder in it", .0.display())]
    Root(PathBuf),
    /// Its group has no memory controller.
    #[error(
        "the control group {} cannot limit memory: write `+memory` to cgroup.subtree_control in \
         the folder above it",
        .0.display()
    )]
    NoMemory(PathBuf),
    /// Processes are in it.
    #[error(
        "the control group {} has processes of its own, so it cannot be divided: name a group \
         without any, such as a new folder in it",
        .0.display()
    )]
    Occupied(PathBuf),
    /// The kernel refuses to divide it.
    #[error("cannot divide the control group {}", .0.display())]
    Refused(PathBuf, #[source] io::Error),
}

impl MemoryGroups {
    /// Prepares the folder: checks that groups in it can limit memory, and removes what VMMs have
    /// left that were killed.
    ///
    /// # Errors
    /// As the variants of [`MemoryGroupsError`] say.
    pub fn prepare(&self) -> Result<(), MemoryGroupsError> {
        let folder = || self.folder.clone();
        let kind = rustix::fs::statfs(&self.folder).map(|found| found.f_type);
        if kind != Ok(libc::CGROUP2_SUPER_MAGIC) {
            return Err(MemoryGroupsError::NoGroup(folder()));
        }
        // The root has no type.
        if !self.folder.join("cgroup.type").exists() {
            return Err(MemoryGroupsError::Root(folder()));
        }
        let refused = |e| MemoryGroupsError::Refused(folder(), e);
        let controllers = fs::read_to_string(self.folder.join("cgroup.controllers"));
        let controllers = controllers.map_err(refused)?;
        if !controllers.split_whitespace().any(|name| name == "memory") {
            return Err(MemoryGroupsError::NoMemory(folder()));
        }
        let divided = fs::write(self.folder.join("cgroup.subtree_control"), "+memory");
        divided.map_err(|e| match e.kind() {
            io::ErrorKind::ResourceBusy => MemoryGroupsError::Occupied(folder()),
            _ => refused(e),
        })?;
        self.sweep().map_err(refused)
    }

    /// Makes a group for the process `worker`, and puts it in there.
    pub(crate) fn enter(&self, vmm: u32, worker: u32) -> io::Result<()> {
        let group = self.group_of(vmm, worker);
        fs::create_dir(&group)?;
        let entered = fs::write(group.join("memory.max"), self.memory_max_bytes.to_string())
            .and_then(|()| without_swap(&group))
            .and_then(|()| fs::write(group.join("cgroup.procs"), worker.to_string()));
        if entered.is_err() {
            // Its own error is why the process does not start.
            let _ = fs::remove_dir(&group);
        }
        entered
    }

    /// Returns the folder of the group of the process `worker`.
    pub(crate) fn group_of(&self, vmm: u32, worker: u32) -> PathBuf {
        self.folder.join(format!("causeway-{vmm}-{worker}"))
    }

    /// Removes empty groups whose VMM lives no more.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let vmm = name.to_str().and_then(vmm_of);
            if vmm.is_some_and(|vmm| !Path::new("/proc").join(vmm.to_string()).exists()) {
                // A worker that is yet to end keeps its group.
                let _ = fs::remove_dir(entry.path());
            }
        }
        Ok(())
    }
}

/// What is swapped out would not count. Kernels without swap have no such file.
fn without_swap(group: &Path) -> io::Result<()> {
    let limit = fs::File::options()
        .write(true)
        .open(group.join("memory.swap.max"));
    match limit {
        Ok(mut file) => io::Write::write_all(&mut file, b"0"),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Returns the VMM that a group's name names; `None` if it is no worker's group.
fn vmm_of(name: &str) -> Option<u32> {
    let (vmm, worker) = name.strip_prefix("causeway-")?.split_once('-')?;
    worker.parse::<u32>().ok()?;
    vmm.parse().ok()
}

/// Removes the group of a worker that has ended.
pub(crate) fn remove(group: &Path) {
    if let Err(e) = fs::remove_dir(group) {
        log::debug!("{} is left: {e}", group.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_no_control_group_is_refused_by_name() {
        let groups = MemoryGroups {
            folder: "/proc".into(),
            memory_max_bytes: 1 << 30,
        };
        let refused = groups.prepare().unwrap_err().to_string();
        assert!(refused.contains("/proc is no folder"), "{refused}");
    }

    #[test]
    fn only_groups_of_workers_name_a_vmm() {
        assert_eq!(vmm_of("causeway-12-345"), Some(12));
        for other in [
            "causeway-12",
            "causeway-a-1",
            "causeway-1-b",
            "user.slice",
            "12-34",
        ] {
            assert_eq!(vmm_of(other), None, "{other}");
        }
    }

    #[test]
    fn groups_of_vmms_that_live_no_more_are_swept_and_others_stay() {
        let own = std::process::id();
        let folder = std::env::temp_dir().join(format!("causeway-groups-{own}"));
        let groups = MemoryGroups {
            folder: folder.clone(),
            memory_max_bytes: 1 << 30,
        };
        // Process IDs end below 2^22.
        let dead = groups.group_of(1 << 30, 5);
        let alive = groups.group_of(own, 5);
        let foreign = folder.join("others");
        for made in [&dead, &alive, &foreign] {
            fs::create_dir_all(made).unwrap();
        }
        groups.sweep().unwrap();
        let left = [dead, alive, foreign].map(|made| made.exists());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, [false, true, true]);
    }
}
