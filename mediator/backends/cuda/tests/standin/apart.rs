//! Memory of a GPU that cannot be a peer of the session's: copies reach it, and nothing else does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_cuda::{Config, Cuda};
use causeway_kernels::special;
use causeway_mediator::backend::{
    AllocateOptions, Backend, CopyShape, Crossed, Exported, Fault, Memory, MemoryWork, Place,
    Recorded, Work,
};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::packet::RectSide;

use crate::faults::endless;
use crate::support::{Buffer, GRANULE, Rig, host, is_child, visible};

/// Two devices that cannot be peers.
const SETTINGS: [(&str, &str); 2] = [
    ("CAUSEWAY_STANDIN_DEVICES", "2"),
    ("CAUSEWAY_STANDIN_PEERS", "0"),
];
const APART: Place = Place::Apart { gpu: 1 };

/// A session on the first device, and memory of the second as it has it.
struct Pair {
    rig: Rig,
    owner: Arc<Cuda>,
    own: Arc<dyn Memory>,
    imported: Arc<dyn Memory>,
}

fn config(device: u32) -> Config {
    Config {
        device,
        devices_of_run: vec![0, 1],
        ..Config::default()
    }
}

impl Pair {
    fn new() -> Self {
        let rig = Rig::with(&Config {
            visible: Some(visible()),
            ..config(0)
        });
        let owner = Cuda::open(&config(1)).unwrap();
        let options = AllocateOptions::default();
        let own = owner.allocate(MemoryKind::Device, GRANULE, options);
        let own = own.unwrap();
        let imported = import(&rig, &own, APART);
        assert_eq!(imported.place(), APART);
        Self {
            rig,
            owner,
            own,
            imported,
        }
    }

    /// Maps the import with these rights.
    /// Returns peers, with a buffer of the other's memory and one of the own.
    fn of_peers() -> (Self, Buffer, Buffer) {
        let pair = Self::new();
        let peers = import(&pair.rig, &pair.own, Place::Peer);
        let theirs = pair.rig.map(peers, Access::ReadWrite);
        let ours = pair.own_buffer();
        (pair, theirs, ours)
    }

    fn map(&self, access: Access) -> u64 {
        self.rig.map(Arc::clone(&self.imported), access).va
    }

    fn own_buffer(&self) -> Buffer {
        self.rig.buffer(MemoryKind::Device, GRANULE)
    }

    fn submit(&mut self, work: MemoryWork) -> Result<(), Fault> {
        self.rig.queue.submit(Work::Memory(work))
    }

    /// Checks that work is refused before it gets to the driver.
    fn assert_refused(&mut self, work: MemoryWork) -> Fault {
        let fault = self.submit(work).expect_err("it must be refused");
        assert_eq!(fault.status, Status::MemoryFault, "{work:?}: {fault}");
        assert!(!self.rig.cuda.is_poisoned(), "{work:?}: {fault}");
        self.rig.renew_queue();
        fault
    }

    /// What the queue has copied from one GPU to the other, once it is idle.
    fn crossed(&mut self) -> Crossed {
        self.rig.queue.finish().unwrap();
        self.rig.queue.take_crossed()
    }
}

fn import(rig: &Rig, memory: &Arc<dyn Memory>, place: Place) -> Arc<dyn Memory> {
    let exported = Exported {
        place,
        ..memory.export().unwrap()
    };
    rig.cuda.import(exported).unwrap()
}

fn copy(destination: u64, source: u64, bytes: u64) -> MemoryWork {
    MemoryWork::Copy {
        destination,
        source,
        bytes,
    }
}

#[test]
fn copies_go_there_and_back_and_are_counted() {
    if !is_child("apart::copies_go_there_and_back_and_are_counted", &SETTINGS) {
        return;
    }
    let mut pair = Pair::new();
    let theirs = pair.map(Access::ReadWrite);
    let (ours, back) = (pair.own_buffer(), pair.own_buffer());
    pair.rig.fill(ours.va, GRANULE, 0x1234_5678).unwrap();
    pair.submit(copy(theirs, ours.va, GRANULE)).unwrap();
    pair.submit(copy(back.va, theirs, GRANULE)).unwrap();
    let crossed = pair.crossed();
    assert_eq!(crossed.staged.bytes, 2 * GRANULE);
    assert_ne!(crossed.staged.ns, 0);
    assert_eq!(crossed.direct.bytes, 0);
    let got = pair.rig.download(back.va, GRANULE);
    assert!(got.chunks(4).all(|word| word == [0x78, 0x56, 0x34, 0x12]));
    // The owner has it, too.
    let space = pair.owner.create_space(Arc::default()).unwrap();
    let mut queue = space.create_queue(0).unwrap();
    let at = space.map(None, &pair.own, 0, GRANULE, Access::Read);
    let options = AllocateOptions::default();
    let page = pair.owner.allocate(MemoryKind::Host, GRANULE, options);
    let page = page.unwrap();
    let to = space.map(None, &page, 0, GRANULE, Access::ReadWrite);
    let (at, to) = (at.unwrap(), to.unwrap());
    queue
        .submit(Work::Memory(copy(to, at + GRANULE - 8, 8)))
        .unwrap();
    queue.finish().unwrap();
    assert_eq!(space.load_u64(to), Some(0x1234_5678_1234_5678));
    assert_eq!(queue.take_crossed(), Crossed::default());
}

