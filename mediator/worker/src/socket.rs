//! Sockets that carry datagrams with descriptors, in order, and end with the other side's process.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    recvmsg, sendmsg, shutdown, socketpair,
};
use zerocopy::IntoBytes;

use crate::wire::{DATAGRAM_BYTES_MAX, DESCRIPTORS_MAX, Head, Kind, MAGIC, VERSION, Wire};

/// Why no datagram was sent or received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// No datagram arrived within the socket's patience, or a signal interrupted the call.
    #[error("no message has arrived in time from the other process (VMM or worker)")]
    Timeout,
    /// The other process has ended, or closed its end.
    #[error("the other process (VMM or worker) has closed the connection")]
    Closed,
    /// A datagram does not follow the protocol.
    #[error("a message between VMM and worker breaks their protocol: {0}")]
    Malformed(&'static str),
    /// Descriptors came with a datagram for which this process has no number left. They are lost,
    /// and the other process is not to blame.
    #[error(
        "this process has no file descriptor left for what the other process (VMM or worker) has \
         sent: raise the limit (`ulimit -n`)"
    )]
    Shortage,
    /// The kernel refused.
    #[error("communication between VMM and worker failed: {0}")]
    Failed(Errno),
}

impl SocketError {
    /// Returns whether this process, its user or the machine has too few descriptors, which the
    /// other process is not to blame for.
    pub fn is_shortage(&self) -> bool {
        matches!(
            self,
            Self::Shortage | Self::Failed(Errno::MFILE | Errno::NFILE | Errno::TOOMANYREFS)
        )
    }
}

impl From<Errno> for SocketError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::AGAIN | Errno::INTR => Self::Timeout,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::Closed,
            error => Self::Failed(error),
        }
    }
}

/// One end of a socket pair (`SOCK_SEQPACKET`).
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// Room for a datagram.
pub(crate) type Buffer = Box<[u8]>;

/// Returns a buffer that is large enough for every datagram.
pub(crate) fn buffer() -> Buffer {
    vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice()
}

/// A datagram that was received.
#[derive(Debug)]
pub(crate) struct Datagram<'a> {
    pub kind: Kind,
    /// Content of the datagram after its head (magic number, version and kind).
    pub bytes: &'a mut [u8],
    pub descriptors: Vec<OwnedFd>,
    /// Whether descriptors are missing, because this process has no number left for them.
    is_short: bool,
}

impl<'a> Datagram<'a> {
    /// Returns the content of the datagram as a `T`. Fails if the content does not have exactly the
    /// size of a `T`.
    pub fn body<T: Wire>(&self) -> Result<T, SocketError> {
        T::read_from_bytes(self.bytes)
            .map_err(|_| SocketError::Malformed("a message has the wrong size for its kind"))
    }

    /// Returns the beginning of the content as a `T`, and the rest as bytes. Fails if the content
    /// is shorter than a `T`.
    pub fn body_and_rest<T: Wire>(&self) -> Result<(T, &[u8]), SocketError> {
        T::read_from_prefix(&*self.bytes)
            .map_err(|_| SocketError::Malformed("a message is shorter than its kind"))
    }

    /// Returns the file descriptor that came with the datagram. Fails if there is none or more than
    /// one, with [`SocketError::Shortage`] if this process could not take it.
    pub fn descriptor(&mut self) -> Result<OwnedFd, SocketError> {
        self.descriptors().map(|[descriptor]| descriptor)
    }

    /// Returns the `N` file descriptors that came with the datagram. Fails if there are more or
    /// fewer, with [`SocketError::Shortage`] if this process could not take them.
    pub fn descriptors<const N: usize>(&mut self) -> Result<[OwnedFd; N], SocketError> {
        if self.is_short {
            return Err(SocketError::Shortage);
        }
        let descriptors = std::mem::take(&mut self.descriptors);
        <[OwnedFd; N]>::try_from(descriptors).map_err(|_| {
            SocketError::Malformed("a message has the wrong number of descriptors for its kind")
        })
    }
}

