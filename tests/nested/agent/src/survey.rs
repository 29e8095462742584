//! What there is in the machine, so that what a scenario leaves behind shows.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use causeway_nested_agent::message::{Process, Survey};
use rustix::io::Errno;

/// Folders in which programs put what should not stay.
const FOLDERS: &[&str] = &["/tmp", "/run", "/dev/shm", "/var"];
/// Most files that are named.
const FILES_MAX: usize = 1000;

/// Looks around.
pub fn take() -> io::Result<Survey> {
    // Caches of the kernel's are nobody's leftovers. (Documentation/admin-guide/sysctl/vm.rst: 3 is
    // pages, entries and inodes.)
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    // Processors count on their own for up to a second, and what they have not handed in is missing
    // in the sums. (The same document: "stat_refresh". It says EINVAL after the work, if a sum is
    // odd.)
    if let Err(error) = fs::write("/proc/sys/vm/stat_refresh", "1")
        && error.raw_os_error() != Some(Errno::INVAL.raw_os_error())
    {
        return Err(error);
    }
    let memory = fs::read_to_string("/proc/meminfo")?;
    let mut files = Vec::new();
    for folder in FOLDERS {
        list(Path::new(folder), &mut files);
    }
    files.sort();
    Ok(Survey {
        processes: processes()?,
        files,
        sockets: fs::read_to_string("/proc/net/unix").map_or(0, |table| table.lines().count() - 1),
        shared_kib: kib(&memory, "Shmem")?,
        available_kib: kib(&memory, "MemAvailable")?,
    })
}

fn kib(memory: &str, name: &str) -> io::Result<u64> {
    let mut words = memory.lines().map(str::split_whitespace);
    let number = words.find_map(|mut words| {
        (words.next()?.strip_suffix(':')? == name).then_some(())?;
        words.next()?.parse().ok()
    });
    number.ok_or_else(|| io::Error::other(format!("/proc/meminfo does not say {name}")))
}

/// The kernel's own threads have no command line; processes that have ended but are not collected
/// have none either, and are named by their state. Those that process 1 will collect, which is the
/// agent's own, are nobody's leftovers.
fn processes() -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if pid == 1 || pid == std::process::id() {
            continue;
        }
        if let Some(command) = command(&entry.path()) {
            processes.push(Process { pid, command });
        }
    }
    Ok(processes)
}

fn command(process: &Path) -> Option<String> {
    let words = fs::read(process.join("cmdline")).ok()?;
    let words = words
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    if !words.is_empty() {
        return Some(words.join(" "));
    }
    let status = fs::read_to_string(process.join("status")).ok()?;
    forgotten(&status)
}

/// Name of a process that has ended and that its parent has not collected, by its `status`
/// (proc_pid_status(5)).
fn forgotten(status: &str) -> Option<String> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let has_ended = field("State:\t")?.starts_with('Z');
    let has_parent = field("PPid:\t")? != "1";
    let name = field("Name:\t")?;
    (has_ended && has_parent).then(|| format!("[{name}] (ended, not collected)"))
}

fn list(folder: &Path, files: &mut Vec<String>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    for path in paths {
        if files.len() >= FILES_MAX {
            return;
        }
        files.push(path.display().to_string());
        if path.is_dir() && !path.is_symlink() {
            list(&path, files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_ended_are_left_over_if_it_is_for_a_program_to_collect_them() {
        let status = |state, parent| format!("Name:\tcauseway\nState:\t{state}\nPPid:\t{parent}\n");
        let left = forgotten(&status("Z (zombie)", 70));
        assert_eq!(left.as_deref(), Some("[causeway] (ended, not collected)"));
        assert_eq!(forgotten(&status("Z (zombie)", 1)), None);
        // A thread of the kernel's.
        assert_eq!(forgotten(&status("S (sleeping)", 2)), None);
    }
}
