//! What the server of an `ivshmem-doorbell` device says to the only peer that there is ("Inter-VM
//! Shared Memory device", QEMU's documentation, specs/ivshmem-spec, client-server protocol). It is
//! all said before the emulator starts.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::devices::DOORBELL_VECTORS;

/// Version of the protocol.
const VERSION: i64 = 0;
/// The peer's number.
const PEER: i64 = 0;
/// Announces the shared memory.
const MEMORY: i64 = -1;
/// Bytes of the shared memory, of which nothing is made.
const MEMORY_BYTES: u64 = 1 << 20;

/// A connection: this end, which has to stay open, and the device's.
pub fn connection() -> io::Result<(UnixStream, UnixStream)> {
    let (server, device) = UnixStream::pair()?;
    say(&server, VERSION, None)?;
    say(&server, PEER, None)?;
    let memory = memfd_create("doorbell", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, MEMORY_BYTES)?;
    say(&server, MEMORY, Some(memory.as_fd()))?;
    for _ in 0..DOORBELL_VECTORS {
        let vector = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        say(&server, PEER, Some(vector.as_fd()))?;
    }
    Ok((server, device))
}

fn say(server: &UnixStream, word: i64, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let bytes = word.to_le_bytes();
    sendmsg(
        server,
        &[IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    Ok(())
}
