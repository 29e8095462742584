//! Terminals of jobs.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};

use causeway_nested_agent::message;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

/// A terminal with nobody at it but the host.
pub struct Terminal {
    /// What a person looks at and types on.
    screen: File,
    /// What programs have. Held here as well, so that the terminal outlives them.
    line: OwnedFd,
    before: message::TerminalModes,
    _held: Sender<Infallible>,
}

/// Waits until a terminal is let go of.
pub struct LetGo(Receiver<Infallible>);

impl LetGo {
    /// Returns when the terminal is gone.
    pub fn wait(self) {
        // Nothing can be sent: this ends with the sender.
        let _ = self.0.recv();
    }
}

impl Terminal {
    /// A new one, as terminals are at first.
    pub fn open() -> io::Result<(Self, LetGo)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = openpt(flags)?;
        unlockpt(&screen)?;
        let line = ioctl_tiocgptpeer(&screen, flags)?;
        let before = modes(&line)?;
        let (held, let_go) = channel();
        let terminal = Self {
            screen: File::from(screen),
            line,
            before,
            _held: held,
        };
        Ok((terminal, LetGo(let_go)))
    }

    /// Makes it a program's input and outputs.
    pub fn give_to(&self, command: &mut Command) -> io::Result<()> {
        let line = || self.line.try_clone();
        command.stdin(line()?).stdout(line()?).stderr(line()?);
        Ok(())
    }

    /// What is shown, to be read to its end: that comes when nobody has the terminal any more.
    pub fn screen(&self) -> io::Result<File> {
        self.screen.try_clone()
    }

    /// Types.
    pub fn type_keys(&mut self, keys: &[u8]) -> io::Result<()> {
        self.screen.write_all(keys)
    }

    /// How it is set.
    pub fn look(&self) -> io::Result<message::Terminal> {
        Ok(message::Terminal {
            before: self.before.clone(),
            now: modes(&self.line)?,
        })
    }
}

fn modes(line: &OwnedFd) -> io::Result<message::TerminalModes> {
    let all = tcgetattr(line)?;
    let has = |mode| all.local_modes.contains(mode);
    Ok(message::TerminalModes {
        lines: has(LocalModes::ICANON),
        echo: has(LocalModes::ECHO),
        signals: has(LocalModes::ISIG),
        all: format!("{all:?}"),
    })
}
