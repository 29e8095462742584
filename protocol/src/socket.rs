//! The device over a Unix socket, for ordinary processes: development without a VM.
//!
//! `causeway serve` listens on a socket of type `SOCK_SEQPACKET`; a connection is a session. The
//! server says [`Greeting`]. The client then sends a [`Request`] at a time, followed by the batch
//! if it is one; the server answers with any number of [`Event`]s, the last of which is
//! [`EventKind::Reply`], followed by the batch with its replies. Each is a datagram.
//!
//! Registers, batches and rings are the device's. What a VM would see in the aperture the client
//! maps by descriptors that come with events, into a range of its own addresses; doorbells are
//! eventfds.

use crate::wire::{structures, wire_enum};

/// Value of [`Greeting::magic`]: the bytes "CWSK".
pub const MAGIC: u32 = u32::from_le_bytes(*b"CWSK");
/// Version of this way to the device. Sides with different versions do not talk.
pub const VERSION: u32 = 1;

wire_enum! {
    /// What a client asks for.
    pub enum RequestKind: u32 {
        /// Load a register of BAR 0.
        Load = 1,
        /// Store to a register of BAR 0, other than the control doorbell.
        Store = 2,
        /// Execute the batch that follows the request in its datagram.
        Batch = 3,
    }
}

wire_enum! {
    /// What a server says.
    pub enum EventKind: u32 {
        /// The request is done. `argument` is the register's value, or the status of the batch.
        Reply = 1,
        /// A part of the memory object in the datagram appears in the aperture. `argument` is an
        /// [`crate::Access`].
        Place = 2,
        /// A range of the aperture has other access rights: those in `argument`.
        SetAccess = 3,
        /// A range of the aperture is a hole.
        Remove = 4,
        /// Doorbell number `argument` is the eventfd in the datagram.
        Bind = 5,
        /// Doorbell number `argument` wakes no consumer any more.
        Unbind = 6,
    }
}

structures! {
    /// First words of a server.
    pub struct Greeting {
        /// [`MAGIC`].
        pub magic: u32,
        /// [`VERSION`].
        pub version: u32,
        /// Size of the aperture in bytes.
        pub aperture_bytes: u64,
    } = 16

    /// A request.
    pub struct Request {
        /// [`RequestKind`].
        pub kind: u32,
        /// Offset of the register in BAR 0; zero for a batch.
        pub register: u32,
        /// Value to store; for a batch, its length in bytes.
        pub value: u32,
        /// Zero.
        pub reserved: u32,
    } = 16

    /// What has happened.
    pub struct Event {
        /// [`EventKind`].
        pub kind: u32,
        /// See there.
        pub argument: u32,
        /// Offset into the aperture in bytes.
        pub offset: u64,
        /// Bytes of the range.
        pub bytes: u64,
        /// First byte of the range in the memory object.
        pub from: u64,
    } = 32
}
