//! Connects the terminal to the console of a Linux guest until the run ends.
//!
//! Ctrl-A x ends the run. Ctrl-C goes to the guest. Ctrl-A typed twice sends one Ctrl-A to the
//! guest.

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

/// Longest time that a guest may leave its input unread. Later input is dropped.
const PATIENCE: Duration = Duration::from_millis(200);

/// Returns whether to connect the terminal to the guest: if the run has a single Linux guest, and
/// standard input and standard error are terminals.
pub fn is_wanted(run: &Run) -> bool {
    let guest = matches!(run.settings.boot, Boot::Linux(_)) && run.settings.vms == 1;
    guest && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Returns the function that receives the guest's output in interactive mode. It writes each byte
/// to standard error.
pub fn output() -> ByteSink {
    Arc::new(|byte| {
        // Errors of standard error are ignored: no other stream is left to report them.
        let _ = io::stderr().lock().write_all(&[byte]);
    })
}

/// A terminal that is connected to the console of a guest. A drop disconnects and restores the
/// terminal.
pub struct Interactive {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    // The last field: the terminal is restored after the thread has stopped reading it.
    _raw: RawTerminal,
}

impl Interactive {
    /// Sets the terminal on standard input to raw mode, for [`Self::start`].
    ///
    /// # Errors
    /// The error of the system call that failed. The terminal is then unchanged.
    pub fn enter() -> io::Result<RawTerminal> {
        terminal::say("causeway: the terminal belongs to the guest; Ctrl-A x ends the run");
        RawTerminal::enter()
    }

    /// Connects the terminal on standard input, which is in raw mode, to `console`.
    ///
    /// # Errors
    /// The error of the system call that failed. The terminal is then as it was before raw mode.
    pub fn start(raw: RawTerminal, console: Arc<Console>) -> io::Result<Self> {
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

/// Copies typed bytes to the guest until `stop` is signalled or the terminal is closed.
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
        // Read without the buffer of standard input: `poll` does not see bytes in that buffer.
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

/// Drops input that the guest does not read in time, so that the user can always end the run.
fn hand_over(console: &Console, mut keys: &[u8]) {
    while !keys.is_empty() {
        match console.input(keys, PATIENCE) {
            0 => return,
            taken => keys = &keys[taken..],
        }
    }
}
