//! One worker process with its sockets, from its start to its end.

mod monitor;
mod watched;

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use causeway_mediator::backend::{Attributes, Fault};
use causeway_mediator::rights::Grants;
use causeway_mediator::{Client, GivesUp, LiveLimits, OpenError, Quota};
use causeway_memory::{Mapping, PAGE_BYTES, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use causeway_protocol::registers::status;
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use super::broker::{Broker, Importer};
use super::calls::{Caller, SpareThread, is_call, send_answer};
use super::channel::{Channel, MonitorChannel, expect};
use super::guest::Guest;
use super::objects::ObjectKey;
use super::overdue::Watched;
use super::process::Process;
use super::shared::{Order, Shared};
use super::spare::Fresh;
use super::start::{StartError, await_start, not_started, send_start};
use crate::report::{self, ReceivedReport};
use crate::socket::{Datagram, Socket, SocketError};
use crate::wire::{
    Executed, ForClient, Kind, OWNERS_WORD, Reported, ResetDone, RevokeImport, STATUS_WORD,
};

/// Longest that a worker may take for a request that it normally answers at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest that the reset of a client may take: work under way may be given time to end.
const CLIENT_RESET_PATIENCE: Duration = Duration::from_secs(5);

/// Pause before a caller for whom the VMM has no descriptor looks for a channel again.
const CHANNEL_PAUSE: Duration = Duration::from_millis(1);

/// The error for a request to a worker process that has ended or was killed for misbehaving.
/// [`Worker::fault`] says why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost;

/// A worker process. Dropping it ends it.
pub(super) struct Worker {
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) weak: Weak<Self>,
    pub(super) process: Process,
    control: Socket,
    /// Call channels that no caller uses at the moment.
    channels: Mutex<Vec<Channel>>,
    /// The channel of monitors, apart from the others so that no call of the guest waits behind a
    /// sample.
    monitor: Mutex<Option<MonitorChannel>>,
    /// Limits of the session, as the VMM has set them.
    pub(super) limits: Arc<LiveLimits>,
    /// What it exports and imports is counted here.
    pub(super) grants: Arc<Grants>,
    /// Whether the worker has still to be told that they have changed.
    is_untold: AtomicBool,
    /// Locked while the worker is told of the lender.
    lending: Mutex<()>,
    /// The limits with which it was started.
    pub(super) first_limits: Quota,
    pub(super) guest: Guest,
    pub(super) broker: Arc<Broker>,
    /// Number of the GPU that its session is on.
    pub(super) gpu: u32,
    status: Mapping,
    pub(super) attributes: Attributes,
    /// Why it is lost.
    fault: OnceLock<Fault>,
    /// When the VM took its virtual CPUs back.
    halted: OnceLock<Instant>,
    /// Whether the VMM is ending it.
    closing: AtomicBool,
    /// Dropped after the worker process has ended: fields are dropped after `drop` returns.
    spare: Mutex<Option<SpareThread>>,
}

impl Worker {
    /// Starts a worker process, sends it `order` (the session to open), and waits until it has
    /// opened the session.
    pub fn start(
        shared: &Shared,
        order: &Order,
        gives_up: GivesUp<'_>,
    ) -> Result<Arc<Self>, OpenError> {
        let fresh = Fresh::start(shared, order.session, order.partition);
        let fresh = fresh.map_err(|e| order.failed(e))?;
        Self::begin(shared, order, fresh, gives_up)
    }

