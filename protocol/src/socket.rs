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
/// Version of the exchange over the socket. Client and server must have the same one.
pub const VERSION: u32 = 1;

wire_enum! {
    /// What a client asks the server for.
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
    /// What a server tells a client.
    pub enum EventKind: u32 {
        /// The request is done. `argument` is the value of the register that was loaded, or the
        /// status of the batch.
        Reply = 1,
        /// A part of the memory object in the datagram appears in the aperture. `argument` is an
        /// [`crate::Access`].
        Place = 2,
        /// A range of the aperture gets the access rights in `argument`.
        SetAccess = 3,
        /// A range of the aperture has no memory any more.
        Remove = 4,
        /// The eventfd in the datagram is the doorbell with number `argument`: the client rings by
        /// signalling it.
        Bind = 5,
        /// The doorbell with number `argument` wakes no consumer any more.
        Unbind = 6,
    }
}

structures! {
    /// First datagram that the server sends on a new connection.
    pub struct Greeting {
        /// Always [`MAGIC`].
        pub magic: u32,
        /// The server's [`VERSION`].
        pub version: u32,
        /// Size of the aperture in bytes.
        pub aperture_bytes: u64,
    } = 16

    /// A request of a client to the server.
    pub struct Request {
        /// What the client asks for: a [`RequestKind`].
        pub kind: u32,
        /// Offset of the register in BAR 0; zero for a batch.
        pub register: u32,
        /// Value to store; for a batch, its length in bytes.
        pub value: u32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 16

    /// Tells a client that something has changed, or answers its request.
    pub struct Event {
        /// What has happened: an [`EventKind`].
        pub kind: u32,
        /// A number whose meaning depends on the kind (see [`EventKind`]).
        pub argument: u32,
        /// First byte of the range, as an offset into the aperture.
        pub offset: u64,
        /// Length of the range in bytes.
        pub bytes: u64,
        /// Offset in the memory object of the range's first byte.
        pub from: u64,
    } = 32
}