#[test]
fn rows_are_copied() {
    if !is_child("apart::rows_are_copied", &SETTINGS) {
        return;
    }
    let mut pair = Pair::new();
    let theirs = pair.map(Access::ReadWrite);
    let (ours, back) = (pair.own_buffer(), pair.own_buffer());
    pair.rig.upload(ours.va, b"abcd..efgh..ijkl");
    pair.rig.upload(back.va, &[b'-'; 24]);
    let side = |address, pitch| RectSide {
        address,
        pitch,
        rows: 3,
    };
    let rows = |destination, source| {
        MemoryWork::CopyRect(CopyShape {
            destination,
            source,
            width: 4,
            height: 3,
            depth: 1,
        })
    };
    let there = rows(side(theirs, 16), side(ours.va, 6));
    pair.submit(there).unwrap();
    pair.submit(rows(side(back.va, 8), side(theirs, 16)))
        .unwrap();
    assert_eq!(pair.crossed().staged.bytes, 24);
    assert_eq!(pair.rig.download(back.va, 24), b"abcd----efgh----ijkl----");
}

#[test]
fn a_kernel_that_stores_there_loses_its_process_and_nothing_of_the_owner() {
    let name = "apart::a_kernel_that_stores_there_loses_its_process_and_nothing_of_the_owner";
    if !is_child(name, &SETTINGS) {
        return;
    }
    let mut pair = Pair::new();
    let theirs = pair.map(Access::ReadWrite);
    let module = pair.rig.load(special::PTX.as_bytes()).unwrap();
    let mut parameters = theirs.to_le_bytes().to_vec();
    parameters.extend_from_slice(&1_u32.to_le_bytes());
    let shape = ([1; 3], [1; 3]);
    pair.rig
        .launch(&module, special::WILD_STORE, shape, &parameters)
        .unwrap();
    let fault = pair.rig.wait().unwrap_err();
    assert_eq!(fault.status, Status::MemoryFault, "{fault}");
    assert!(pair.rig.cuda.is_poisoned());
}

#[test]
fn what_is_no_copy_between_the_two_is_refused_before_the_driver_sees_it() {
    let name = "apart::what_is_no_copy_between_the_two_is_refused_before_the_driver_sees_it";
    if !is_child(name, &SETTINGS) {
        return;
    }
    let mut pair = Pair::new();
    let theirs = pair.map(Access::ReadWrite);
    let again = pair.map(Access::ReadWrite);
    let host = pair.rig.buffer(MemoryKind::Host, GRANULE).va;
    for work in [
        MemoryWork::Fill {
            destination: theirs,
            bytes: 8,
            pattern: 1,
            width: 4,
        },
        MemoryWork::Release {
            address: theirs,
            value: 1,
        },
        MemoryWork::ReleaseHalf {
            address: theirs,
            value: 1,
        },
        MemoryWork::Timestamp { address: theirs },
    ] {
        let fault = pair.assert_refused(work);
        assert!(fault.text.contains("only copy packets"), "{fault}");
    }
    for work in [
        copy(theirs, host, 8),
        copy(host, theirs, 8),
        copy(theirs, again + 4096, 8),
    ] {
        let fault = pair.assert_refused(work);
        assert!(fault.text.contains("the session's own GPU"), "{fault}");
    }
    assert_eq!(pair.rig.space.load_u64(theirs), None);
    assert_eq!(pair.rig.space.fetch_u64(theirs, &|| false), None);
    assert_eq!(pair.crossed(), Crossed::default());
}

#[test]
fn a_read_only_import_is_never_the_destination() {
    let name = "apart::a_read_only_import_is_never_the_destination";
    if !is_child(name, &SETTINGS) {
        return;
    }
    let mut pair = Pair::new();
    let theirs = pair.map(Access::Read);
    let ours = pair.own_buffer().va;
    pair.submit(copy(ours, theirs, 64)).unwrap();
    pair.assert_refused(copy(theirs, ours, 64));
    pair.rig.space.set_access(theirs, Access::None).unwrap();
    pair.assert_refused(copy(ours, theirs, 64));
}

