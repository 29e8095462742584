//! The control area of a process: private memory, out of which the transport sends batches.
//!
//! It is private, so that a forked child has a copy of its own and cannot change a batch of its
//! parent.
#![allow(unsafe_code)] // A window over memory of the process.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use causeway_protocol::message::Header;
use causeway_shim::Window;
use zerocopy::IntoBytes;

/// Memory of this process in which the shim writes a batch, and the transport puts the replies.
#[derive(Debug)]
pub struct Area {
    words: Box<[AtomicU64]>,
}

impl Area {
    /// Allocates zeroed memory for batches of up to `bytes` bytes, a multiple of 8.
    pub fn new(bytes: usize) -> Self {
        let words = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        Self { words }
    }

    /// Returns a window over the area's memory.
    pub fn window(&self) -> Window {
        let base = NonNull::from(&*self.words).cast();
        // SAFETY: allocated as long as the transport lives, which the shim borrows; the words are
        // reached through windows alone, hence by volatile or atomic accesses.
        unsafe { Window::new(base, size_of_val(&*self.words)) }
    }
}

/// Writes `status` to the first message of the batch in `area`, so that the shim takes the batch as
/// one of which no message was executed.
pub fn refuse(area: &Window, status: u32) {
    let refused = Header {
        status,
        ..first_header(area)
    };
    let _ = area.write(0, refused.as_bytes());
}

/// Returns the status of the first message of the batch in `area`.
pub fn first_status(area: &Window) -> u32 {
    first_header(area).status
}

fn first_header(area: &Window) -> Header {
    let mut header = Header::default();
    // The area is larger than a header.
    let _ = area.read(0, header.as_mut_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_shim::Status;
    use zerocopy::FromBytes;

    #[test]
    fn a_refused_batch_does_not_look_like_one_that_was_done() {
        let area = Area::new(4096);
        let header = Header {
            opcode: 1,
            length: 32,
            ..Header::default()
        };
        area.window().write(0, header.as_bytes()).unwrap();
        refuse(&area.window(), Status::DeviceLost as u32);
        let mut bytes = [0; size_of::<Header>()];
        area.window().read(0, &mut bytes).unwrap();
        let refused = Header::read_from_bytes(&bytes).unwrap();
        assert_eq!((refused.opcode, refused.length), (1, 32));
        assert_eq!(refused.status, Status::DeviceLost as u32);
    }
}
