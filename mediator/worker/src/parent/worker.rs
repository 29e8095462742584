//! One worker process with its sockets, from its start to its end.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use causeway_mediator::backend::{Attributes, Fault};
use causeway_mediator::host::Host;
use causeway_mediator::{Activity, Client, OpenError, Quota, SessionReport};
use causeway_memory::{Mapping, PAGE_BYTES, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use causeway_protocol::registers::status;
use zerocopy::IntoBytes;

use super::broker::Broker;
use super::calls::{Caller, is_call, send_answer, serve_spare};
use super::guest::Guest;
use super::process::Process;
use super::start::{StartError, await_start, not_started, send_start};
use super::workers::Shared;
use crate::report;
use crate::socket::{Buffer, Datagram, Socket, SocketError, buffer};
use crate::wire::{
    Executed, ForClient, Kind, OWNERS_WORD, Reported, ResetDone, RevokeImport, STATUS_WORD, Sampled,
};

/// How often a caller that waits looks whether it has waited too long.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Longest that a worker may take for what it does at once when it works as it should.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest that the reset of a client may take: work under way may be given time to end.
const CLIENT_RESET_PATIENCE: Duration = Duration::from_secs(5);
/// Longest that a worker whose sockets are closed is waited for, to learn how it ended.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(1);

/// The worker is of no use any more; [`Worker::fault`] says why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost;

/// What a session in a worker is to be.
pub(super) struct Order {
    pub session: u64,
    pub name: String,
    pub host: Arc<dyn Host>,
    pub quota: Quota,
}

/// A lane: a socket to a thread of the worker, for one caller at a time.
struct Lane {
    socket: Socket,
    room: Buffer,
}

/// A lane on which nothing is asked but for samples.
struct WatchingLane {
    lane: Lane,
    /// Whether an answer has not come yet.
    is_owed: bool,
}

/// A worker process. Dropping it ends it.
pub(super) struct Worker {
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) weak: Weak<Self>,
    process: Process,
    control: Socket,
    lanes: Mutex<Vec<Lane>>,
    /// The lane of those who watch: the guest's calls must not find one of theirs behind a sample.
    watching: Mutex<Option<WatchingLane>>,
    pub(super) guest: Guest,
    pub(super) broker: Arc<Broker>,
    pub(super) exports_max: u32,
    status: Mapping,
    attributes: Attributes,
    /// Why it is of no use any more.
    broken: OnceLock<Fault>,
    /// When its VM wanted its virtual CPUs back.
    halted: OnceLock<Instant>,
    /// Whether its end is wanted.
    closing: AtomicBool,
}

impl Worker {
    /// Starts a process, and has it open a session.
    pub fn start(shared: &Shared, order: &Order) -> Result<Arc<Self>, OpenError> {
        let failed = |source: io::Error| OpenError::Start {
            name: order.name.clone(),
            source,
        };
        let (control, control_end) = Socket::pair().map_err(|e| failed(e.into()))?;
        let (spare, spare_end) = Socket::pair().map_err(|e| failed(e.into()))?;
        control
            .set_patience(LOOK_PERIOD)
            .map_err(|e| failed(e.into()))?;
        let page = SharedMemory::new("worker status", PAGE_BYTES, PageSize::Small)
            .map_err(|e| failed(io::Error::other(e)))?;
        let status = page
            .map(0, PAGE_BYTES, Access::Read)
            .map_err(|e| failed(io::Error::other(e)))?;
        let socket = control_end.into_descriptor();
        let process = Process::start(&shared.spawner, &shared.program, order.session, socket);
        let process = process.map_err(failed)?;
        let sent = send_start(&control, order, &[spare_end.as_fd(), page.file()]);
        // With this end open here, the other would never see the worker's end.
        drop(spare_end);
        let (attributes, device) = sent
            .map_err(StartError::from)
            .and_then(|()| await_start(&control))
            .map_err(|e| not_started(e, &process, &order.name))?;
        let import_device = shared.import_device.clone().zip(device);
        let worker = Arc::new_cyclic(|weak| Self {
            number: shared.broker.worker_number(),
            name: order.name.clone(),
            weak: Weak::clone(weak),
            process,
            control,
            lanes: Mutex::default(),
            watching: Mutex::default(),
            guest: Guest::new(Arc::clone(&order.host), import_device),
            broker: Arc::clone(&shared.broker),
            exports_max: order.quota.allocations,
            status,
            attributes,
            broken: OnceLock::new(),
            halted: OnceLock::new(),
            closing: AtomicBool::new(false),
        });
        serve_spare(&worker, spare).map_err(failed)?;
        Ok(worker)
    }

