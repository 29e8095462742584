//! The live view: a thread queries processes, and the main thread draws and reads keys.

mod draw;
mod screen;
mod state;

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::sampler::{Observation, Sampler};
use causeway_terminal::{Code, Failure};
use causeway_vmm::signals::Signals;
use screen::Screen;
use state::State;

/// Time between two checks for signals and new statistics.
const TICK: Duration = Duration::from_millis(50);

/// Action that a key requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Down,
    Up,
    /// Draw everything again, after a change of size.
    Redraw,
}

/// How the view ends.
enum End {
    Quit,
    Signal(i32),
    /// The monitored process has ended.
    Gone(Failure),
}

/// Shows the statistics of `sampler` on the terminal, and updates them in each `interval`. Returns
/// when the user or a signal ends the view, or when the only process to show ends. `first` is shown
/// until the first update.
///
/// # Errors
/// A failure if the terminal cannot be used or no thread can be started.
pub fn show(sampler: Sampler, first: Observation, interval: Duration) -> Result<ExitCode, Failure> {
    // Blocked before the screen is opened, because the screen must be restored first.
    let mut signals = Signals::block().map_err(|e| {
        Failure::new(
            Code::Crashed,
            "cannot prepare to handle signals such as SIGINT (Ctrl-C), so the live view does not \
             start",
            e,
        )
    })?;
    let failed = |e: io::Error| {
        Failure::new(
            Code::Crashed,
            "cannot show the live view on the terminal",
            e,
        )
    };
    let mut screen = Screen::enter().map_err(failed)?;
    let looks = start(sampler, interval).map_err(failed)?;
    let mut state = State::new(first, interval);
    let mut changed = true;
    let end = loop {
        if std::mem::take(&mut changed) {
            screen
                .draw(|frame| draw::draw(frame, &state))
                .map_err(failed)?;
        }
        if let Some(signal) = signals.take() {
            break End::Signal(signal);
        }
        match looks.try_recv() {
            Ok(Ok(seen)) => {
                state.update(seen);
                changed = true;
            }
            Ok(Err(gone)) => break End::Gone(gone),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => break End::Gone(nobody_looks()),
        }
        let wish = wish(TICK).map_err(failed)?;
        match wish {
            Some(Wish::Quit) => break End::Quit,
            Some(Wish::Down) => state.step(true),
            Some(Wish::Up) => state.step(false),
            Some(Wish::Redraw) | None => {}
        }
        changed |= wish.is_some();
    };
    // Messages from here on must stay on the terminal.
    drop(screen);
    match end {
        End::Quit => Ok(ExitCode::SUCCESS),
        End::Signal(signal) => Ok(Code::of_signal(signal).into()),
        End::Gone(gone) => {
            super::say(&gone.to_string());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn nobody_looks() -> Failure {
    let panicked = io::Error::other("the sampler thread panicked; this is a bug");
    Failure::new(
        Code::Crashed,
        "cannot get new statistics for the live view",
        panicked,
    )
}

/// Starts the thread that queries processes. The thread ends when the receiver is dropped.
fn start(
    sampler: Sampler,
    interval: Duration,
) -> io::Result<Receiver<Result<Observation, Failure>>> {
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("sampler".into())
        .spawn(move || look(sampler, interval, &sender))?;
    Ok(receiver)
}

fn look(mut sampler: Sampler, interval: Duration, sender: &Sender<Result<Observation, Failure>>) {
    loop {
        std::thread::sleep(interval);
        let seen = sampler.look();
        let last = seen.is_err();
        if sender.send(seen).is_err() || last {
            return;
        }
    }
}

/// Returns the action of the next key, if one is pressed within `patience`.
fn wish(patience: Duration) -> io::Result<Option<Wish>> {
    if !event::poll(patience)? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => meaning(key),
        Event::Resize(..) => Some(Wish::Redraw),
        _ => None,
    })
}

fn meaning(key: KeyEvent) -> Option<Wish> {
    match (key.code, key.modifiers) {
        (KeyCode::Char('c'), KeyModifiers::CONTROL) => Some(Wish::Quit),
        (KeyCode::Char('q') | KeyCode::Esc, _) => Some(Wish::Quit),
        (KeyCode::Down | KeyCode::Char('j'), _) => Some(Wish::Down),
        (KeyCode::Up | KeyCode::Char('k'), _) => Some(Wish::Up),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_help_says() {
        let typed = |code| meaning(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(typed(KeyCode::Char('q')), Some(Wish::Quit));
        assert_eq!(typed(KeyCode::Down), Some(Wish::Down));
        assert_eq!(typed(KeyCode::Char('k')), Some(Wish::Up));
        assert_eq!(typed(KeyCode::Char('c')), None);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(meaning(interrupt), Some(Wish::Quit));
    }
}
