//! Raw mode of the terminal on standard input, and the way back from it whatever happens.
//!
//! Leaving the scope takes the terminal back, in a panic, too. For ends that run no code of ours (SIGKILL above all) there is a
//! keeper: this program once more, which remembers how the terminal was, waits for our end of a socket to be closed, and then
//! restores it. It has a session of its own, so that a signal to our process group does not reach it; and not being of the
//! terminal's session, it may set the terminal without being in the foreground.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::io::Errno;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use crate::failure::{Code, Failure};

/// Name of the hidden command that is the keeper.
pub const KEEPER: &str = "terminal-keeper";

/// A terminal in raw mode.
pub struct RawTerminal {
    saved: Termios,
    // Dropped last, when the terminal is as it was.
    _keeper: Option<Keeper>,
}

impl std::fmt::Debug for RawTerminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawTerminal").finish_non_exhaustive()
    }
}

impl RawTerminal {
    /// Has standard input hand over what is typed as it is. Output is left as it was: lines of ours still begin at the left.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn enter() -> io::Result<Self> {
        let terminal = io::stdin();
        let saved = tcgetattr(&terminal)?;
        let keeper = Keeper::start()
            .inspect_err(|e| {
                log::debug!("cannot start the process that restores the terminal after a kill: {e}")
            })
            .ok();
        tcsetattr(&terminal, OptionalActions::Drain, &raw(saved.clone()))?;
        Ok(Self {
            saved,
            _keeper: keeper,
        })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Err(e) = tcsetattr(io::stdin(), OptionalActions::Now, &self.saved) {
            log::warn!("cannot restore the terminal (`stty sane` helps): {e}");
        }
    }
}

fn raw(mut modes: Termios) -> Termios {
    modes.input_modes -= InputModes::BRKINT
        | InputModes::ICRNL
        | InputModes::INLCR
        | InputModes::IGNCR
        | InputModes::ISTRIP
        | InputModes::INPCK
        | InputModes::IXON
        | InputModes::PARMRK;
    modes.local_modes -= LocalModes::ECHO
        | LocalModes::ECHONL
        | LocalModes::ICANON
        | LocalModes::IEXTEN
        | LocalModes::ISIG;
    modes.special_codes[SpecialCodeIndex::VMIN] = 1;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    modes
}

/// The process that restores the terminal if we cannot.
struct Keeper {
    process: Child,
    link: UnixStream,
}

impl Keeper {
    /// Starts it. When this returns, it has seen how the terminal is.
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
    /// Dismisses it: a word, in place of the end of the socket, says that all is well.
    fn drop(&mut self) {
        if let Err(e) = self
            .link
            .write_all(&[0])
            .and_then(|()| self.process.wait().map(drop))
        {
            log::debug!("cannot end the keeper of the terminal: {e}");
        }
    }
}

/// The keeper's whole life: the body of the hidden command.
pub fn keep() -> Result<ExitCode, Failure> {
    let failed = |e: Errno| Failure::new(Code::Crashed, "cannot watch the terminal", e);
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