    /// What its back end is.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Content of register `Status`.
    pub fn status_bits(&self) -> u32 {
        if self.broken.get().is_some() {
            return status::LOST;
        }
        // In range and aligned; only two bits are believed.
        let bits = self.status_word(STATUS_WORD);
        bits as u32 & (status::READY | status::LOST)
    }

    /// The clients that own something; once it is of no use any more, those that did.
    pub fn owners(&self) -> u64 {
        self.status_word(OWNERS_WORD)
    }

    fn status_word(&self, offset: u64) -> u64 {
        self.status.load_u64(offset, Ordering::Acquire).unwrap_or(0)
    }

    /// Why it is of no use any more, if it is not.
    pub fn fault(&self) -> Option<Fault> {
        self.broken.get().cloned()
    }

    /// See `GuestSession::execute`.
    pub fn execute(&self, client: Client, batch: &mut [u8]) -> Result<Status, Lost> {
        let client = ForClient::new(client);
        // The request is sent from `batch` and the reply copied into it, without another copy.
        let lane = self.send(Kind::Execute, &[client.as_bytes(), batch])?;
        self.finish(lane, None, |reply| {
            expect(reply, Kind::Executed)?;
            let (executed, bytes) = reply.body_and_rest::<Executed>()?;
            let taken = Status::from_wire(executed.status)
                .ok_or(SocketError::Malformed("it gave a status that is none"))?;
            if bytes.len() != batch.len() {
                return Err(SocketError::Malformed(
                    "it returned a batch of another length",
                ));
            }
            batch.copy_from_slice(bytes);
            Ok(taken)
        })
    }

    /// See `GuestSession::reset`. False if another process has to take over.
    pub fn reset(&self) -> Result<bool, Lost> {
        self.ask(Kind::Reset, &[], Some(PATIENCE), |reply| {
            expect(reply, Kind::ResetDone)?;
            Ok(reply.body::<ResetDone>()?.spent == 0)
        })
    }

    /// See `GuestSession::reset_client`. False if this process can serve no other life, and the others must give it up.
    pub fn reset_client(&self, client: Client) -> Result<bool, Lost> {
        let request = ForClient::new(client);
        let parts = [request.as_bytes()];
        self.ask(
            Kind::ResetClient,
            &parts,
            Some(CLIENT_RESET_PATIENCE),
            |reply| {
                expect(reply, Kind::ClientReset)?;
                Ok(reply.body::<ResetDone>()?.spent == 0)
            },
        )
    }

    /// The session's report, what it was lost to, and what the binary added.
    pub fn report(&self, session: u64) -> Result<(SessionReport, Option<Fault>, Vec<u8>), Lost> {
        self.ask(Kind::Report, &[], Some(PATIENCE), |reply| {
            expect(reply, Kind::Reported)?;
            let (reported, rest) = reply.body_and_rest::<Reported>()?;
            report::from_wire(&reported, rest, session, &self.name)
                .ok_or(SocketError::Malformed("its report makes no sense"))
        })
    }

