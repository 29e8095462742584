//! Records as a guest would write them, good and bad.

mod comparisons;
mod marks;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_bench_workloads::Line;
use causeway_memory::{PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_testdev_records as wire;
use causeway_testdev_records::{Mark, PhasePath, PortStore, RecordHeader, RecordKind, Totals};
use causeway_vmm::aperture::Aperture;
use causeway_vmm::bus::BusDevice;
use causeway_vmm::exit_counts::VmExits;
use causeway_vmm::hypervisor::NoGuest;
use causeway_vmm::memory::GuestRam;
use proptest::prelude::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::*;
use crate::recorder::ticks;

const AT: u64 = 0x1000;
const APERTURE_BYTES: u64 = 2 << 20;

/// A recorder, and the RAM and aperture of its guest.
struct Guest {
    recorder: Recorder,
    ram: Arc<GuestRam>,
}

impl std::ops::Deref for Guest {
    type Target = Recorder;

    fn deref(&self) -> &Recorder {
        &self.recorder
    }
}

fn guest() -> Guest {
    guest_with(aperture(), RunContext::default())
}

fn aperture() -> Arc<Aperture> {
    Arc::new(Aperture::new(APERTURE_BYTES, Arc::new(NoGuest)).unwrap())
}

fn guest_with(aperture: Arc<Aperture>, context: RunContext) -> Guest {
    guest_that_stops(aperture, context, &Arc::default())
}

/// A guest whose VM must stop when `stop` is set.
fn guest_that_stops(aperture: Arc<Aperture>, context: RunContext, stop: &Arc<AtomicBool>) -> Guest {
    let ram = Arc::new(GuestRam::new("test", 8 << 20, false).unwrap());
    let memory = RecordMemory {
        ram: Arc::clone(&ram),
        aperture,
    };
    let exits = VmExits::default();
    let recorder = Recorder::new(memory, context, exits, 1_000_000, Arc::clone(stop));
    Guest { recorder, ram }
}

fn header<T>(kind: RecordKind) -> RecordHeader {
    RecordHeader {
        kind: kind as u32,
        bytes: size_of::<T>() as u32,
    }
}

/// Writes a record where a guest would, hands it over, and reads it back.
fn hand<T: FromBytes + IntoBytes + Immutable>(guest: &Guest, record: &T) -> (Recorded, T) {
    guest.ram.write(AT, record.as_bytes()).unwrap();
    let recorded = guest.record(AT as u32);
    let mut bytes = vec![0; size_of::<T>()];
    guest.ram.read(AT, &mut bytes).unwrap();
    let reply = T::read_from_bytes(&bytes).ok();
    (recorded, reply.expect("the buffer has the record's size"))
}

fn figure(value: f64) -> wire::Figure {
    let mut record = wire::Figure {
        header: header::<wire::Figure>(RecordKind::Figure),
        value_bits: value.to_bits(),
        name_bytes: 5,
        unit_bytes: 200,
        name: [0; 64],
        unit: [b' '; 16],
    };
    record.name[..5].copy_from_slice(b"store");
    record.unit[..4].copy_from_slice(b"GB/s");
    record
}

fn mail(kind: RecordKind, mailbox: u32, data: u8) -> wire::Mail {
    wire::Mail {
        header: header::<wire::Mail>(kind),
        mailbox,
        wait: 0,
        data: [data; 64],
    }
}

#[test]
fn figures_are_kept_and_nonsense_is_not() {
    let guest = guest();
    assert_eq!(hand(&guest, &figure(0.97)).0, Recorded::Done);
    assert!(matches!(
        hand(&guest, &figure(f64::NAN)).0,
        Recorded::Refused(RecordError::Field { .. })
    ));
    let [only] = &guest.report().figures[..] else {
        panic!("one figure");
    };
    assert_eq!((only.name.as_str(), only.value), ("store", 0.97));
    assert_eq!(only.unit.trim_end(), "GB/s");
    for _ in 0..FIGURES_MAX {
        let _ = hand(&guest, &figure(1.0)).0;
    }
    assert_eq!(guest.report().figures.len(), FIGURES_MAX);
}

#[test]
fn mail_goes_through_mailboxes() {
    let guest = guest();
    let (_, reply) = hand(&guest, &mail(RecordKind::Fetch, 3, 9));
    assert_eq!((reply.wait, reply.data), (0, [0; 64]));
    assert_eq!(
        hand(&guest, &mail(RecordKind::Post, 3, 5)).0,
        Recorded::Done
    );
    let (_, reply) = hand(&guest, &mail(RecordKind::Fetch, 3, 0));
    assert_eq!((reply.wait, reply.data), (1, [5; 64]));
    for kind in [RecordKind::Post, RecordKind::Fetch] {
        assert!(matches!(
            hand(&guest, &mail(kind, 64, 0)).0,
            Recorded::Refused(_)
        ));
    }
}

#[test]
fn a_run_without_mailboxes_takes_and_gives_no_mail() {
    let context = RunContext {
        mailboxes: None,
        ..RunContext::default()
    };
    let guest = guest_with(aperture(), context);
    for kind in [RecordKind::Post, RecordKind::Fetch] {
        let (recorded, reply) = hand(&guest, &mail(kind, 3, 5));
        assert!(matches!(recorded, Recorded::Refused(RecordError::Mail)));
        assert_eq!(reply.data, [5; 64], "nothing is answered");
    }
}

#[test]
fn the_first_panic_is_the_one_reported() {
    let guest = guest();
    let mut record = wire::Panic {
        header: header::<wire::Panic>(RecordKind::Panic),
        line: 42,
        file_bytes: 7,
        message_bytes: u32::MAX,
        reserved: 0,
        file: [0; 128],
        message: [b'm'; 256],
    };
    record.file[..7].copy_from_slice(b"main.rs");
    assert_eq!(hand(&guest, &record).0, Recorded::Done);
    record.line = 43;
    assert_eq!(hand(&guest, &record).0, Recorded::Done);
    let panic = guest.report().panic.unwrap();
    assert_eq!((panic.file.as_str(), panic.line), ("main.rs", 42));
    assert_eq!(panic.message.len(), 256);
}

#[test]
fn baselines_run_over_ram_and_report_unmapped_memory() {
    let guest = guest();
    let mut request = wire::Baseline {
        header: header::<wire::Baseline>(RecordKind::Baseline),
        kind: wire::Loop::Store as u32,
        passes: 2,
        address: 0x20_0000,
        bytes: 4096,
        ticks: 0,
    };
    let (recorded, reply) = hand(&guest, &request);
    assert_eq!(recorded, Recorded::Done);
    assert_ne!(reply.ticks, 0);
    let mut word = [0; 8];
    guest.ram.read(0x20_0000 + 4088, &mut word).unwrap();
    assert_eq!(u64::from_le_bytes(word), 64);
    request.address = 1 << 40;
    request.ticks = 7;
    assert_eq!(hand(&guest, &request).1.ticks, 0);
}

#[test]
fn phases_begin_and_end_by_record() {
    let guest = guest();
    let mut begin = wire::PhaseBegin {
        header: header::<wire::PhaseBegin>(RecordKind::PhaseBegin),
        path: wire::PhasePath::Data as u32,
        name_bytes: 6,
        name: [0; 48],
    };
    begin.name[..6].copy_from_slice(b"stores");
    let end = wire::PhaseEnd {
        header: header::<wire::PhaseEnd>(RecordKind::PhaseEnd),
        operations: 100,
        bytes: 800,
        doorbells: 0,
    };
    assert!(matches!(hand(&guest, &end).0, Recorded::Refused(_)));
    assert_eq!(hand(&guest, &begin).0, Recorded::Done);
    assert_eq!(hand(&guest, &end).0, Recorded::Done);
    let phase = &guest.report().phases[0];
    assert_eq!((phase.name.as_str(), phase.operations), ("stores", 100));
    begin.path = 3;
    assert!(matches!(hand(&guest, &begin).0, Recorded::Refused(_)));
}

#[test]
fn records_must_lie_in_ram_and_have_their_size() {
    let guest = guest();
    for address in [0xffff_fff8, (8 << 20) - 4, 0x1004] {
        assert!(matches!(guest.record(address), Recorded::Refused(_)));
    }
    let mut park = header::<RecordHeader>(RecordKind::Park);
    assert_eq!(hand(&guest, &park).0, Recorded::Park);
    park.bytes = 9;
    assert!(matches!(
        hand(&guest, &park).0,
        Recorded::Refused(RecordError::Bytes { wanted: 8, .. })
    ));
    park.kind = 99;
    assert!(matches!(
        hand(&guest, &park).0,
        Recorded::Refused(RecordError::Kind { kind: 99 })
    ));
    // The head fits at the very end of RAM, the rest would not.
    let end = (8 << 20) - 8;
    let head = header::<wire::Panic>(RecordKind::Panic);
    guest.ram.write(end, head.as_bytes()).unwrap();
    assert!(matches!(
        guest.record(end as u32),
        Recorded::Refused(RecordError::NotRam(_))
    ));
}

/// Where two pages are in the aperture, which gives the highest room first.
const PAGES: u64 = APERTURE_BYTES - 8192;

/// Places two pages of host memory in an aperture, of which the second may only be read.
fn two_pages(memory: SharedMemory) -> Arc<Aperture> {
    let aperture = aperture();
    let memory = Arc::new(memory).into();
    for (page, access) in [(4096, Access::Read), (0, Access::ReadWrite)] {
        let offset = aperture.place(&memory, page, 4096, access).unwrap();
        assert_eq!(offset, PAGES + page);
    }
    aperture
}

#[test]
fn records_in_the_aperture_are_acted_upon_where_the_guest_may_write() {
    let small = PageSize::Small;
    let memory = SharedMemory::new("test", 8192, small).unwrap();
    let mapping = memory.map(0, 8192, Access::ReadWrite).unwrap();
    let context = RunContext {
        vm: 3,
        vms: 5,
        ..RunContext::default()
    };
    let guest = guest_with(two_pages(memory), context);
    let identity = wire::Identity {
        header: header::<wire::Identity>(RecordKind::Identity),
        vm: 0,
        vms: 0,
    };
    mapping.write(192, identity.as_bytes()).unwrap();
    let first = (PAGES / wire::RECORD_UNIT_BYTES) as u32;
    assert_eq!(guest.record_in_aperture(first + 3), Recorded::Done);
    let mut reply = [0; size_of::<wire::Identity>()];
    mapping.read(192, &mut reply).unwrap();
    let reply = wire::Identity::read_from_bytes(&reply).unwrap();
    assert_eq!((reply.vm, reply.vms), (3, 5));

    mapping.write(4096, identity.as_bytes()).unwrap();
    // Read-only; across the end of the mapping; nothing there.
    for units in [first + 64, first + 127, first + 63, 1 << 20, u32::MAX] {
        assert!(
            matches!(
                guest.record_in_aperture(units),
                Recorded::Refused(RecordError::NotMapped { .. } | RecordError::Kind { .. })
            ),
            "{units}"
        );
    }
    mapping.read(4096 + 8, &mut [0; 8]).unwrap();
    let word = mapping.load_u64(4096 + 8, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(word, Ok(0), "nothing was written to what is read-only");
}

proptest! {
    #[test]
    fn any_record_is_taken_or_refused(
        kind in 0u32..10,
        bytes in prop::sample::select(vec![8u32, 32, 40, 64, 80, 104, 408, 0, u32::MAX]),
        body in prop::collection::vec(any::<u8>(), 400),
        address in prop::sample::select(vec![AT as u32, 0, 8, (8 << 20) - 8, u32::MAX]),
    ) {
        // A random fetch would wait, and a random baseline run.
        prop_assume!(kind != RecordKind::Fetch as u32 && kind != RecordKind::Baseline as u32);
        let guest = guest();
        let head = RecordHeader { kind, bytes };
        guest.ram.write(AT, head.as_bytes()).unwrap();
        guest.ram.write(AT + 8, &body).unwrap();
        let _ = guest.record(address);
    }
}
