//! The terminal as a screen, and the way back from it whatever happens.

use std::io::{self, Stdout, stdout};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::{Frame, Terminal};

use causeway_terminal::RawTerminal;

/// A screen of its own, with nothing that is typed shown. Dropping it shows the terminal as it was, in a panic, too; and if this
/// process is killed, somebody else sees to it that typing works ([`RawTerminal`]).
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    // Dropped last.
    _raw: RawTerminal,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// What the kernel said; the terminal is then as it was.
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

    /// Draws a frame; what has not changed is not written again.
    ///
    /// # Errors
    /// What the terminal said.
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
        log::debug!("the terminal keeps its screen: {e}");
    }
}

/// Has a panic leave the screen before it is told: what is written there goes with it.
fn say_panics_where_they_stay() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        leave();
        tell(panic);
    }));
}
