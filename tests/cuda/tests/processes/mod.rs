//! Functions of a test file that run in processes of their own, with a server in another one.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Longest time that a process of these tests may take: all of them are done in a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server in a process of its own.
pub struct Server {
    process: Child,
    folder: PathBuf,
}

/// Returns a command that runs a function of this file with the server at `socket`.
pub fn function(name: &str, socket: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--quiet"]);
    command.env("CAUSEWAY_SOCKET", socket);
    command
}

impl Server {
    pub fn start(name: &str) -> Self {
        let own = format!("causeway-lives-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(own);
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("socket");
        let process = function("server", &socket).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !socket.exists() {
            assert!(Instant::now() < deadline, "the server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { process, folder }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

/// Waits for the end of a process, which must be a success in time.
pub fn succeeds(mut process: Child, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            assert!(status.success(), "{what}: {status}");
            return;
        }
        if Instant::now() > deadline {
            process.kill().unwrap();
            panic!("{what} does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a function of this file, which must succeed in time.
pub fn runs(name: &str) {
    let server = Server::start(name);
    succeeds(function(name, &server.socket()).spawn().unwrap(), name);
}
