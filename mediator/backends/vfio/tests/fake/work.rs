//! Work that the CPU does on the device's memory.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_mediator::backend::{
    AllocateOptions, Backend, Fault, Memory, MemoryWork, Queue, Recorded, Space, Work,
};
use causeway_memory::{PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{LoadModule, LoadModuleReply, MemoryKind, Opcode, Status};
use causeway_protocol::registers::features;

use crate::rig::{PAGE, Rig};

/// An address space with a queue.
struct Desk {
    rig: Rig,
    space: Arc<dyn Space>,
    queue: Box<dyn Queue>,
    stop: Arc<AtomicBool>,
}

impl Desk {
    fn new() -> Self {
        let rig = Rig::new(64 * PAGE);
        let stop = Arc::new(AtomicBool::new(false));
        let space = rig.backend.create_space(Arc::clone(&stop)).unwrap();
        let queue = space.create_queue(0).unwrap();
        Self {
            rig,
            space,
            queue,
            stop,
        }
    }

    fn buffer(&self, kind: MemoryKind, bytes: u64) -> (Arc<dyn Memory>, u64) {
        let options = AllocateOptions::default();
        let memory = self.rig.backend.allocate(kind, bytes, options).unwrap();
        let va = self.map(&memory, bytes, Access::ReadWrite);
        (memory, va)
    }

    fn map(&self, memory: &Arc<dyn Memory>, bytes: u64, access: Access) -> u64 {
        self.space.map(None, memory, 0, bytes, access).unwrap()
    }

    fn copy(&mut self, destination: u64, source: u64, bytes: u64) -> Result<(), Fault> {
        self.queue.submit(Work::Memory(MemoryWork::Copy {
            destination,
            source,
            bytes,
        }))
    }

    fn fill(&mut self, destination: u64, bytes: u64, pattern: u32, width: u32) {
        let work = Work::Memory(MemoryWork::Fill {
            destination,
            bytes,
            pattern,
            width,
        });
        self.queue.submit(work).unwrap();
    }

    /// What is at an address, by way of host memory.
    fn bytes(&mut self, va: u64, bytes: u64) -> Vec<u8> {
        let pages = bytes.next_multiple_of(PAGE);
        let (memory, host) = self.buffer(MemoryKind::Host, pages);
        self.copy(host, va, bytes).unwrap();
        let backing = memory.backing().unwrap();
        let (shared, offset) = backing.host().unwrap();
        let mut seen = vec![0; bytes as usize];
        let view = shared.map(offset, pages, Access::Read).unwrap();
        view.read(0, &mut seen).unwrap();
        self.space.unmap(host).unwrap();
        seen
    }
}

#[test]
fn copies_and_fills_are_right_whatever_the_memory_and_the_alignment() {
    const KINDS: [MemoryKind; 3] = [
        MemoryKind::Device,
        MemoryKind::DeviceVisible,
        MemoryKind::Host,
    ];
    let mut desk = Desk::new();
    for from in KINDS {
        for to in KINDS {
            let (source, destination) = (desk.buffer(from, 4 * PAGE), desk.buffer(to, 4 * PAGE));
            desk.fill(source.1, 4 * PAGE, 0x0403_0201, 4);
            desk.fill(source.1 + 6, 10, 0xbbaa, 2);
            for (at, start, bytes) in [(0, 0, 4 * PAGE), (3, 5, 2 * PAGE + 7), (17, 2, 13)] {
                desk.fill(destination.1, 4 * PAGE, 0x77, 1);
                let wanted = desk.bytes(source.1 + start, bytes);
                desk.copy(destination.1 + at, source.1 + start, bytes)
                    .unwrap();
                let seen = desk.bytes(destination.1, 4 * PAGE);
                let (at, end) = (at as usize, (at + bytes) as usize);
                assert!(seen[at..end] == wanted[..], "{from:?} to {to:?}");
                let beside = seen[..at].iter().chain(&seen[end..]);
                assert!(beside.clone().all(|byte| *byte == 0x77));
            }
            let head = desk.bytes(source.1, 20);
            assert_eq!(
                head,
                [
                    1, 2, 3, 4, 1, 2, 0xaa, 0xbb, 0xaa, 0xbb, 0xaa, 0xbb, 0xaa, 0xbb, 0xaa, 0xbb,
                    1, 2, 3, 4
                ]
            );
            desk.space.unmap(source.1).unwrap();
            desk.space.unmap(destination.1).unwrap();
        }
    }
}

#[test]
fn fences_timestamps_and_recordings_work_on_memory_of_the_device() {
    let mut desk = Desk::new();
    let (_memory, va) = desk.buffer(MemoryKind::Device, PAGE);
    let recorded = [
        Recorded::Memory(MemoryWork::Fill {
            destination: va + 64,
            bytes: 8,
            pattern: 9,
            width: 4,
        }),
        Recorded::Memory(MemoryWork::Timestamp { address: va + 8 }),
        Recorded::Memory(MemoryWork::Copy {
            destination: va + 72,
            source: va + 64,
            bytes: 8,
        }),
        Recorded::Memory(MemoryWork::Release {
            address: va,
            value: 7,
        }),
    ];
    let recording = desk.space.record(&recorded).unwrap();
    let mut last = 0;
    for _ in 0..2 {
        let recording = &recording;
        desk.queue.submit(Work::Replay { recording }).unwrap();
        assert_eq!(desk.space.load_u64(va), Some(7));
        assert_eq!(desk.space.load_u64(va + 72), Some(0x9_0000_0009));
        let now = desk.space.load_u64(va + 8).unwrap();
        assert!(now >= last);
        last = now;
    }
    assert_eq!(desk.space.load_u64(va + 1), None, "not aligned");
    assert_eq!(desk.space.load_u64(va + PAGE), None, "not mapped");
}

#[test]
fn work_outside_its_mappings_is_a_fault_with_the_address() {
    let mut desk = Desk::new();
    let (memory, va) = desk.buffer(MemoryKind::Device, PAGE);
    let readable = desk.map(&memory, PAGE, Access::Read);
    let fault = desk.copy(readable, va, 64).unwrap_err();
    assert_eq!(fault.status, Status::MemoryFault);
    assert!(fault.text.contains(&format!("{readable:#x}")), "{fault}");
    assert_eq!(
        desk.copy(va, va, 1).unwrap_err(),
        fault,
        "the queue is dead"
    );
}

#[test]
fn guest_ram_is_used_in_place() {
    let mut desk = Desk::new();
    let ram = Arc::new(SharedMemory::new("ram", 8 * PAGE, PageSize::Small).unwrap());
    let view = ram.map(0, 8 * PAGE, Access::ReadWrite).unwrap();
    let part = desk
        .rig
        .backend
        .register_ram(Arc::clone(&ram), 2 * PAGE, PAGE)
        .unwrap();
    let part = desk.map(&part, PAGE, Access::ReadWrite);
    let (_memory, va) = desk.buffer(MemoryKind::Device, PAGE);
    view.write(2 * PAGE, b"causeway").unwrap();
    desk.copy(va, part, 8).unwrap();
    desk.copy(part + 100, va, 8).unwrap();
    let mut seen = [0; 8];
    view.read(2 * PAGE + 100, &mut seen).unwrap();
    assert_eq!(&seen, b"causeway");
}

#[test]
fn work_returns_early_when_its_session_ends() {
    let mut desk = Desk::new();
    let (_memory, va) = desk.buffer(MemoryKind::Device, 4 * PAGE);
    desk.stop.store(true, std::sync::atomic::Ordering::SeqCst);
    desk.fill(va, 4 * PAGE, 1, 4);
    assert_eq!(desk.space.load_u64(va), Some(0), "nothing was begun");
}

#[test]
fn kernels_are_refused_with_the_way_out() {
    let rig = Rig::new(4 * PAGE);
    assert_eq!(rig.backend.attributes().features & features::KERNELS, 0);
    let guest = rig.guest();
    let space = guest.space();
    guest.host.ram_mapping().write(0, b"any module").unwrap();
    let request = LoadModule {
        space,
        image_address: 0,
        image_bytes: 10,
        log_address: PAGE,
        log_bytes: 200,
    };
    let refused = guest.ask::<_, LoadModuleReply>(Opcode::LoadModule, &request);
    assert_eq!(refused.err(), Some((Status::Unsupported, 0)));
    let mut log = [0; 200];
    guest.host.ram_mapping().read(PAGE, &mut log).unwrap();
    let log = String::from_utf8_lossy(&log);
    assert!(log.contains("use --gpu software or cuda"), "{log}");
}

#[test]
fn nothing_of_the_device_leaves_the_process() {
    let rig = Rig::new(4 * PAGE);
    let options = AllocateOptions::default();
    for kind in [MemoryKind::Device, MemoryKind::DeviceVisible] {
        let memory = rig.backend.allocate(kind, PAGE, options).unwrap();
        let refused = memory.export().unwrap_err();
        assert_eq!(refused.status, Status::Unsupported);
    }
}
