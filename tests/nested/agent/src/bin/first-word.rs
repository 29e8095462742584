//! The first program of a guest whose boot is timed: it says a word and ends the machine.

use causeway_nested_agent::FIRST_WORD;
use rustix::system::{RebootCommand, reboot};

fn main() {
    println!("{FIRST_WORD}");
    // A machine that cannot be switched off may still be reset; the kernel panics if neither can be
    // done.
    let refused = [RebootCommand::PowerOff, RebootCommand::Restart].map(reboot);
    panic!("the machine does not end: {refused:?}");
}
