//! Why a process cannot be watched, for the person who asked for it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;

use causeway_terminal::Failure;

/// Longest name of a process that is shown. Linux keeps 15 bytes.
const NAME_CHARS_MAX: usize = 64;

/// A process that has answered before. It may still be there for a moment.
pub fn gone(pid: u32) -> Failure {
    Failure::usage(format!(
        "process {pid} has ended, or has no guests any more"
    ))
}

/// A process that nobody answers for.
pub fn explain(pid: u32) -> Failure {
    let uid = geteuid().as_raw();
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else {
        return Failure::usage(format!(
            "there is no process {pid}: it has ended, or never was (`causeway stat --all` watches those that run)"
        ));
    };
    let owner = process.uid();
    if uid != 0 && owner != uid {
        return Failure::usage(format!(
            "process {pid} belongs to user {owner}, and would show its guests to them and to root only: run this as one of them (`causeway stat --all` watches your own)"
        ));
    }
    Failure::usage(format!(
        "process {pid} ({}) has no guests of Causeway to show (`causeway stat --all` watches those that have)",
        name(pid)
    ))
}

fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim().chars().take(NAME_CHARS_MAX);
    name.map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_watched_is_told_with_its_number_and_the_way_out() {
        let own = std::process::id();
        // Beyond PID_MAX_LIMIT (include/linux/threads.h), so that there can be none.
        for (pid, part) in [(own, "has no guests"), (5_000_000, "there is no process")] {
            let message = explain(pid).to_string();
            for part in [part, &pid.to_string(), "--all"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}
