//! Memory of a device that cannot be a peer: copies reach it, from and to memory of the own device,
//! and nothing else does.

mod support;

use std::sync::Arc;

use causeway_mediator::backend::{
    AllocateOptions, Backend, CopyShape, Crossed, Exported, Fault, Memory, MemoryWork, Place,
    Recorded, Space, Work,
};
use causeway_memory::PAGE_BYTES;
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::packet::RectSide;
use support::{Device, kernel};

/// More than the buffer between the devices, and no multiple of it.
const BYTES: u64 = (600 << 10) + 24;

/// Memory of one device, as a session on another has it.
struct Import {
    va: u64,
    memory: Arc<dyn Memory>,
}

/// Two devices: the first has memory that the second has mapped with these rights.
fn import(user: &mut Device, place: Place, access: Access) -> Import {
    let owner = Device::new(1);
    let bytes = BYTES.next_multiple_of(PAGE_BYTES);
    let options = AllocateOptions::default();
    let memory = owner.backend.allocate(MemoryKind::Device, bytes, options);
    let exported = Exported {
        place,
        ..memory.unwrap().export().unwrap()
    };
    let memory = user.backend.import(exported).unwrap();
    assert_eq!(memory.place(), place);
    let va = user.map(&memory, access);
    Import { va, memory }
}

const APART: Place = Place::Apart { gpu: 1 };

fn apart(user: &mut Device, access: Access) -> Import {
    import(user, APART, access)
}

fn copy(destination: u64, source: u64, bytes: u64) -> MemoryWork {
    MemoryWork::Copy {
        destination,
        source,
        bytes,
    }
}

fn submit(device: &mut Device, work: MemoryWork) -> Result<(), Fault> {
    device.queue = device.space.create_queue(0).unwrap();
    device.queue.submit(Work::Memory(work))
}

fn assert_refused(device: &mut Device, work: MemoryWork) -> Fault {
    let fault = submit(device, work).expect_err("it must be refused");
    assert_eq!(fault.status, Status::MemoryFault, "{work:?}: {fault}");
    assert_eq!(device.queue.take_crossed(), Crossed::default());
    fault
}

/// Bytes that differ.
fn pattern() -> Vec<u8> {
    (0..BYTES).map(|at| (at * 7 + (at >> 11)) as u8).collect()
}

#[test]
fn copies_go_there_and_back_and_are_counted() {
    let mut device = Device::new(1);
    let theirs = apart(&mut device, Access::ReadWrite);
    let [ours, back] = [(); 2].map(|()| device.buffer(BYTES, Access::ReadWrite));
    ours.write(&pattern());
    submit(&mut device, copy(theirs.va, ours.va, BYTES)).unwrap();
    device
        .queue
        .submit(Work::Memory(copy(back.va, theirs.va, BYTES)))
        .unwrap();
    assert!(back.bytes(BYTES as usize) == pattern());
    let crossed = device.queue.take_crossed();
    assert_eq!(crossed.staged.bytes, 2 * BYTES);
    assert_ne!(crossed.staged.ns, 0);
    assert_eq!(crossed.direct.bytes, 0);
}

#[test]
fn memory_of_a_peer_is_copied_directly_and_counted_so() {
    let mut device = Device::new(1);
    let theirs = import(&mut device, Place::Peer, Access::ReadWrite);
    let ours = device.buffer(BYTES, Access::ReadWrite);
    submit(&mut device, copy(theirs.va, ours.va, BYTES)).unwrap();
    let crossed = device.queue.take_crossed();
    assert_eq!((crossed.direct.bytes, crossed.staged.bytes), (BYTES, 0));
}

#[test]
fn rows_are_copied_and_what_is_between_them_stays() {
    let mut device = Device::new(1);
    let theirs = apart(&mut device, Access::ReadWrite);
    let [ours, back] = [(); 2].map(|()| device.buffer(64, Access::ReadWrite));
    ours.write(b"abcd..efgh..ijkl");
    back.write(&[b'-'; 24]);
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
    let there = rows(side(theirs.va, 16), side(ours.va, 6));
    submit(&mut device, there).unwrap();
    submit(&mut device, rows(side(back.va, 8), side(theirs.va, 16))).unwrap();
    assert_eq!(device.queue.take_crossed().staged.bytes, 12);
    assert_eq!(back.bytes(24), b"abcd----efgh----ijkl----");
}

