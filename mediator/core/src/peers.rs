//! What a session calls: the VMM, and the sessions that it shares memory with.

use std::sync::Arc;

use crate::host::Host;
use crate::share::Exchange;

/// The ways from one caller of a session to its VMM and to other sessions.
///
/// In the VMM's process all callers have the same. In a worker process, a caller on the VMM's side
/// waits for its reply and serves calls meanwhile, so what the session calls for that caller takes
/// that caller's own channel.
#[derive(Clone)]
pub struct Peers {
    /// The VMM of the session's guest.
    pub host: Arc<dyn Host>,
    /// The place for exports and imports.
    pub exchange: Arc<dyn Exchange>,
}

causeway_memory::debug_fields!(Peers {});
