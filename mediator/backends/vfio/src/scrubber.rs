//! Fills memory with zeros before another guest gets it, on a thread of its own.
//!
//! While another process resets the device through sysfs' `reset`, the device does not answer, and
//! stores are lost. A shell truncates that file when it opens it, so there is an event before the
//! reset and one after it: no partition is made in between, and all free memory is filled again. A
//! program that opens the file without truncating it causes an event only after the reset. Memory
//! that was filled during such a reset, and given to a guest before the event, may still hold what
//! its last owner wrote.
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

/// Starts the thread that scrubs the pieces of `pool`. The thread keeps the device open until
/// [`Pool::next`] returns no more pieces.
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

/// Fills `piece` with zeros. Returns false if the piece does not lie within the BAR: then it must
/// not be used again.
pub(crate) fn scrub(bar: &Bar, piece: Piece) -> bool {
    let Some(at) = bar.at(piece.offset, piece.bytes) else {
        log::error!(
            "cannot fill {bytes} bytes of freed memory with zeros, because offset {offset:#x} is \
             not within BAR {bar} of device {address}; no guest gets this memory again; this is a \
             bug in Causeway",
            address = bar.device().address(),
            bytes = piece.bytes,
            offset = piece.offset,
            bar = bar.number()
        );
        return false;
    };
    // SAFETY: the range is mapped, writable, as long as `bar` lives. It is reached by raw accesses
    // only.
    unsafe { fill_uncached(at.as_ptr(), piece.bytes, 0) };
    true
}