    /// What its session is doing. None if it does not say at once: whoever watches must not be held up by it, and a worker that
    /// is slow to answer them has done nothing wrong.
    pub fn sample(&self) -> Option<Activity> {
        // Locked: somebody else waits for it.
        let mut watching = self.watching.try_lock().ok()?;
        let mut own = match watching.take() {
            Some(own) => own,
            None => WatchingLane {
                lane: self.new_lane().ok()?,
                is_owed: false,
            },
        };
        match own.sample() {
            Ok(activity) => {
                *watching = Some(own);
                Some(activity)
            }
            Err(SocketError::Nothing) => {
                *watching = Some(own);
                None
            }
            // What its guest has of such a worker is for its guest to find out.
            Err(_) => None,
        }
    }

    /// Number of the process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Memory of its own, in bytes.
    pub fn rss_bytes(&self) -> Option<u64> {
        self.process.rss_bytes()
    }

    /// Has waits end; nothing if it is gone.
    pub fn interrupt(&self) {
        self.notify(Kind::Interrupt);
    }

    /// Has batches end, and gives those under way a limit.
    pub fn halt(&self) {
        self.halted.get_or_init(Instant::now);
        self.notify(Kind::Halt);
    }

    /// Takes an import away. When this returns, nothing of it can be reached: a worker that does not do it in time is
    /// killed.
    pub fn revoke(&self, handle: u32, import: u64) {
        let request = RevokeImport {
            handle,
            reserved: 0,
            import,
        };
        let parts = [request.as_bytes()];
        let revoked = self.ask(Kind::RevokeImport, &parts, Some(PATIENCE), |reply| {
            expect(reply, Kind::ImportRevoked)
        });
        if revoked.is_err() {
            // What of the guest's mappings was made from that import is not known here.
            self.process.finish();
            self.guest.end();
        }
    }