#[test]
fn recordings_do_not_hold_its_copies() {
    if !is_child("apart::recordings_do_not_hold_its_copies", &SETTINGS) {
        return;
    }
    let mut pair = Pair::new();
    let ours = pair.own_buffer().va;
    let theirs = pair.map(Access::ReadWrite);
    let record = |pair: &Pair, at| {
        let work = [Recorded::Memory(copy(at, ours, 64))];
        pair.rig.space.record(&work)
    };
    let refused = record(&pair, theirs).err().map(|error| error.status);
    assert_eq!(refused, Some(Status::MemoryFault));
    // Nor do they get it by what is mapped there afterwards.
    let other = pair.own_buffer();
    let recording = record(&pair, other.va).unwrap();
    pair.rig.space.unmap(other.va).unwrap();
    let access = Access::ReadWrite;
    let space = &pair.rig.space;
    let mapped = space.map(Some(other.va), &pair.imported, 0, GRANULE, access);
    assert_eq!(mapped.unwrap(), other.va);
    let recording = &recording;
    let fault = pair.rig.queue.submit(Work::Replay { recording });
    let fault = fault.expect_err("it must be refused");
    assert_eq!(fault.status, Status::MemoryFault, "{fault}");
}

#[test]
fn what_is_unmapped_stays_until_copies_before_that_are_done() {
    let name = "apart::what_is_unmapped_stays_until_copies_before_that_are_done";
    // A copy of a word takes a second.
    let slow = ("CAUSEWAY_STANDIN_HANG_WORD", "1");
    if !is_child(name, &[SETTINGS[0], SETTINGS[1], slow]) {
        return;
    }
    let mut pair = Pair::new();
    let ours = pair.own_buffer();
    let theirs = pair.map(Access::ReadWrite);
    let before = Arc::strong_count(&pair.imported);
    pair.submit(copy(ours.va + 8, ours.va, 8)).unwrap();
    pair.submit(copy(ours.va, theirs, 4096)).unwrap();
    pair.rig.space.unmap(theirs).unwrap();
    assert_eq!(Arc::strong_count(&pair.imported), before, "it is in use");
    pair.assert_refused(copy(ours.va, theirs, 4096));
    let begun = Instant::now();
    while Arc::strong_count(&pair.imported) == before {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
        let _ = pair.rig.queue.poll();
    }
    assert!(!pair.rig.cuda.is_poisoned());
}

#[test]
fn memory_of_a_gpu_that_the_run_does_not_have_is_refused() {
    let name = "apart::memory_of_a_gpu_that_the_run_does_not_have_is_refused";
    if !is_child(name, &SETTINGS) {
        return;
    }
    let pair = Pair::new();
    let exported = Exported {
        place: Place::Apart { gpu: 2 },
        ..pair.own.export().unwrap()
    };
    let refused = pair.rig.cuda.import(exported).err();
    assert_eq!(refused.map(|error| error.status), Some(Status::BadMemory));
}

#[test]
fn memory_of_a_peer_is_copied_directly_and_counted_so() {
    let name = "apart::memory_of_a_peer_is_copied_directly_and_counted_so";
    if !is_child(name, &SETTINGS[..1]) {
        return;
    }
    let (mut pair, theirs, ours) = Pair::of_peers();
    pair.submit(copy(theirs.va, ours.va, GRANULE)).unwrap();
    pair.rig.fill(theirs.va, 8, 5).unwrap();
    let crossed = pair.crossed();
    assert_eq!((crossed.direct.bytes, crossed.staged.bytes), (GRANULE, 0));
    assert_ne!(crossed.direct.ns, 0);
}

/// Of short copies, only the first has events here.
#[test]
fn copies_without_events_count_when_they_are_done() {
    const TEST: &str = "apart::copies_without_events_count_when_they_are_done";
    if !is_child(TEST, &SETTINGS[..1]) {
        return;
    }
    let (mut pair, theirs, ours) = Pair::of_peers();
    pair.submit(copy(theirs.va, ours.va, 4096)).unwrap();
    assert_eq!(pair.crossed().direct.bytes, 4096);
    let flag = endless(&mut pair.rig);
    for _ in 0..3 {
        pair.submit(copy(theirs.va, ours.va, 4096)).unwrap();
        assert_eq!(pair.rig.queue.take_crossed().direct.bytes, 0, "not done");
    }
    let end = host(&flag.memory);
    end.0.store_u64(0, 1, Ordering::Release).unwrap();
    let direct = pair.crossed().direct;
    assert_eq!(direct.bytes, 3 * 4096);
    assert_ne!(direct.ns, 0);
}
