//! Fills memory with zeros before anyone else has it, on a thread of its own.
//!
//! While somebody else resets the device (sysfs' `reset`), it does not answer, and stores are lost. The kernel tells of it
//! only afterwards; then all that nobody has is filled again. What was filled during the reset and lent between its end and
//! that moment may hold what its last owner wrote: who resets a device while guests share it has to know that.
#![allow(
    unsafe_code,
    reason = "fills memory of a device that is reached through raw pointers"
)]

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use causeway_host_work::fill_uncached;

use crate::bar::Bar;
use crate::pool::{Piece, Pool};

/// Starts the thread. It holds the device until [`Pool::end`] or [`Pool::end_now`], and what they ask for is done.
pub(crate) fn start(bar: Arc<Bar>, pool: Arc<Pool>) -> io::Result<JoinHandle<()>> {
    let thread = Builder::new().name("vfio-scrub".to_owned());
    thread.spawn(move || {
        while let Some(task) = pool.next() {
            if scrub(&bar, task.piece) {
                pool.scrubbed(&task);
            }
        }
    })
}

/// Fills a piece that nobody has any more with zeros. False if it is not one of this BAR: then nobody may ever have it.
pub(crate) fn scrub(bar: &Bar, piece: Piece) -> bool {
    let Some(at) = bar.at(piece.offset, piece.bytes) else {
        log::error!(
            "{piece:?} is not within BAR {}; it is not lent again",
            bar.number()
        );
        return false;
    };
    // SAFETY: the range is mapped, writable, as long as `bar` lives. It is reached by raw accesses only.
    unsafe { fill_uncached(at.as_ptr(), piece.bytes, 0) };
    true
}
