//! Somebody to talk to at a guest's console, for tests: says each line once more, in capital
//! letters, and each Ctrl-C.
//!
//! | line | what it does |
//! |---|---|
//! | `off` | turns the machine off |
//! | `end STATUS` | ends with this status |
#![allow(unsafe_code)] // What is done for a signal.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;

fn main() -> io::Result<ExitCode> {
    let handler: extern "C" fn(libc::c_int) = interrupted;
    // SAFETY: the handler calls nothing that signal handlers may not.
    if unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    if !io::stdin().is_terminal() {
        return Err(io::Error::other("nobody can type to this"));
    }
    println!("console: say something");
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ') {
            None if line == "off" => turn_off()?,
            Some(("end", status)) => {
                let status: u8 = status.parse().map_err(io::Error::other)?;
                return Ok(ExitCode::from(status));
            }
            _ => println!("console: {:?}", line.to_uppercase()),
        }
    }
    println!("console: nobody types any more");
    Ok(ExitCode::FAILURE)
}

extern "C" fn interrupted(_: libc::c_int) {
    let text = b"console: Ctrl-C\n";
    // SAFETY: the text is as long as it says. Whether it was printed is for whoever reads it to
    // notice.
    unsafe { libc::write(libc::STDOUT_FILENO, text.as_ptr().cast(), text.len()) };
}

fn turn_off() -> io::Result<()> {
    // SAFETY: touches no memory of ours; if it succeeds, there is nothing any more.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    Err(io::Error::last_os_error())
}
