//! A second process that removes a socket, for a process that gives up the right to remove files in
//! folders of the user.
//!
//! The keeper is another run of this program. It waits until its standard input is closed, and so
//! works after a kill (SIGKILL), too. The kernel then closes a process's descriptors one after the
//! other, so that the socket may listen for a moment longer than the input is open.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::listener::{self, ListenError};

/// Name of the hidden subcommand that runs the keeper; its argument is the socket.
const KEEPER: &str = "socket-keeper";

/// Attempts to remove a socket on which a process listens.
const TRIES: u32 = 200;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// The process that will remove a socket. A drop makes it do so.
#[derive(Debug)]
pub struct SocketKeeper(Child);

impl SocketKeeper {
    /// Starts the keeper of the socket at `path`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start(path: &Path) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        let path = std::path::absolute(path)?;
        let words = [OsStr::new(KEEPER), OsStr::new("--"), path.as_os_str()];
        command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // What ends the group of the command must not end the keeper.
            .process_group(0);
        command.spawn().map(Self)
    }
}

impl Drop for SocketKeeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        if let Err(e) = self.0.wait() {
            log::debug!("the process that removes a socket was not seen to end: {e}");
        }
    }
}

/// Waits until standard input is closed, and removes the socket at `path`. If another process
/// listens there, the socket is that process's, and stays.
///
/// # Errors
/// What [`listener::remove_leftovers`] returns, but for [`ListenError::InUse`].
pub fn keep_socket(path: &Path) -> Result<(), ListenError> {
    // Nobody writes; an error means that nobody will.
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
    remove_when_unused(path, TRIES)
}

/// Removes the socket at `path`, in at most `tries` attempts while a process listens there.
fn remove_when_unused(path: &Path, tries: u32) -> Result<(), ListenError> {
    for _ in 0..tries {
        match listener::remove_leftovers(path) {
            Err(ListenError::InUse) => std::thread::sleep(PAUSE),
            removed => return removed,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Listener;

    #[test]
    fn a_socket_that_listens_a_moment_longer_is_removed_and_one_that_goes_on_stays() {
        let path = std::env::temp_dir().join(format!("causeway-kept-{}", std::process::id()));
        let listening = Listener::bind_stream(&path).unwrap();
        remove_when_unused(&path, 2).unwrap();
        assert!(path.exists());
        let removed = std::thread::spawn({
            let path = path.clone();
            move || remove_when_unused(&path, TRIES)
        });
        std::thread::sleep(PAUSE);
        // What a killed process leaves.
        let mut left = listening;
        left.leave();
        drop(left);
        removed.join().unwrap().unwrap();
        assert!(!path.exists());
    }
}