#[test]
fn a_kernel_that_loads_or_stores_there_faults() {
    for access in [
        "ld.global.u32 %r1, [%in]; st.global.u32 [%o], %r1;",
        "mov.u32 %r1, 5; st.global.u32 [%in], %r1;",
        "mov.u32 %r1, 5; atom.global.add.u32 %r2, [%in], %r1;",
    ] {
        let mut device = Device::new(1);
        let theirs = apart(&mut device, Access::ReadWrite);
        let module = device.load(&kernel("", access)).unwrap();
        let output = device.buffer(64, Access::ReadWrite);
        let parameters = [output.va.to_le_bytes(), theirs.va.to_le_bytes()].concat();
        let fault = device.launch(&module, "k", ([1; 3], [1; 3], 0), &parameters);
        let fault = fault.expect_err(access);
        assert_eq!(fault.status, Status::MemoryFault, "{access}: {fault}");
    }
}

#[test]
fn fills_fences_and_waits_do_not_reach_it() {
    let mut device = Device::new(1);
    let Import { va, .. } = apart(&mut device, Access::ReadWrite);
    for work in [
        MemoryWork::Fill {
            destination: va,
            bytes: 8,
            pattern: 1,
            width: 4,
        },
        MemoryWork::Release {
            address: va,
            value: 1,
        },
        MemoryWork::ReleaseHalf {
            address: va,
            value: 1,
        },
        MemoryWork::Timestamp { address: va },
    ] {
        assert_refused(&mut device, work);
    }
    assert_eq!(device.space.load_u64(va), None);
}

#[test]
fn the_right_of_the_mapping_is_that_of_copies() {
    let mut device = Device::new(1);
    let Import { va, memory } = apart(&mut device, Access::Read);
    let ours = device.buffer(64, Access::ReadWrite);
    submit(&mut device, copy(ours.va, va, 64)).unwrap();
    assert_refused(&mut device, copy(va, ours.va, 64));
    device.space.set_access(va, Access::ReadWrite).unwrap();
    submit(&mut device, copy(va, ours.va, 64)).unwrap();
    device.space.set_access(va, Access::None).unwrap();
    assert_refused(&mut device, copy(ours.va, va, 64));
    // A right that comes back is not one for kernels.
    device.space.set_access(va, Access::ReadWrite).unwrap();
    assert_eq!(device.space.load_u64(va), None);
    device.space.unmap(va).unwrap();
    assert_refused(&mut device, copy(ours.va, va, 64));
    drop(memory);
}

#[test]
fn the_other_side_is_memory_of_the_own_device() {
    let mut device = Device::new(1);
    let theirs = apart(&mut device, Access::ReadWrite);
    let others = [
        apart(&mut device, Access::ReadWrite).va,
        import(&mut device, Place::Peer, Access::ReadWrite).va,
        {
            let options = AllocateOptions::default();
            let host = device.backend.allocate(MemoryKind::Host, 4096, options);
            device.map(&host.unwrap(), Access::ReadWrite)
        },
    ];
    for other in others {
        for work in [copy(theirs.va, other, 64), copy(other, theirs.va, 64)] {
            let fault = assert_refused(&mut device, work);
            assert!(fault.text.contains("the session's own GPU"), "{fault}");
        }
    }
}

#[test]
fn recordings_do_not_reach_it_and_later_work_does() {
    let mut device = Device::new(1);
    let theirs = apart(&mut device, Access::ReadWrite);
    let ours = device.buffer(64, Access::ReadWrite);
    let pieces = [Recorded::Memory(copy(theirs.va, ours.va, 64))];
    let recording = device.space.record(&pieces).unwrap();
    let recording = &recording;
    let fault = device.queue.submit(Work::Replay { recording }).unwrap_err();
    assert_eq!(fault.status, Status::MemoryFault, "{fault}");
    submit(&mut device, copy(theirs.va, ours.va, 64)).unwrap();
}
