//! Raw mode of the terminal on standard input, which is restored at every end of the process.
//!
//! Dropping [`RawTerminal`] restores the terminal, also in a panic. A second process, the keeper,
//! restores the terminal after a kill (SIGKILL), when this process runs no code. The keeper is
//! another run of this program: it saves the terminal's settings, waits until this process's end of
//! a socket is closed, and then restores the settings. The keeper has a session of its own, so that
//! signals to this process group do not reach it. As it is outside the terminal's session, it may
//! set the terminal without being in the foreground.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::background::unstopped;
use crate::failure::{Code, Failure};
use crate::leftovers::Leftover;

/// Name of the hidden subcommand that runs the keeper, the process that restores the terminal.
pub const KEEPER: &str = "terminal-keeper";

/// The terminal on standard input in raw mode: keys reach the program one by one and unchanged. A
/// drop restores the terminal.
#[derive(Debug)]
pub struct RawTerminal {
    saved: Termios,
    // Dropped after the terminal is restored.
    _leftover: Leftover,
    // Dropped last, after the terminal is restored.
    _keeper: Option<Keeper>,
}

impl RawTerminal {
    /// Sets the terminal on standard input to raw mode, in which typed bytes reach the program
    /// unprocessed. Output processing is unchanged, so each line of output still begins at the
    /// left.
    ///
    /// # Errors
    /// The error of the system call that reads or changes the terminal's settings.
    pub fn enter() -> io::Result<Self> {
        let terminal = io::stdin();
        let saved = tcgetattr(&terminal)?;
        let keeper = Keeper::start()
            .inspect_err(|e| {
                log::debug!("cannot start the process that restores the terminal after a kill: {e}")
            })
            .ok();
        let mut raw = saved.clone();
        raw.make_raw();
        raw.output_modes = saved.output_modes;
        raw.control_modes = saved.control_modes;
        let leftover = {
            let saved = saved.clone();
            Leftover::new(move || {
                let _ = restore(&saved);
            })
        };
        tcsetattr(&terminal, OptionalActions::Drain, &raw)?;
        Ok(Self {
            saved,
            _leftover: leftover,
            _keeper: keeper,
        })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Err(e) = restore(&self.saved) {
            log::warn!(
                "cannot restore the terminal's settings; type `stty sane` to restore them: {e}"
            );
        }
    }
}

/// Gives the terminal on standard input its former settings, also from the background: this process
/// was in the foreground when it changed them.
fn restore(saved: &Termios) -> Result<(), Errno> {
    unstopped(|| tcsetattr(io::stdin(), OptionalActions::Now, saved))
}

/// The process that restores the terminal if this process cannot.
#[derive(Debug)]
struct Keeper {
    process: Child,
    link: UnixStream,
}

impl Keeper {
    /// Starts the keeper. When this function returns, the keeper has saved the terminal's settings.
    fn start() -> io::Result<Self> {
        let (mut link, other) = UnixStream::pair()?;
        let process = Command::new(std::env::current_exe()?)
            .arg(KEEPER)
            .stdin(Stdio::inherit())
            .stdout(Stdio::from(OwnedFd::from(other)))
            .stderr(Stdio::null())
            .spawn()?;
        link.read_exact(&mut [0])?;
        Ok(Self { process, link })
    }
}

impl Drop for Keeper {
    /// Ends the keeper by a message, so that it does not restore the terminal.
    fn drop(&mut self) {
        if let Err(e) = self
            .link
            .write_all(&[0])
            .and_then(|()| self.process.wait().map(drop))
        {
            log::debug!("cannot end the process that restores the terminal: {e}");
        }
    }
}

/// Runs the keeper, the process that restores the terminal: waits until the parent process ends,
/// and restores the terminal if the parent has not done so, for example because it was killed. This
/// is the body of the hidden subcommand [`KEEPER`].
///
/// # Errors
/// A failure with [`Code::Crashed`] if standard input is not a terminal, or a system call fails.
pub fn keep() -> Result<ExitCode, Failure> {
    let failed = |e: Errno| {
        Failure::new(
            Code::Crashed,
            "cannot save the terminal's settings, or cannot restore them after the command was \
             killed (`stty sane` restores them)",
            e,
        )
    };
    let terminal = io::stdin();
    // Fails for the leader of a group, which a process that was just started is not.
    rustix::process::setsid().map_err(failed)?;
    let saved = tcgetattr(&terminal).map_err(failed)?;
    let link = io::stdout();
    rustix::io::write(&link, &[0]).map_err(failed)?;
    let mut word = [0];
    if !matches!(rustix::io::read(&link, &mut word), Ok(1)) {
        tcsetattr(&terminal, OptionalActions::Now, &saved).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}
