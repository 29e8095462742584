//! The worker's one session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::backend::Backend;
use causeway_mediator::host::Host;
use causeway_mediator::{Gpus, Mediator, Peers, Quota, Session};
use causeway_memory::{Mapping, PAGE_BYTES, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::registers::status;
use causeway_sandbox::Missing;
use zerocopy::IntoBytes;

use super::calls::CallChannel;
use super::error::ServeError;
use super::exchange::RemoteExchange;
use super::host::RemoteHost;
use crate::DeviceUuid;
use crate::socket::{Datagram, Socket, SocketError};
use crate::wire::{
    BEGUN_WORD, BUSY_WORD, ENDED_WORD, Kind, OWNERS_WORD, RAM_REGIONS_MAX, STATUS_WORD, Start,
    Started, lacking_bits,
};

/// Longest supplement to a report: with the report itself it fits a datagram.
const SUPPLEMENT_BYTES_MAX: usize = 56 << 10;

/// What a worker program passes to [`crate::serve`]: the back end, and additions to reports.
pub struct Equipment {
    /// The back end that executes the guest's GPU work.
    pub backend: Arc<dyn Backend>,
    /// The GPUs of the run, of which the back end's is one.
    pub gpus: Gpus,
    /// UUID of the GPU whose memory the guest can map for its CPUs. The VMM imports the memory
    /// through the GPU with this UUID. `None` if GPU memory cannot be mapped for CPUs.
    pub device: Option<DeviceUuid>,
    /// A function that returns additional data for each report of the session, at most 56 KiB. The
    /// program defines its content; longer data is left out.
    pub supplement: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
}

causeway_memory::debug_fields!(Equipment {});

/// The session that channels serve.
pub(super) struct Served {
    pub backend: Arc<dyn Backend>,
    pub session: Arc<Session>,
    host: Arc<RemoteHost>,
    /// Name of the VM.
    pub name: String,
    /// Lenders that the VMM has named so far.
    pub lenders: AtomicU64,
    pub supplement: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
}

impl Served {
    /// Opens the session that `start`, the VMM's first message, describes. Sends the attributes of
    /// the back end to the VMM over `control`, and which mechanisms are `missing` for its sandbox.
    pub fn begin(
        start: &mut Datagram<'_>,
        equipment: Equipment,
        missing: &[Missing],
        control: &Socket,
    ) -> Result<Arc<Self>, ServeError> {
        let descriptors = std::mem::take(&mut start.descriptors);
        let (request, name) = start.body_and_rest::<Start>()?;
        let name = String::from_utf8_lossy(name).into_owned();
        let regions = (request.regions as usize).min(RAM_REGIONS_MAX);
        let mut descriptors = descriptors.into_iter();
        let (Some(spare), Some(page)) = (descriptors.next(), descriptors.next()) else {
            return Err(SocketError::Malformed(
                "the first message of the VMM lacks file descriptors",
            )
            .into());
        };
        let spare = CallChannel::new(Socket::from_descriptor(spare));
        let regions = request.ram.into_iter().take(regions).zip(descriptors);
        let failed = |e: causeway_memory::MemoryError| ServeError::begin(&e);
        let host = RemoteHost::new(Arc::clone(&spare), regions).map_err(failed)?;
        let host = Arc::new(host);
        let page = SharedMemory::adopt(page, PageSize::Small).map_err(failed)?;
        let page = page.map(0, PAGE_BYTES, Access::ReadWrite).map_err(failed)?;
        let backend = equipment.backend;
        let exchange = Arc::new(RemoteExchange::new(spare, Arc::clone(&backend)));
        let mediator = Mediator::with_exchange(Arc::clone(&backend), exchange, equipment.gpus);
        let quota = Quota::from_limits(request.quota);
        let of_session: Arc<dyn Host> = Arc::clone(&host) as _;
        let session = mediator.open_as(request.session, of_session, quota, &name);
        publish(&session, Arc::new(page));
        let attributes = backend.attributes();
        let started = Started {
            device: equipment.device.unwrap_or_default(),
            memory_bytes: attributes.memory_bytes,
            granularity_bytes: attributes.granularity_bytes,
            va_start: attributes.va.start,
            va_end: attributes.va.end,
            features: attributes.features,
            compute_units: attributes.compute_units,
            warp_threads: attributes.warp_threads,
            block_threads_max: attributes.block_threads_max,
            shared_bytes_max: attributes.shared_bytes_max,
            lacking: lacking_bits(missing.iter().map(|missing| missing.mechanism)),
            runs_behind: (!backend.shares_time()).into(),
        };
        let parts = [started.as_bytes(), attributes.name.as_bytes()];
        control.send(Kind::Started, &parts, &[])?;
        let supplement = equipment.supplement;
        Ok(Arc::new(Self {
            backend,
            session,
            host,
            name,
            lenders: AtomicU64::new(0),
            supplement: Box::new(move || {
                let mut bytes = supplement();
                if bytes.len() > SUPPLEMENT_BYTES_MAX {
                    bytes.clear();
                }
                bytes
            }),
        }))
    }

    /// Returns the [`Peers`] with which the session reaches the VMM while it works for the thread
    /// of the VMM at the other end of `channel`.
    pub fn peers(&self, channel: &Arc<CallChannel>) -> Peers {
        let exchange = RemoteExchange::new(Arc::clone(channel), Arc::clone(&self.backend));
        Peers {
            host: Arc::new(self.host.over(Arc::clone(channel))),
            exchange: Arc::new(exchange),
        }
    }
}

/// Makes the session write into `page` what the VMM reads there without a message.
fn publish(session: &Session, page: Arc<Mapping>) {
    let word = |offset| {
        let page = Arc::clone(&page);
        move |value| {
            // The page is as long as the offsets are small.
            let _ = page.store_u64(offset, value, Ordering::Release);
        }
    };
    let (status, busy) = (word(STATUS_WORD), word(BUSY_WORD));
    status(status::READY.into());
    session.observe_status(move |bits| status(bits.into()));
    session.observe_owners(word(OWNERS_WORD));
    let (begun, ended) = (word(BEGUN_WORD), word(ENDED_WORD));
    session.observe_work(
        move |bursts| busy(u64::from(bursts.begun) << 32 | u64::from(bursts.under_way)),
        move |pieces| {
            begun(pieces.begun);
            ended(pieces.ended);
        },
    );
}
