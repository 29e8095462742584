//! A second process that removes a socket, for a process that gives up the right to remove files in
//! folders of the user.
//!
//! The keeper is another run of this program. It waits until its standard input is closed, by which
//! time nobody listens on the socket any more, and so works after a kill (SIGKILL), too.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::listener::{self, ListenError};

/// Name of the hidden subcommand that runs the keeper; its argument is the socket.
const KEEPER: &str = "socket-keeper";

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

/// Waits until standard input is closed, and removes the socket at `path`, if nobody listens there.
///
/// # Errors
/// What [`listener::remove_leftovers`] returns.
pub fn keep_socket(path: &Path) -> Result<(), ListenError> {
    // Nobody writes; an error means that nobody will.
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
    listener::remove_leftovers(path)
}
