//! A person at the console of a Linux guest: the terminal is the guest's until the run ends.
//!
//! Ctrl-A x ends the run, as Ctrl-C does otherwise, which goes to the guest here; Ctrl-A twice is one Ctrl-A for the guest.

use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_vmm::console::{ByteSink, Console};
use causeway_vmm::vm::Boot;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Signal, getpid, kill_process};

use crate::configuration::Run;
use causeway_terminal::{self as terminal, RawTerminal};

mod escape;

use escape::{Escape, Key};

/// How long a guest may leave its input unread before what is typed is lost.
const PATIENCE: Duration = Duration::from_millis(200);

/// Whether the terminal is to be the guest's: there is one guest that can be typed to, and somebody who can.
pub fn is_wanted(run: &Run) -> bool {
    let guest = matches!(run.boot, Boot::Linux(_)) && run.vms == 1;
    guest && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Where the guest's output goes meanwhile.
pub fn output() -> ByteSink {
    Arc::new(|byte| {
        // A standard error that cannot be written to is nobody's to be told about.
        let _ = io::stderr().lock().write_all(&[byte]);
    })
}

/// The terminal in the guest's hands. Dropping it takes the terminal back.
pub struct Interactive {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    // Last: nothing is read from the terminal any more when it becomes what it was.
    _raw: RawTerminal,
}

impl Interactive {
    /// Gives the terminal on standard input to the guest with this console.
    ///
    /// # Errors
    /// What the kernel said; the terminal is then as it was.
    pub fn start(console: Arc<Console>) -> io::Result<Self> {
        terminal::say("causeway: the terminal belongs to the guest; Ctrl-A x ends the run");
        let raw = RawTerminal::enter()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || {
                if let Err(e) = pump(&console, &stopped) {
                    log::debug!("cannot read input for the guest: {e}");
                }
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
            _raw: raw,
        })
    }
}

impl Drop for Interactive {
    fn drop(&mut self) {
        if let Err(e) = rustix::io::write(&*self.stop, &1u64.to_ne_bytes()) {
            // The thread ends with the process.
            log::debug!("cannot stop reading input: {e}");
            return;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Carries what is typed to the guest, until `stop` is signalled or the terminal is gone.
fn pump(console: &Console, stop: &OwnedFd) -> io::Result<()> {
    let input = io::stdin();
    let mut escape = Escape::default();
    loop {
        let mut ready = [
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(&input, PollFlags::IN),
        ];
        poll(&mut ready, None)?;
        if !ready[0].revents().is_empty() {
            return Ok(());
        }
        let mut typed = [0; 64];
        // Past the buffer of standard input, which would hide from `poll` what it holds.
        let bytes = rustix::io::read(&input, &mut typed)?;
        if bytes == 0 {
            return Ok(());
        }
        let mut keys = Vec::with_capacity(bytes + 1);
        for byte in &typed[..bytes] {
            match escape.feed(*byte) {
                Key::Typed(bytes) => keys.extend(bytes.into_iter().flatten()),
                Key::End => return Ok(kill_process(getpid(), Signal::INT)?),
            }
        }
        hand_over(console, &keys);
    }
}

/// What the guest does not read in time is lost: whoever types must be able to end it all the same.
fn hand_over(console: &Console, mut keys: &[u8]) {
    while !keys.is_empty() {
        match console.input(keys, PATIENCE) {
            0 => return,
            taken => keys = &keys[taken..],
        }
    }
}
