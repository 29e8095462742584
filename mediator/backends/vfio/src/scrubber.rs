//! Fills memory with zeros before anyone else has it, on a thread of its own.
//!
//! While somebody else resets the device (sysfs' `reset`), it does not answer, and stores are lost.
//! A shell that resets it is heard before, as it opens the file, and again afterwards: no partition
//! is made in between, and all free memory is filled again. Of a program that opens the file
//! without cutting it short the kernel tells only afterwards: what was filled during its reset, and
//! given to a guest before that was heard, may hold what its last owner wrote.
#![allow(
    unsafe_code,
    reason = "fills memory of a device that is reached through raw pointers"
)]

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use causeway_cpu_queue::fill_uncached;

use crate::bar::Bar;
use crate::pool::{Piece, Pool};

/// Starts the thread. It keeps the device open until [`Pool::end`] or [`Pool::end_now`] is carried
/// out.
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

/// Fills a free piece with zeros. Returns false if it is not a piece of this BAR: it must not be
/// used again.
pub(crate) fn scrub(bar: &Bar, piece: Piece) -> bool {
    let Some(at) = bar.at(piece.offset, piece.bytes) else {
        log::error!(
            "{piece:?} is not within BAR {}: it is not used again",
            bar.number()
        );
        return false;
    };
    // SAFETY: the range is mapped, writable, as long as `bar` lives. It is reached by raw accesses
    // only.
    unsafe { fill_uncached(at.as_ptr(), piece.bytes, 0) };
    true
}
