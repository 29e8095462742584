//! The control area of a process: private memory, out of which the transport sends batches.
//!
//! It is private, so that a forked child has a copy of its own and cannot change a batch of its
//! parent.
#![allow(unsafe_code)] // A window over memory of the process.

use std::ptr::NonNull;

use causeway_protocol::message::Header;
use causeway_shim::Window;
use zerocopy::{FromBytes, IntoBytes};

/// Memory in which the shim writes a batch and the transport leaves the replies.
#[derive(Debug)]
pub struct Area {
    words: NonNull<[u64]>,
}

// SAFETY: the memory is reached through windows alone, whose rules allow any thread.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Allocates zeroed memory for batches of up to `bytes` bytes, a multiple of 8.
    pub fn new(bytes: usize) -> Self {
        let words = vec![0; bytes / 8].into_boxed_slice();
        Self {
            words: NonNull::from(Box::leak(words)),
        }
    }

    /// Returns the memory of the area.
    pub fn window(&self) -> Window {
        // SAFETY: allocated as long as the transport lives, which the shim borrows; the box is not
        // touched meanwhile.
        unsafe { Window::new(self.words.cast(), 8 * self.words.len()) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: comes from the box that `new` leaked; windows on it do not outlive the transport.
        drop(unsafe { Box::from_raw(self.words.as_ptr()) });
    }
}

/// Writes `status` to the first message of a batch, so that the shim finds that no message was
/// executed.
pub fn refuse(area: &Window, status: u32) {
    let mut bytes = [0; size_of::<Header>()];
    // The area is larger than a header.
    let _ = area.read(0, &mut bytes);
    if let Ok(mut header) = Header::read_from_bytes(&bytes) {
        header.status = status;
        let _ = area.write(0, header.as_bytes());
    }
}

/// Returns the status of the first message of a batch.
pub fn first_status(area: &Window) -> u32 {
    let mut bytes = [0; size_of::<Header>()];
    let _ = area.read(0, &mut bytes);
    Header::read_from_bytes(&bytes).map_or(0, |header| header.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_shim::Status;

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