    /// Sends `order` to a process that has no session yet, and waits until it has opened the
    /// session.
    pub fn begin(
        shared: &Shared,
        order: &Order,
        fresh: Fresh,
        gives_up: GivesUp<'_>,
    ) -> Result<Arc<Self>, OpenError> {
        let failed = |source| order.failed(source);
        let (spare, spare_end) = Socket::pair().map_err(|e| failed(e.into()))?;
        let page = SharedMemory::new("worker status", PAGE_BYTES, PageSize::Small)
            .map_err(|e| failed(io::Error::other(e)))?;
        let status = page
            .map(0, PAGE_BYTES, Access::Read)
            .map_err(|e| failed(io::Error::other(e)))?;
        let Fresh {
            control,
            process,
            is_ahead,
            ..
        } = fresh;
        let first_limits = order.limits.quota();
        let descriptors = [spare_end.as_fd(), page.file()];
        let sent = send_start(&control, (order, &first_limits), &descriptors);
        // With this end open here, the other would never see the worker's end.
        drop(spare_end);
        let back_end = sent
            .map_err(StartError::from)
            .and_then(|()| await_start(&control, is_ahead, gives_up))
            .map_err(|e| not_started(e, &process, &order.name))?;
        let import_device = shared.import_device.clone().zip(back_end.device);
        let number = shared.broker.worker_number();
        let exchange = (Arc::clone(&shared.broker), number);
        let worker = Arc::new_cyclic(|weak| Self {
            number,
            name: order.name.clone(),
            weak: Weak::clone(weak),
            process,
            control,
            channels: Mutex::default(),
            monitor: Mutex::default(),
            limits: Arc::clone(&order.limits),
            grants: Arc::clone(&order.grants),
            is_untold: AtomicBool::new(false),
            lending: Mutex::default(),
            first_limits,
            guest: Guest::new(
                Arc::clone(&order.host),
                import_device,
                exchange,
                Arc::clone(&order.limits),
            ),
            broker: Arc::clone(&shared.broker),
            gpu: shared.gpu,
            status,
            attributes: back_end.attributes,
            fault: OnceLock::new(),
            halted: OnceLock::new(),
            closing: AtomicBool::new(false),
            spare: Mutex::default(),
        });
        let thread = SpareThread::start(&worker, spare).map_err(failed)?;
        *worker.spare.lock() = Some(thread);
        // The one that there always is, however few descriptors the VMM has left.
        let first = worker.new_channel();
        let first = first.map_err(|e| not_started(e.into(), &worker.process, &worker.name))?;
        worker.channels.lock().push(first);
        if back_end.runs_behind {
            let watched: Arc<dyn Watched> = Arc::clone(&worker) as _;
            shared.overdue.watch(&watched).map_err(failed)?;
        }
        Ok(worker)
    }

    /// Returns the content of the guest's device register `Status`, as the worker last published
    /// it; the lost bit if the worker is lost.
    pub fn status_bits(&self) -> u32 {
        if self.fault.get().is_some() {
            return status::LOST;
        }
        // In range and aligned; only two bits are believed.
        let bits = self.status_word(STATUS_WORD);
        bits as u32 & (status::READY | status::LOST)
    }

    /// Returns the clients that own objects, as a set of [`Client::bit`]s. If the worker is lost,
    /// these are the clients that owned objects at that moment.
    pub fn owners(&self) -> u64 {
        self.status_word(OWNERS_WORD)
    }

    fn status_word(&self, offset: u64) -> u64 {
        self.status.load_u64(offset, Ordering::Acquire).unwrap_or(0)
    }

