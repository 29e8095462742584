//! The console, on which the init and its program print.

use std::fs::OpenOptions;
use std::io::{self, Write};

/// Prints a line. If the console cannot be written to, the line is lost.
pub(crate) fn say(text: &str) {
    let line = format!("causeway-init: {text}\n");
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Makes the console standard input, output and error. The kernel opens the console for the first
/// process if the initramfs has a node for it; std opens /dev/null in place of what is not open.
pub(crate) fn attach() {
    let console = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/console");
    let Ok(console) = console else {
        // What the kernel has opened is all there is.
        return;
    };
    // Should one of these fail, the one before it stays.
    let _ = rustix::stdio::dup2_stdin(&console);
    let _ = rustix::stdio::dup2_stdout(&console);
    let _ = rustix::stdio::dup2_stderr(&console);
}

/// Waits until the serial port has sent everything.
pub(crate) fn drain() {
    let _ = rustix::termios::tcdrain(io::stderr());
}
