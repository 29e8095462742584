//! The terminal as a screen, which is restored at every end of the process.

use std::io::{self, Stdout, stdout};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::{Frame, Terminal};

use causeway_terminal::RawTerminal;

/// The alternate screen of the terminal, in raw mode. A drop restores the terminal, also in a
/// panic. If this process is killed, another process restores the terminal's input
/// ([`RawTerminal`]).
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    // Dropped last.
    _raw: RawTerminal,
}

impl Screen {
    /// Opens the terminal's alternate screen and sets raw mode.
    ///
    /// # Errors
    /// The error of the system call that failed. The terminal is then restored.
    pub fn enter() -> io::Result<Self> {
        let raw = RawTerminal::enter()?;
        say_panics_where_they_stay();
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let screen = Self {
            terminal,
            _raw: raw,
        };
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Draws one frame with `render`. Only changed cells are written to the terminal.
    ///
    /// # Errors
    /// The error of writing to the terminal.
    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(render).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn leave() {
    if let Err(e) = execute!(stdout(), LeaveAlternateScreen, Show) {
        log::debug!("cannot leave the alternate screen: {e}");
    }
}

/// Installs a panic hook that leaves the alternate screen first, because text on it would
/// disappear.
fn say_panics_where_they_stay() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        leave();
        tell(panic);
    }));
}
