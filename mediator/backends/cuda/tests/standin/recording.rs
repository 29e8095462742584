use std::sync::Arc;

use causeway_mediator::backend::{Launch, LaunchShape, MemoryWork, Recorded, Recording, Work};
use causeway_protocol::message::{MemoryKind, Status};

use crate::support::{Buffer, GRANULE, Rig, host, is_child};

const ADD_ONE: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 to)
{
    .reg .u64 %to;
    .reg .u32 %value;
    ld.param.u64 %to, [to];
    ld.global.u32 %value, [%to];
    add.u32 %value, %value, 1;
    st.global.u32 [%to], %value;
    ret;
}
";

fn record(rig: &Rig, memory: &Buffer, fence: &Buffer) -> Arc<dyn Recording> {
    let module = rig.load(ADD_ONE.as_bytes()).unwrap();
    let mut work = vec![Recorded::Memory(MemoryWork::Fill {
        destination: memory.va,
        bytes: 8,
        pattern: 100,
        width: 4,
    })];
    for _ in 0..10 {
        let kernel = module.kernel("add_one").unwrap();
        let shape = LaunchShape {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
        };
        let parameters = memory.va.to_le_bytes();
        work.push(Launch::new(&kernel, shape, &parameters).unwrap().into());
    }
    work.push(Recorded::Memory(MemoryWork::Copy {
        destination: fence.va + 64,
        source: memory.va,
        bytes: 8,
    }));
    work.push(Recorded::Memory(MemoryWork::Timestamp {
        address: fence.va + 8,
    }));
    work.push(Recorded::Memory(MemoryWork::Release {
        address: fence.va,
        value: 77,
    }));
    // The module goes; the recording holds its kernels.
    rig.space.record(&work).unwrap()
}

fn replay(rig: &mut Rig, recording: &Arc<dyn Recording>, fence: &Buffer) {
    let view = host(&fence.memory);
    let order = std::sync::atomic::Ordering::SeqCst;
    for offset in [0, 8, 64] {
        view.0.store_u64(offset, 0, order).unwrap();
    }
    rig.queue.submit(Work::Replay { recording }).unwrap();
    rig.queue.finish().unwrap();
    assert_eq!(view.word(0), 77);
    assert_eq!(view.word(64), 100 << 32 | 110, "all of it, in order");
    assert_ne!(view.word(8), 0);
}

#[test]
fn a_recording_is_replayed_for_as_long_as_its_memory_is_mapped() {
    if !is_child(
        "recording::a_recording_is_replayed_for_as_long_as_its_memory_is_mapped",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let memory = rig.buffer(MemoryKind::Device, GRANULE);
    let fence = rig.buffer(MemoryKind::Host, GRANULE);
    let recording = record(&rig, &memory, &fence);
    assert!(recording.memory_bytes() > 0);
    for _ in 0..3 {
        replay(&mut rig, &recording, &fence);
    }
    // What others lose does not matter.
    let other = rig.buffer(MemoryKind::Device, GRANULE);
    rig.free(other);
    replay(&mut rig, &recording, &fence);
    rig.free(memory);
    let fault = rig.queue.submit(Work::Replay {
        recording: &recording,
    });
    assert_eq!(fault.unwrap_err().status, Status::MemoryFault);
    rig.renew_queue();
    drop(recording);
    let nothing = rig.space.record(&[]).unwrap();
    let empty = Work::Replay {
        recording: &nothing,
    };
    rig.queue.submit(empty).unwrap();
    rig.queue.finish().unwrap();
}

#[test]
fn kernels_store_fences_where_streams_cannot() {
    if !is_child(
        "recording::kernels_store_fences_where_streams_cannot",
        &[("CAUSEWAY_STANDIN_ATTRIBUTES", "122=0")],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let memory = rig.buffer(MemoryKind::Device, GRANULE);
    let fence = rig.buffer(MemoryKind::Host, GRANULE);
    let recording = record(&rig, &memory, &fence);
    replay(&mut rig, &recording, &fence);
}

#[test]
fn addresses_that_are_not_mapped_are_not_recorded() {
    if !is_child(
        "recording::addresses_that_are_not_mapped_are_not_recorded",
        &[],
    ) {
        return;
    }
    let rig = Rig::new();
    let secret = vec![0_u64; 64];
    let memory = rig.buffer(MemoryKind::Device, GRANULE);
    let copy = |destination, source| {
        Recorded::Memory(MemoryWork::Copy {
            destination,
            source,
            bytes: 64,
        })
    };
    let local = secret.as_ptr() as u64;
    for work in [
        copy(memory.va, local),
        copy(local, memory.va),
        Recorded::Memory(MemoryWork::Release {
            address: local,
            value: 1,
        }),
    ] {
        let refused = rig.space.record(&[work]).err().unwrap();
        assert_eq!(refused.status, Status::MemoryFault);
    }
    // Others go on.
    rig.space
        .record(&[copy(memory.va, memory.va + 64)])
        .unwrap();
}
