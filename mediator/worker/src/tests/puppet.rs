//! A worker that does what a test tells it by batches: what one does that its guest has taken over.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use causeway_mediator::share::TokenBytes;
use causeway_mediator::{Client, GuestSession, Quota};
use causeway_mediator_testing::FakeHost;
use causeway_memory::{PAGE_BYTES, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::rig::{program, started_as_program};
use crate::socket::{Socket, buffer};
use crate::wire::{
    Answer, BEGUN_WORD, BindDoorbell, Executed, Fetch, ForClient, Kind, Memory, Place, Placed,
    Publish, Registration, Remove, Reported, ResetDone, SetAccess, Started, UnbindDoorbell, Wire,
    Withdraw,
};
use crate::{WorkerSession, Workers};

/// Places of the spare socket and of the status page among the descriptors that a worker is started
/// with.
const SPARE: usize = 0;
const STATUS_PAGE: usize = 1;

/// What the puppet is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Act {
    /// Takes `number` bytes of new memory in hand, of which nothing is ever touched.
    Make,
    /// Exports what it has in hand, with the rights `access`.
    Publish,
    Withdraw,
    /// Takes an export in hand, asked for with `access`.
    Fetch,
    /// Says that it imports it, as import `number`.
    Register,
    Forget,
    /// Places the first `number` bytes of what it has in hand.
    Place,
    /// Changes the rights of the placement at `number`.
    SetAccess,
    Remove,
    /// Binds the next doorbell, from 0, for a command buffer in what it has in hand.
    Bind,
    /// Unbinds doorbell `number`.
    Unbind,
    /// Takes the guest's RAM in hand.
    TakeRam,
    /// Makes what it has in hand this large.
    Resize,
    /// Sleeps `number` milliseconds.
    Sleep,
    /// Says that `number` pieces of work have begun, and none has ended.
    BeginWork,
    /// Tells how many datagrams of kind `number` have come over the control socket.
    Heard,
}

impl Act {
    fn from_wire(number: u32) -> Self {
        let all = [
            Self::Make,
            Self::Publish,
            Self::Withdraw,
            Self::Fetch,
            Self::Register,
            Self::Forget,
            Self::Place,
            Self::SetAccess,
            Self::Remove,
            Self::Bind,
            Self::Unbind,
            Self::TakeRam,
            Self::Resize,
            Self::Sleep,
            Self::BeginWork,
            Self::Heard,
        ];
        all[number as usize]
    }
}

/// A batch, as a puppet understands it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Order {
    act: u32,
    access: u32,
    number: u64,
    token: TokenBytes,
}

/// What became of an order.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Outcome {
    /// The VMM's outcome or status.
    pub outcome: u32,
    pub errno: u32,
    pub value: u64,
    pub token: TokenBytes,
}

const _: () = assert!(size_of::<Order>() == size_of::<Outcome>());

/// A guest whose worker is a puppet.
pub struct Puppet {
    pub host: Arc<FakeHost>,
    pub session: Arc<WorkerSession>,
}

pub fn workers() -> Workers {
    Workers::new(&program("puppet::puppet_process", "puppet"), None).unwrap()
}

impl Puppet {
    pub fn open(workers: &Workers, quota: Quota) -> Self {
        let host = FakeHost::new(1 << 20, 8 << 30).unwrap();
        let session = workers
            .open_worker(Arc::clone(&host) as _, quota, "puppet")
            .unwrap();
        Self { host, session }
    }

    /// Tells the worker what to do, and returns the outcome. Panics if the worker is lost.
    pub fn act(&self, act: Act, number: u64, access: Access, token: TokenBytes) -> Outcome {
        let mut order = Order {
            act: act as u32,
            access: access.wire(),
            number,
            token,
        };
        let done = self.session.execute(Client::FIRST, order.as_mut_bytes());
        assert_eq!(done, Status::Ok, "{act:?}: {:?}", self.session.fault());
        Outcome::read_from_bytes(order.as_bytes()).unwrap()
    }

    /// [`Self::act`] with a number alone.
    pub fn tell(&self, act: Act, number: u64) -> Outcome {
        self.act(act, number, Access::ReadWrite, TokenBytes::default())
    }

    /// Exports new memory of `bytes` bytes.
    pub fn export(&self, bytes: u64, access: Access) -> TokenBytes {
        self.tell(Act::Make, bytes);
        let published = self.act(Act::Publish, bytes, access, TokenBytes::default());
        assert_eq!(published.outcome, Status::Ok as u32);
        published.token
    }

