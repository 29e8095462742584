//! Tests a guest's console: repeats each line that is typed, in capital letters, and prints a line
//! for each Ctrl-C.
//!
//! | line | what it does |
//! |---|---|
//! | `off` | turns the machine off |
//! | `end STATUS` | ends with this status |
#![allow(unsafe_code)] // A signal handler has no safe form.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;

fn main() -> io::Result<ExitCode> {
    let handler: extern "C" fn(libc::c_int) = interrupted;
    // SAFETY: the handler calls nothing that signal handlers may not.
    if unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    if !io::stdin().is_terminal() {
        return Err(io::Error::other("standard input is not a terminal"));
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
    println!("console: end of input");
    Ok(ExitCode::FAILURE)
}

extern "C" fn interrupted(_: libc::c_int) {
    let text = b"console: Ctrl-C\n";
    // SAFETY: the text is as long as it says. A signal handler cannot report that it was not
    // printed.
    unsafe { libc::write(libc::STDOUT_FILENO, text.as_ptr().cast(), text.len()) };
}

fn turn_off() -> io::Result<()> {
    // SAFETY: touches no memory of this process; if it succeeds, the machine is off.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    Err(io::Error::last_os_error())
}