    /// Returns the fault by which the worker was lost; `None` if it is not lost.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.get().cloned()
    }

    /// Has the worker execute a control batch of `client`, as `GuestSession::execute` does. Fails
    /// if the worker is or becomes lost.
    pub fn execute(&self, client: Client, batch: &mut [u8]) -> Result<Status, Lost> {
        let client = ForClient::new(client);
        // The request is sent from `batch` and the reply copied into it, without another copy.
        let channel = self.send(Kind::Execute, &[client.as_bytes(), batch], None)?;
        self.finish(channel, Kind::Executed, None, |reply| {
            let (executed, bytes) = reply.body_and_rest::<Executed>()?;
            let taken = Status::from_wire(executed.status)
                .ok_or(SocketError::Malformed("it sent an unknown status"))?;
            if bytes.len() != batch.len() {
                return Err(SocketError::Malformed("it sent a batch of another length"));
            }
            batch.copy_from_slice(bytes);
            Ok(taken)
        })
    }

    /// Has the worker reset its session, as `GuestSession::reset` does. Returns false if its back
    /// end is poisoned, so that the caller must start a new worker process.
    pub fn reset(&self) -> Result<bool, Lost> {
        self.ask(Kind::Reset, Kind::ResetDone, &[], PATIENCE, is_fresh)
    }

    /// Has the worker reset `client`, as `GuestSession::reset_client` does. Returns false if its
    /// back end is poisoned, so that all other clients must reset too.
    pub fn reset_client(&self, client: Client) -> Result<bool, Lost> {
        let request = ForClient::new(client);
        let (kind, parts) = (Kind::ResetClient, [request.as_bytes()]);
        self.ask(
            kind,
            Kind::ClientReset,
            &parts,
            CLIENT_RESET_PATIENCE,
            is_fresh,
        )
    }

    /// Asks the worker for its report, which is returned as report of session number `session`. The
    /// result also has the fault that lost the session, if there is one, and the additional data of
    /// [`crate::Equipment::supplement`]. Fails if the worker is or becomes lost.
    pub fn report(&self, session: u64) -> Result<ReceivedReport, Lost> {
        self.ask(Kind::Report, Kind::Reported, &[], PATIENCE, |reply| {
            let (reported, rest) = reply.body_and_rest::<Reported>()?;
            report::from_wire(&reported, rest, session, &self.name)
                .ok_or(SocketError::Malformed("it sent a malformed report"))
        })
    }

    /// Has the worker end `Wait` messages, as `GuestSession::interrupt` does. Does nothing if the
    /// worker process has ended.
    pub fn interrupt(&self) {
        self.notify(Kind::Interrupt);
    }

    /// Has the worker end batches, as `GuestSession::halt` does. If a batch then takes longer than
    /// [`PATIENCE`] (2 seconds), the worker is killed and lost.
    pub fn halt(&self) {
        self.halted.get_or_init(Instant::now);
        self.notify(Kind::Halt);
    }

    /// Takes import number `import`, which has the handle `handle`, away from the worker's session.
    /// When this returns, the guest cannot access the memory: a worker that does not confirm this
    /// in time is killed. The VMM has taken host memory from the guest itself before
    /// ([`Worker::restrict`]); of memory of a device, the worker's word is all there is.
    pub fn revoke(&self, handle: u32, import: u64) {
        let request = RevokeImport {
            handle,
            reserved: 0,
            import,
        };
        let (kind, parts) = (Kind::RevokeImport, [request.as_bytes()]);
        let revoked = self.ask(kind, Kind::ImportRevoked, &parts, PATIENCE, |_| Ok(()));
        if revoked.is_err() {
            // Which of the guest's mappings belong to that import is not known here.
            self.process.finish();
            self.guest.end();
        }
    }

    /// Has the worker close its session and end. A worker that does not do so in time is killed.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        let closed = self.ask(Kind::Close, Kind::Closed, &[], PATIENCE, |_| Ok(()));
        if closed.is_ok() {
            self.process.wait(PATIENCE);
        }
        self.end("was closed");
    }

    /// Kills the worker process if it still runs. Removes the memory that it has placed in the
    /// aperture, its doorbells, its exports and its imports. `how` is the end of a sentence that
    /// says how the worker ended, such as "was closed".
    pub fn end(&self, how: &str) {
        let _ = self.fault.set(self.fault_that(how));
        self.process.finish();
        self.channels.lock().clear();
        // First, so that nothing is exported behind the withdrawal.
        self.guest.end();
        self.broker.withdraw_all(self.number);
    }

    /// Sends a request over a channel, serves the calls that this leads to, and takes the reply. A
    /// worker that breaks the protocol or takes longer than `limit` is killed.
    fn ask<R>(
        &self,
        request: Kind,
        reply: Kind,
        parts: &[&[u8]],
        limit: Duration,
        take: impl FnOnce(&mut Datagram<'_>) -> Result<R, SocketError>,
    ) -> Result<R, Lost> {
        let channel = self.send(request, parts, Some(limit))?;
        self.finish(channel, reply, Some(limit), take)
    }

    /// Sends a request over a channel that no caller uses, for which it waits up to `limit`.
    fn send(
        &self,
        request: Kind,
        parts: &[&[u8]],
        limit: Option<Duration>,
    ) -> Result<Channel, Lost> {
        let channel = self.channel(limit).map_err(|e| self.give_up(&e))?;
        let sent = channel.socket.send(request, parts, &[]);
        sent.map_err(|e| self.give_up(&e))?;
        Ok(channel)
    }

    /// Serves the calls that a request leads to, and takes the reply.
    fn finish<R>(
        &self,
        mut channel: Channel,
        reply: Kind,
        limit: Option<Duration>,
        take: impl FnOnce(&mut Datagram<'_>) -> Result<R, SocketError>,
    ) -> Result<R, Lost> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let outcome = self.converse(&mut channel, deadline, |datagram| {
            expect(datagram, reply)?;
            take(datagram)
        });
        let taken = outcome.map_err(|error| self.give_up(&error))?;
        self.channels.lock().push(channel);
        Ok(taken)
    }

    /// Serves calls until a reply comes.
    fn converse<R>(
        &self,
        channel: &mut Channel,
        deadline: Option<Instant>,
        take: impl FnOnce(&mut Datagram<'_>) -> Result<R, SocketError>,
    ) -> Result<R, SocketError> {
        loop {
            // A batch may take as long as its guest likes, until the VM halts.
            let halted = || self.halted.get().map(|halted| *halted + PATIENCE);
            let deadline = deadline.or_else(halted);
            // Checked before every datagram: a worker must not hold its caller with endless calls.
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(SocketError::Timeout);
            }
            match channel.socket.receive(&mut channel.room) {
                Ok(mut datagram) if is_call(datagram.kind) => {
                    let (answer, file) = self.answer(&mut datagram, Caller::Waiting)?;
                    send_answer(&channel.socket, &answer, file.as_deref())?;
                }
                Ok(mut reply) => return take(&mut reply),
                Err(SocketError::Timeout) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns a channel that no caller uses, or a new one. If the VMM has no descriptor left for a
    /// new one, waits up to `limit` for one that is in use.
    fn channel(&self, limit: Option<Duration>) -> Result<Channel, SocketError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            if self.fault.get().is_some() {
                return Err(SocketError::Closed);
            }
            if let Some(unused) = self.channels.lock().pop() {
                return Ok(unused);
            }
            match self.new_channel() {
                Err(error)
                    if error.is_shortage()
                        && deadline.is_none_or(|deadline| Instant::now() < deadline) =>
                {
                    std::thread::sleep(CHANNEL_PAUSE);
                }
                opened => return opened,
            }
        }
    }

    fn new_channel(&self) -> Result<Channel, SocketError> {
        match self.fault.get() {
            Some(_) => Err(SocketError::Closed),
            None => Channel::open(&self.control),
        }
    }

    /// Marks the worker as lost because of a socket error, and kills it.
    pub(super) fn give_up(&self, error: &SocketError) -> Lost {
        self.lose(self.fault_that(&self.process.failure(error)));
        Lost
    }

    /// Kills the worker process, records `fault`, and marks every command buffer of the guest as
    /// lost.
    pub fn lose(&self, fault: Fault) {
        let text = fault.text.clone();
        let first = self.fault.set(fault).is_ok();
        self.process.kill();
        if first {
            // The spare channel ends with the process, and may be the first to notice.
            let level = match self.closing.load(Ordering::Acquire) {
                true => log::Level::Debug,
                false => log::Level::Warn,
            };
            log::log!(level, "{}: {text}", self.name);
            self.guest.mark_lost();
        }
    }

    /// Returns the fault that says that this worker process was lost. `how` is the end of its
    /// sentence, for example "was killed by signal 9".
    pub fn fault_that(&self, how: &str) -> Fault {
        Fault::new(
            Status::DeviceLost,
            format!("the worker process of {} {how}", self.name),
        )
    }

    fn notify(&self, kind: Kind) {
        match self.control.send(kind, &[], &[]) {
            Ok(()) => {}
            // The worker does not read. The deadline of the caller that waits ends it.
            Err(SocketError::Timeout) => {}
            Err(error) => drop(self.give_up(&error)),
        }
    }
}

/// Returns whether the worker is as new after a reset.
fn is_fresh(reply: &mut Datagram<'_>) -> Result<bool, SocketError> {
    Ok(reply.body::<ResetDone>()?.poisoned == 0)
}

impl Importer for Worker {
    fn restrict(&self, object: Option<ObjectKey>) {
        Worker::restrict(self, object);
    }

    fn revoke(&self, handle: u32, import: u64) {
        Worker::revoke(self, handle, import);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end("was dropped");
    }
}

#[cfg(test)]
mod tests;
