//! The serial console.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use causeway_protocol::boot::PORT_CONSOLE;

use crate::port;

/// Taken while a CPU prints a line, so that lines of several CPUs do not mix.
static BUSY: AtomicBool = AtomicBool::new(false);

struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The transmitter of this machine's UART is never busy, so there is nothing to poll.
        text.bytes()
            .for_each(|byte| port::write_u8(PORT_CONSOLE, byte));
        Ok(())
    }
}

/// Prints a line on the serial console. Lines that several CPUs print at the same time do not mix.
pub fn write_console(line: fmt::Arguments<'_>) {
    while BUSY.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    // Writing to the console cannot fail.
    let _ = Console.write_fmt(line);
    let _ = Console.write_str("\n");
    BUSY.store(false, Ordering::Release);
}