impl Socket {
    /// Returns the two ends of a new socket pair. Programs that this process starts do not inherit
    /// them.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(one), Self(other)))
    }

    /// Returns the end of a socket pair that `descriptor` refers to. If the descriptor is not a
    /// socket, sending and receiving fail.
    pub fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Ends the connection, and with it whatever waits for a datagram, also in other threads.
    pub fn shut_down(&self) {
        // An error means that the other end has done so.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Returns the socket's descriptor, which can be passed to another process.
    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Makes [`Self::receive`] and [`Self::send`] fail with [`SocketError::Timeout`] if they have
    /// to wait for longer than `patience`.
    pub fn set_patience(&self, patience: Duration) -> Result<(), Errno> {
        set_socket_timeout(&self.0, Timeout::Recv, Some(patience))?;
        set_socket_timeout(&self.0, Timeout::Send, Some(patience))
    }

    /// Sends one datagram of kind `kind`. Its content is the concatenation of `parts`; the receiver
    /// also gets duplicates of `descriptors`.
    pub fn send(
        &self,
        kind: Kind,
        parts: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), SocketError> {
        self.send_with(kind, parts, descriptors, SendFlags::empty())
    }

    fn send_with(
        &self,
        kind: Kind,
        parts: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> Result<(), SocketError> {
        let head = Head {
            magic: MAGIC,
            version: VERSION,
            kind: kind as u16,
        };
        let mut slices = vec![IoSlice::new(head.as_bytes())];
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            return Err(SocketError::Malformed("too many descriptors to send"));
        }
        let flags = flags | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &slices, &mut ancillary, flags)?;
        Ok(())
    }

    /// Sends one datagram without descriptors, as [`Self::send`] does, but fails with
    /// [`SocketError::Timeout`] if the other end has not read enough of the earlier ones.
    pub fn send_at_once(&self, kind: Kind, parts: &[&[u8]]) -> Result<(), SocketError> {
        self.send_with(kind, parts, &[], SendFlags::DONTWAIT)
    }

    /// Waits for a datagram and receives it into `buffer`. Fails with [`SocketError::Malformed`] if
    /// it is too long, of another protocol version or of an unknown kind; its file descriptors are
    /// then closed.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Datagram<'a>, SocketError> {
        self.receive_with(buffer, RecvFlags::empty())
    }

    /// Waits until a datagram has arrived or the other end is closed, but no longer than
    /// `patience`. Returns false if the time ran out first, or a signal arrived.
    pub fn is_readable(&self, patience: Duration) -> Result<bool, SocketError> {
        let limit = Timespec::try_from(patience).ok();
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut polled, limit.as_ref()) {
            Ok(count) => Ok(count != 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives a datagram as [`Self::receive`] does, but fails with [`SocketError::Timeout`]
    /// instead of waiting if none has arrived.
    pub fn receive_at_once<'a>(&self, buffer: &'a mut [u8]) -> Result<Datagram<'a>, SocketError> {
        self.receive_with(buffer, RecvFlags::DONTWAIT)
    }

    fn receive_with<'a>(
        &self,
        buffer: &'a mut [u8],
        flags: RecvFlags,
    ) -> Result<Datagram<'a>, SocketError> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(buffer)];
        let received = recvmsg(
            &self.0,
            &mut slices,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC | flags,
        )?;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Err(SocketError::Closed);
        }
        // The kernel cuts descriptors off for one of two reasons: there are more than fit into
        // `space`, which is then full, or this process has no number left.
        let are_cut = received.flags.contains(ReturnFlags::CTRUNC);
        let is_short = are_cut && descriptors.len() < DESCRIPTORS_MAX;
        if received.flags.contains(ReturnFlags::TRUNC) || are_cut && !is_short {
            return Err(SocketError::Malformed("a message is longer than allowed"));
        }
        let (head, bytes) = buffer[..received.bytes]
            .split_first_chunk_mut::<{ size_of::<Head>() }>()
            .ok_or(SocketError::Malformed("a message is shorter than its head"))?;
        let head: Head = zerocopy::transmute!(*head);
        if (head.magic, head.version) != (MAGIC, VERSION) {
            return Err(SocketError::Malformed(
                "a message is of another version; VMM and worker must be the same program",
            ));
        }
        let kind = Kind::from_wire(head.kind)
            .ok_or(SocketError::Malformed("a message has an unknown kind"))?;
        Ok(Datagram {
            kind,
            bytes,
            descriptors,
            is_short,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Remove;

    #[test]
    fn datagrams_arrive_whole_and_in_order_with_their_descriptors() {
        let (one, other) = Socket::pair().unwrap();
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let body = Remove { offset: 0x1000 };
        one.send(Kind::Remove, &[body.as_bytes(), b"rest"], &[file.as_fd()])
            .unwrap();
        one.send(Kind::Interrupt, &[], &[]).unwrap();
        let mut buffer = buffer();
        let mut first = other.receive(&mut buffer).unwrap();
        assert_eq!(first.kind, Kind::Remove);
        let (got, rest) = first.body_and_rest::<Remove>().unwrap();
        assert_eq!((got.offset, rest), (0x1000, &b"rest"[..]));
        let got = first.descriptor().unwrap();
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(got.as_fd()), inode(file.as_fd()));
        assert_eq!(other.receive(&mut buffer).unwrap().kind, Kind::Interrupt);
        drop(one);
        assert!(matches!(
            other.receive(&mut buffer),
            Err(SocketError::Closed)
        ));
    }

    #[test]
    fn what_is_not_of_the_protocol_is_told_from_silence() {
        let (one, other) = Socket::pair().unwrap();
        other.set_patience(Duration::from_millis(1)).unwrap();
        let mut buffer = buffer();
        assert!(matches!(
            other.receive(&mut buffer),
            Err(SocketError::Timeout)
        ));
        assert!(matches!(
            other.receive_at_once(&mut buffer),
            Err(SocketError::Timeout)
        ));
        let large = vec![0; DATAGRAM_BYTES_MAX + 1];
        let magic = MAGIC.to_le_bytes();
        for bytes in [
            &b"x"[..],
            &[0; 8],
            &[magic[0], magic[1], magic[2], magic[3], 9, 9, 1, 0],
            &[magic[0], magic[1], magic[2], magic[3], 1, 0, 0xff, 0xff],
            &large,
        ] {
            rustix::net::send(&one, bytes, SendFlags::empty()).unwrap();
            let outcome = other.receive(&mut buffer);
            assert!(
                matches!(outcome, Err(SocketError::Malformed(_))),
                "{} bytes: {outcome:?}",
                bytes.len()
            );
        }
    }
}