    /// Imports an export, as workers do, and takes it in hand.
    pub fn import(&self, token: TokenBytes, access: Access) {
        for act in [Act::Fetch, Act::Register] {
            let outcome = self.act(act, 0, access, token).outcome;
            assert_eq!(outcome, Status::Ok as u32, "{act:?}");
        }
    }
}

/// No test, but what tests start.
#[test]
fn puppet_process() {
    let Some((_, word)) = started_as_program() else {
        return;
    };
    let input = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let control = Socket::from_descriptor(input);
    let mut room = buffer();
    let start = control.receive(&mut room).unwrap();
    // Held open: the end of the spare socket would be the worker's. The guest's RAM is the last.
    let mut started = Started::new_zeroed();
    started.granularity_bytes = 4096;
    started.memory_bytes = 8 << 30;
    started.runs_behind = 1;
    let parts = [started.as_bytes(), b"puppet"];
    control.send(Kind::Started, &parts, &[]).unwrap();
    let hands = Arc::new(Hands {
        held: Mutex::new(None),
        bound: AtomicU32::new(0),
        descriptors: start.descriptors,
        heard: Mutex::default(),
    });
    if word == "leaver" {
        leave(&control, &hands);
        return;
    }
    while let Ok(mut datagram) = control.receive(&mut room) {
        if datagram.kind == Kind::NewChannel {
            let channel = Socket::from_descriptor(datagram.descriptor().unwrap());
            let hands = Arc::clone(&hands);
            std::thread::spawn(move || serve(&channel, &hands));
        } else {
            let descriptors = std::mem::take(&mut datagram.descriptors);
            hands.heard.lock().push((datagram.kind, descriptors));
        }
    }
}

/// Takes no channel, so that its session does not begin, and places memory all the same.
fn leave(control: &Socket, hands: &Hands) {
    control.shut_down();
    let spare = Socket::from_descriptor(hands.descriptors[SPARE].try_clone().unwrap());
    for act in [Act::Make, Act::Place] {
        let order = Order {
            act: act as u32,
            access: Access::ReadWrite.wire(),
            number: PAGE_BYTES,
            token: TokenBytes::default(),
        };
        obey(&spare, hands, &order);
    }
}

/// What a puppet has.
struct Hands {
    /// Memory in hand.
    held: Mutex<Option<OwnedFd>>,
    /// Doorbells so far.
    bound: AtomicU32,
    /// The descriptors that it was started with.
    descriptors: Vec<OwnedFd>,
    /// What came over the control socket. The descriptors stay open, as a worker's do.
    heard: Mutex<Vec<(Kind, Vec<OwnedFd>)>>,
}

/// Answers the requests of a channel. Every request but a batch is granted, and nothing done for
/// it.
fn serve(channel: &Socket, hands: &Hands) {
    let mut room = buffer();
    while let Ok(request) = channel.receive(&mut room) {
        let granted = ResetDone::new_zeroed();
        let (kind, body) = match request.kind {
            Kind::Execute => {
                let (_, order) = request.body_and_rest::<ForClient>().unwrap();
                let order = Order::read_from_bytes(order).unwrap();
                let outcome = obey(channel, hands, &order);
                let executed = Executed {
                    status: Status::Ok as u32,
                    reserved: 0,
                };
                let body = [executed.as_bytes(), outcome.as_bytes()].concat();
                (Kind::Executed, body)
            }
            Kind::Report => (Kind::Reported, Reported::new_zeroed().as_bytes().to_vec()),
            Kind::Close => (Kind::Closed, Vec::new()),
            Kind::RevokeImport => (Kind::ImportRevoked, Vec::new()),
            Kind::Reset => (Kind::ResetDone, granted.as_bytes().to_vec()),
            Kind::SetLimits => (Kind::LimitsSet, Vec::new()),
            Kind::ResetClient => (Kind::ClientReset, granted.as_bytes().to_vec()),
            _ => return,
        };
        if channel.send(kind, &[&body], &[]).is_err() {
            return;
        }
    }
}

