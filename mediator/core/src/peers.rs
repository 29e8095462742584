//! What a session calls: the VMM, and the sessions that it shares memory with.

use std::sync::Arc;

use crate::host::Host;
use crate::share::Exchange;

/// How a session reaches its VMM and the sessions that it shares memory with, while it executes a
/// request.
///
/// In the VMM's process, one value serves all requests. In a worker process, there is one value for
/// each socket: while the session executes a request from a socket, it sends its own requests to
/// the VMM over the same socket.
#[derive(Clone)]
pub struct Peers {
    /// The VMM of the session's guest.
    pub host: Arc<dyn Host>,
    /// The exchange through which the session exports and imports memory.
    pub exchange: Arc<dyn Exchange>,
}

causeway_memory::debug_fields!(Peers {});
