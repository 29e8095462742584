//! The virtio port that leads to the host.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use causeway_nested_agent::PORT_NAME;

/// How long the kernel may take to find the port.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// Opens the port; the first is for reading, the second for writing.
pub fn open() -> io::Result<(Incoming, File)> {
    let begun = Instant::now();
    loop {
        if let Some(path) = find() {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            return Ok((Incoming(file.try_clone()?), file));
        }
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(format!(
                "there is no virtio port called {PORT_NAME}"
            )));
        }
        sleep(PAUSE);
    }
}

fn find() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?.flatten();
    let is_ours = |name: String| name.trim_end() == PORT_NAME;
    let mut ours = ports.filter(|port| {
        let name = fs::read_to_string(port.path().join("name"));
        name.is_ok_and(is_ours)
    });
    let device = PathBuf::from("/dev").join(ours.next()?.file_name());
    device.exists().then_some(device)
}

/// The port, to read from.
pub struct Incoming(File);

impl Read for Incoming {
    /// Nothing to read means that the host has not connected yet: if it ever goes, the machine goes
    /// with it.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Ok(0) if !buffer.is_empty() => sleep(PAUSE),
                result => return result,
            }
        }
    }
}