    /// Closes the session and ends the process, in order if it goes along.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        let closed = self.ask(Kind::Close, &[], Some(PATIENCE), |reply| {
            expect(reply, Kind::Closed)
        });
        if closed.is_ok() {
            self.process.wait(PATIENCE);
        }
        self.end("was closed");
    }

    /// Ends the process and takes away all that it had of its guest and of others.
    pub fn end(&self, how: &str) {
        let _ = self.broken.set(self.told(how));
        self.process.finish();
        self.lanes().clear();
        self.broker.withdraw_all(self.number);
        self.guest.end();
    }

    /// Asks for something over a lane, serves the calls that this leads to, and takes the reply. A worker that breaks
    /// the protocol or takes longer than `limit` is killed.
    fn ask<R>(
        &self,
        request: Kind,
        parts: &[&[u8]],
        limit: Option<Duration>,
        take: impl FnOnce(&mut Datagram<'_>) -> Result<R, SocketError>,
    ) -> Result<R, Lost> {
        let lane = self.send(request, parts)?;
        self.finish(lane, limit, take)
    }

    /// Sends a request on a lane that nobody uses.
    fn send(&self, request: Kind, parts: &[&[u8]]) -> Result<Lane, Lost> {
        let lane = self.lane().map_err(|e| self.give_up(&e))?;
        let sent = lane.socket.send(request, parts, &[]);
        sent.map_err(|e| self.give_up(&e))?;
        Ok(lane)
    }

    /// Serves the calls that a request leads to, and takes the reply.
    fn finish<R>(
        &self,
        mut lane: Lane,
        limit: Option<Duration>,
        take: impl FnOnce(&mut Datagram<'_>) -> Result<R, SocketError>,
    ) -> Result<R, Lost> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let outcome = self.converse(&mut lane, deadline, take);
        match outcome {
            Ok(reply) => {
                self.lanes().push(lane);
                Ok(reply)
            }
            Err(error) => Err(self.give_up(&error)),
        }
    }

    /// Serves calls until a reply comes.
    fn converse<R>(
        &self,
        lane: &mut Lane,
        deadline: Option<Instant>,
        take: impl FnOnce(&mut Datagram<'_>) -> Result<R, SocketError>,
    ) -> Result<R, SocketError> {
        loop {
            // A batch may take as long as its guest likes, until the guest is not there any more.
            let halted = || self.halted.get().map(|halted| *halted + PATIENCE);
            let deadline = deadline.or_else(halted);
            // Looked at whatever comes: a worker must not keep its caller by asking and asking.
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(SocketError::Nothing);
            }
            match lane.socket.receive(&mut lane.room) {
                Ok(mut datagram) if is_call(datagram.kind) => {
                    let (answer, file) = self.answer(&mut datagram, Caller::Lane)?;
                    send_answer(&lane.socket, &answer, file.as_deref())?;
                }
                Ok(mut reply) => return take(&mut reply),
                Err(SocketError::Nothing) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A lane that nobody uses, or a new one.
    fn lane(&self) -> Result<Lane, SocketError> {
        if self.broken.get().is_some() {
            return Err(SocketError::Gone);
        }
        if let Some(lane) = self.lanes().pop() {
            return Ok(lane);
        }
        self.new_lane()
    }

    fn new_lane(&self) -> Result<Lane, SocketError> {
        if self.broken.get().is_some() {
            return Err(SocketError::Gone);
        }
        let (socket, end) = Socket::pair()?;
        socket.set_patience(LOOK_PERIOD)?;
        self.control.send(Kind::NewLane, &[], &[end.as_fd()])?;
        Ok(Lane {
            socket,
            room: buffer(),
        })
    }

    /// Notes that the worker is of no use any more, and why, and sees to it that it ends.
    pub(super) fn give_up(&self, error: &SocketError) -> Lost {
        let how = match error {
            SocketError::Gone => {
                self.process.wait(END_PATIENCE);
                let how = self.process.how();
                how.unwrap_or_else(|| "closed its sockets".to_owned())
            }
            SocketError::Nothing => "did not answer in time".to_owned(),
            SocketError::Malformed(what) => format!("broke the protocol: {what}"),
            SocketError::Failed(error) => format!("cannot be reached: {error}"),
        };
        self.lose(self.told(&how));
        Lost
    }

    /// Has the guest know that its device is lost, if it does not yet, and kills the process.
    pub fn lose(&self, fault: Fault) {
        let text = fault.text.clone();
        let first = self.broken.set(fault).is_ok();
        self.process.kill();
        if first {
            // The spare lane ends with the process, and may be the first to notice.
            let level = match self.closing.load(Ordering::Acquire) {
                true => log::Level::Debug,
                false => log::Level::Warn,
            };
            log::log!(level, "{}: {text}", self.name);
            self.guest.mark_lost();
        }
    }

    /// Loss to what became of the process.
    pub fn told(&self, how: &str) -> Fault {
        Fault {
            status: Status::DeviceLost,
            text: format!("the worker process of {} {how}", self.name),
        }
    }

    fn notify(&self, kind: Kind) {
        match self.control.send(kind, &[], &[]) {
            Ok(()) => {}
            // It reads nothing: its deadline will find it.
            Err(SocketError::Nothing) => {}
            Err(error) => drop(self.give_up(&error)),
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end("was dropped");
    }
}

impl WatchingLane {
    /// Asks, and waits a moment for the answer. While one is owed, nothing is waited for: a worker that is mute costs that once.
    fn sample(&mut self) -> Result<Activity, SocketError> {
        if self.is_owed {
            // That is how it was when somebody asked before.
            sampled(&self.lane.socket.receive_at_once(&mut self.lane.room)?)?;
            self.is_owed = false;
        }
        self.lane.socket.send(Kind::Sample, &[], &[])?;
        self.is_owed = true;
        let activity = sampled(&self.lane.socket.receive(&mut self.lane.room)?)?;
        self.is_owed = false;
        Ok(activity)
    }
}

/// The answer to a sample.
fn sampled(reply: &Datagram<'_>) -> Result<Activity, SocketError> {
    expect(reply, Kind::Sampled)?;
    Ok(reply.body::<Sampled>()?.into())
}

fn expect(reply: &Datagram<'_>, kind: Kind) -> Result<(), SocketError> {
    if reply.kind == kind {
        Ok(())
    } else {
        Err(SocketError::Malformed("it answered something else"))
    }
}
