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
//!
//! A server with several GPUs listens at one socket for each: that of the first has the path that
//! the user chose, and that of GPU `N` has [`FURTHER`] and `N` behind it. A client finds out by
//! `query_gpus` how many there are.

use crate::wire::{structures, wire_enum};

/// Value of [`Greeting::magic`]: the bytes "CWSK".
pub const MAGIC: u32 = u32::from_le_bytes(*b"CWSK");
/// Version of the socket protocol between client and server, which must both have the same version.
pub const VERSION: u32 = 1;

/// Name of the server's socket in the user's runtime directory (`XDG_RUNTIME_DIR`), where server
/// and clients meet if they are told no other path.
pub const DEFAULT_NAME: &str = "causeway-gpu.socket";

/// What comes between the path of a server's socket and the number of a GPU other than the first.
pub const FURTHER: &str = ".gpu";

/// Longest reason for which a server refuses a client, in bytes.
pub const REASON_BYTES_MAX: usize = 512;

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
        /// A part of the memory object whose descriptor is in the datagram appears in the aperture.
        /// `argument` is the access rights, an [`crate::Access`].
        Place = 2,
        /// A range of the aperture gets the access rights in `argument`, an [`crate::Access`].
        SetAccess = 3,
        /// A range of the aperture no longer has memory.
        Remove = 4,
        /// The eventfd in the datagram is the doorbell with number `argument`: the client rings the
        /// doorbell by signaling the eventfd.
        Bind = 5,
        /// The doorbell with number `argument` no longer wakes a consumer.
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
        /// Size of the aperture in bytes. Zero if the server refuses the client: then the reason
        /// follows in the same datagram, as UTF-8 text of at most [`REASON_BYTES_MAX`] bytes, and
        /// the server closes the connection.
        pub aperture_bytes: u64,
    } = 16

    /// A request from a client to the server.
    pub struct Request {
        /// What the client asks for: a [`RequestKind`].
        pub kind: u32,
        /// Offset in BAR 0 of the register to load or store; zero for a batch.
        pub register: u32,
        /// Value to store to the register; for a batch, the length of the batch in bytes.
        pub value: u32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 16

    /// Tells a client of a change in the aperture or of a doorbell, or answers its request.
    pub struct Event {
        /// What has happened: an [`EventKind`].
        pub kind: u32,
        /// A number whose meaning depends on the kind (see [`EventKind`]).
        pub argument: u32,
        /// Offset in the aperture of the range that has changed, in bytes.
        pub offset: u64,
        /// Length in bytes of the range that has changed.
        pub bytes: u64,
        /// Where the range begins in the memory object whose descriptor comes with the event, in
        /// bytes.
        pub from: u64,
    } = 32
}
