//! Interrupts for fences.

use std::sync::Arc;

use causeway_protocol::message::{Notify, NotifyReply, Status};

use super::check_aligned;
use crate::client_session::ClientSession;
use crate::notify::Watch;
use crate::object::SpaceEntry;
use crate::refusal::Refusal;

impl ClientSession<'_> {
    /// Looks at the fence without the session's lock: that of a device may have to be made visible first.
    pub(super) fn notify(&self, request: Notify) -> Result<NotifyReply, Refusal> {
        check_aligned(8, &[request.address])?;
        let epoch = self.epoch();
        let space = Arc::clone(&self.lock().get::<SpaceEntry>(request.space)?.shared);
        let watch = Watch {
            client: self.client,
            generation: Arc::clone(&epoch.generation),
            space: Arc::clone(&space),
            address: request.address,
            value: request.value,
        };
        let reached = watch.reached().ok_or(Refusal::new(Status::BadRange))?;
        if !reached {
            let state = self.lock_within(&epoch)?;
            // The space may have ended, and its handle may stand for another, since the look above.
            let now = &state.get::<SpaceEntry>(request.space)?.shared;
            if !Arc::ptr_eq(now, &space) {
                return Err(Refusal::bad_handle(request.space));
            }
            self.notifier.arm(watch)?;
        }
        Ok(NotifyReply {
            reached: reached.into(),
            reserved: 0,
        })
    }
}
