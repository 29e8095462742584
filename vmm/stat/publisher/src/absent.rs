//! Messages that say why a process with a process ID that a user has typed does not answer.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;

use causeway_terminal::Failure;

/// Longest name of a process that is shown. Linux keeps 15 bytes.
const NAME_CHARS_MAX: usize = 64;

/// Returns the failure of a command for process `pid`, which has answered before but no longer
/// listens on its socket.
pub fn gone(pid: u32) -> Failure {
    Failure::usage(format!(
        "process {pid} has ended, or all of its guests have ended"
    ))
}

/// Returns the failure of a command for process `pid`, which has no socket for monitors. The
/// message says whether the process exists, and whether it belongs to another user.
pub fn explain(pid: u32) -> Failure {
    let uid = geteuid().as_raw();
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else {
        return Failure::usage(format!(
            "process {pid} does not exist: `causeway stat --all` shows all processes with guests"
        ));
    };
    let owner = process.uid();
    if uid != 0 && owner != uid {
        return Failure::usage(format!(
            "process {pid} belongs to user {owner}: run this command as that user or as root \
             (`causeway stat --all` shows your processes)"
        ));
    }
    Failure::usage(format!(
        "process {pid} ({}) has no guests of Causeway: `causeway stat --all` shows all processes \
         with guests",
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
        for (pid, part) in [(own, "has no guests"), (5_000_000, "does not exist")] {
            let message = explain(pid).to_string();
            for part in [part, &pid.to_string(), "--all"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}
