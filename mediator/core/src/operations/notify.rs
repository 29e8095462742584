//! Interrupts for fences.

use std::sync::Arc;

use causeway_protocol::message::{Notify, NotifyReply, Status};

use super::check_aligned;
use crate::client_session::ClientSession;
use crate::notify::Watch;
use crate::refusal::Refusal;

impl ClientSession<'_> {
    /// Looks at the fence without the session's lock: the back end may have to map memory of a
    /// device first.
    pub(super) fn notify(&self, request: Notify) -> Result<NotifyReply, Refusal> {
        check_aligned(8, &[request.address])?;
        let space = self.open_space(request.space)?;
        let watch = Watch {
            client: self.client,
            generation: Arc::clone(&space.epoch.generation),
            space: Arc::clone(&space.shared),
            address: request.address,
            value: request.value,
        };
        let reached = watch.reached().ok_or(Refusal::new(Status::BadRange))?;
        if !reached {
            let _state = self.lock_with(&space)?;
            self.notifier.arm(watch)?;
        }
        Ok(NotifyReply {
            reached: reached.into(),
            reserved: 0,
        })
    }
}