/// Does what a test wants, by calls over the channel.
fn obey(channel: &Socket, hands: &Hands, order: &Order) -> Outcome {
    let (act, number) = (Act::from_wire(order.act), order.number);
    if act == Act::Sleep {
        std::thread::sleep(Duration::from_millis(number));
        return Outcome::new_zeroed();
    }
    let mut held = hands.held.lock();
    match act {
        // Not sealed, as large pages are.
        Act::Make => {
            let memory = memfd_create("puppet", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&memory, number).unwrap();
            *held = Some(memory);
        }
        Act::TakeRam => *held = hands.descriptors.last().unwrap().try_clone().ok(),
        Act::Resize => ftruncate(held.as_ref().unwrap(), number).unwrap(),
        Act::BeginWork => {
            let page = hands.descriptors[STATUS_PAGE].try_clone().unwrap();
            let page = SharedMemory::adopt(page, PageSize::Small).unwrap();
            let page = page.map(0, PAGE_BYTES, Access::ReadWrite).unwrap();
            page.store_u64(BEGUN_WORD, number, Ordering::Release)
                .unwrap();
        }
        Act::Heard => {
            let heard = hands.heard.lock();
            let of_kind = heard.iter().filter(|(kind, _)| *kind as u64 == number);
            return Outcome {
                value: of_kind.count() as u64,
                ..Outcome::new_zeroed()
            };
        }
        Act::Fetch => {
            let (outcome, file) = call(channel, Kind::Fetch, &request(hands, order), &[]);
            *held = file.or(held.take());
            return outcome;
        }
        _ => return ask(channel, held.as_ref(), act, &request(hands, order)),
    }
    Outcome::new_zeroed()
}

/// Makes the call of an act, with the descriptors that it needs.
fn ask(channel: &Socket, held: Option<&OwnedFd>, act: Act, body: &[u8]) -> Outcome {
    let event = EventFd::new(0).unwrap();
    let event = crate::event::descriptor(&event);
    let held = || held.unwrap().as_fd();
    let (kind, files) = match act {
        Act::Publish => (Kind::Publish, vec![held()]),
        Act::Withdraw => (Kind::Withdraw, Vec::new()),
        Act::Register => (Kind::Register, Vec::new()),
        Act::Forget => (Kind::Forget, Vec::new()),
        Act::Place => (Kind::Place, vec![held()]),
        Act::SetAccess => (Kind::SetAccess, Vec::new()),
        Act::Remove => (Kind::Remove, Vec::new()),
        Act::Bind => (Kind::BindDoorbell, vec![event, held()]),
        Act::Unbind => (Kind::UnbindDoorbell, Vec::new()),
        _ => unreachable!("{act:?} is no call"),
    };
    call(channel, kind, body, &files).0
}

/// Returns the body of the call of an act.
fn request(hands: &Hands, order: &Order) -> Vec<u8> {
    let Order {
        access,
        number,
        token,
        ..
    } = *order;
    let reserved = 0;
    match Act::from_wire(order.act) {
        Act::Publish => bytes_of(&Publish {
            bytes: number,
            memory: Memory {
                offset: 0,
                // A token of zeros asks for nothing unusual.
                made_of: MemoryKind::Host as u32 ^ u32::from(token[0]),
                kind: MemoryKind::Host as u32 ^ u32::from(token[1]),
                pages: 0,
                access,
            },
            gpus: u64::MAX,
        }),
        Act::Withdraw => bytes_of(&Withdraw { token }),
        Act::Fetch => bytes_of(&Fetch {
            token,
            access,
            reserved,
        }),
        Act::Register | Act::Forget => bytes_of(&Registration {
            token,
            handle: 1,
            reserved,
            import: number,
        }),
        Act::Place => bytes_of(&Place {
            offset: 0,
            bytes: number,
            memory_bytes: number,
            access: access as u16,
            kind: Placed::Host as u16,
            pages: 0,
        }),
        Act::SetAccess => bytes_of(&SetAccess {
            offset: number,
            access,
            reserved,
        }),
        Act::Remove => bytes_of(&Remove { offset: number }),
        Act::Bind => bytes_of(&BindDoorbell {
            index: hands.bound.fetch_add(1, Ordering::SeqCst),
            reserved,
            ring_offset: 0,
        }),
        Act::Unbind => bytes_of(&UnbindDoorbell {
            index: number as u32,
            reserved,
        }),
        Act::Make | Act::TakeRam | Act::Resize | Act::Sleep | Act::BeginWork | Act::Heard => {
            Vec::new()
        }
    }
}

fn bytes_of(body: &impl Wire) -> Vec<u8> {
    body.as_bytes().to_vec()
}

/// Makes a call of the VMM.
fn call(
    channel: &Socket,
    kind: Kind,
    body: &[u8],
    files: &[BorrowedFd<'_>],
) -> (Outcome, Option<OwnedFd>) {
    let mut room = buffer();
    channel.send(kind, &[body], files).unwrap();
    let mut reply = channel.receive(&mut room).unwrap();
    let answer: Answer = reply.body().unwrap();
    let outcome = Outcome {
        outcome: answer.outcome,
        errno: answer.errno,
        value: answer.value,
        token: answer.token,
    };
    (outcome, reply.descriptor().ok())
}
