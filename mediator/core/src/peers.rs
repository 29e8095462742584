//! What a session calls: the VMM, and the sessions that it shares memory with.

use std::sync::Arc;

use crate::host::Host;
use crate::share::Exchange;

/// The VMM and the other sessions, as a session reaches them while it works for one caller.
///
/// In the VMM's process, one value serves all callers. In a worker process, each request comes from
/// a thread of the VMM that waits for the reply and meanwhile answers calls of the session on the
/// same socket; so there is one value for each socket.
#[derive(Clone)]
pub struct Peers {
    /// The VMM of the session's guest.
    pub host: Arc<dyn Host>,
    /// The exchange through which the session exports and imports memory.
    pub exchange: Arc<dyn Exchange>,
}

causeway_memory::debug_fields!(Peers {});
