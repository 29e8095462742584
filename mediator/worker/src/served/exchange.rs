//! Exports and imports of a session in a worker: the VMM passes their descriptors on.

use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_mediator::backend::{Backend, BackendError, Exported};
use causeway_mediator::rights::Rights;
use causeway_mediator::share::{Exchange, Importer, Offer, TokenBytes};
use causeway_mediator::{GpuSet, Gpus};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use zerocopy::IntoBytes;

use super::calls::CallChannel;
use crate::wire::{
    Fetch, Kind, Memory, Publish, Registration, Withdraw, page_size, page_size_from_wire,
};

/// The exchange that all workers of a VMM share, from this worker.
pub(super) struct RemoteExchange {
    calls: Arc<CallChannel>,
    backend: Arc<dyn Backend>,
}

impl RemoteExchange {
    pub fn new(calls: Arc<CallChannel>, backend: Arc<dyn Backend>) -> Self {
        Self { calls, backend }
    }
}

fn failed(error: &BackendError) -> Status {
    log::debug!("back end: {}", super::error::chain(error));
    error.status
}

/// Returns the status of an answer as a result.
fn status(wire: u32) -> Result<(), Status> {
    match Status::from_wire(wire) {
        Some(Status::Ok) => Ok(()),
        Some(status) => Err(status),
        None => Err(Status::BackEnd),
    }
}

impl Exchange for RemoteExchange {
    fn publish(&self, _owner: u64, offer: Offer) -> Result<TokenBytes, Status> {
        let exported = offer.memory.export().map_err(|e| failed(&e))?;
        let request = Publish {
            bytes: offer.memory.bytes(),
            memory: Memory {
                offset: exported.offset,
                made_of: exported.kind as u32,
                kind: offer.kind as u32,
                pages: page_size(exported.pages),
                access: offer.access.wire(),
            },
            gpus: offer.gpus.bits(),
        };
        let file = exported.file.as_fd();
        let (answer, _) = self.calls.call(Kind::Publish, request.as_bytes(), &[file]);
        status(answer.outcome)?;
        Ok(answer.token)
    }

    /// The VMM knows the GPU of this worker, and that of the owner.
    fn fetch(&self, token: &TokenBytes, access: Access, gpus: &Gpus) -> Result<Offer, Status> {
        let request = Fetch {
            token: *token,
            access: access.wire(),
            reserved: 0,
        };
        let (answer, file) = self.calls.call(Kind::Fetch, request.as_bytes(), &[]);
        status(answer.outcome)?;
        let memory = answer.memory;
        let (made_of, kind, access) = memory.checked().ok_or(Status::BackEnd)?;
        let exported = Exported {
            kind: made_of,
            bytes: answer.value,
            file: file.ok_or(Status::NoMemory)?,
            offset: memory.offset,
            pages: page_size_from_wire(memory.pages),
            place: gpus.place_of(answer.gpu, kind),
        };
        let memory = self.backend.import(exported).map_err(|e| failed(&e))?;
        Ok(Offer {
            memory,
            kind,
            access,
            gpus: GpuSet::only(gpus.own),
            home: answer.gpu,
        })
    }

    fn register(&self, token: &TokenBytes, importer: Importer) -> bool {
        let request = Registration {
            token: *token,
            handle: importer.handle,
            reserved: 0,
            import: importer.import,
        };
        let (answer, _) = self.calls.call(Kind::Register, request.as_bytes(), &[]);
        status(answer.outcome).is_ok()
    }

    fn forget(&self, token: &TokenBytes, import: u64) {
        let request = Registration {
            token: *token,
            handle: 0,
            reserved: 0,
            import,
        };
        self.calls.call(Kind::Forget, request.as_bytes(), &[]);
    }

    fn withdraw(&self, token: &TokenBytes, _owner: u64) -> bool {
        let request = Withdraw { token: *token };
        let (answer, _) = self.calls.call(Kind::Withdraw, request.as_bytes(), &[]);
        status(answer.outcome).is_ok()
    }

    fn rights(&self, _session: u64) -> Rights {
        Rights::default()
    }
}
