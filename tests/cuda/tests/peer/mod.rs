//! A second process with the same server: a test function of the same file, which the first process
//! starts and talks to.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::Duration;

/// Names the descriptor of the child's end of the connection.
const CONNECTION: &str = "CAUSEWAY_TEST_CONNECTION";
/// How long one side waits for the other.
const PATIENCE: Duration = Duration::from_secs(60);
/// `F_SETFD`
const SET_FLAGS: i32 = 2;

unsafe extern "C" {
    fn fcntl(descriptor: i32, command: i32, argument: i32) -> i32;
}

/// The other side. Both send each other bytes.
pub struct Peer {
    connection: UnixStream,
    child: Option<Child>,
}

/// Makes children inherit a descriptor, or not.
fn set_inherited(descriptor: i32, is_inherited: bool) {
    // SAFETY: changes nothing but the flag.
    let set = unsafe { fcntl(descriptor, SET_FLAGS, i32::from(!is_inherited)) };
    assert_eq!(set, 0);
}

/// Starts a process that runs the ignored test `name` and inherits `descriptors`.
pub fn start(name: &str, descriptors: &[i32]) -> Peer {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs_number = theirs.as_raw_fd();
    let inherited = || descriptors.iter().copied().chain([theirs_number]);
    inherited().for_each(|descriptor| set_inherited(descriptor, true));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture", "--quiet"])
        .env(CONNECTION, theirs_number.to_string())
        .spawn()
        .unwrap();
    inherited().for_each(|descriptor| set_inherited(descriptor, false));
    Peer::new(ours, Some(child))
}

/// Returns the process that started this one; `None` if this is no child.
pub fn parent() -> Option<Peer> {
    let number = std::env::var(CONNECTION).ok()?.parse().unwrap();
    // SAFETY: the parent has made it for this function, which is called once.
    let connection = unsafe { UnixStream::from_raw_fd(number) };
    Some(Peer::new(connection, None))
}

impl Peer {
    fn new(connection: UnixStream, child: Option<Child>) -> Self {
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { connection, child }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.connection.write_all(bytes).unwrap();
    }

    pub fn receive<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        self.connection.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Tells the other side that this one has come so far, and waits until the other has.
    pub fn meet(&mut self) {
        self.send(b".");
        assert_eq!(self.receive(), *b".");
    }

    /// Waits for the end of the child, which must have passed.
    pub fn finish(&mut self) {
        let mut child = self.child.take().unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Ends the child at once.
    #[allow(dead_code, reason = "not all tests end one")]
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Peer {
    /// After a failure, nobody waits for the child.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
