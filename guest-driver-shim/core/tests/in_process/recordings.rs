//! Recordings through the driver.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_kernels::special;
use causeway_mediator::{Mediator, Quota};
use causeway_shim::protocol::packet::UNIT_BYTES;
use causeway_shim::protocol::registers::features;
use causeway_shim::{
    Buffer, CommandBuffer, Device, LaunchShape, MemoryKind, Patience, RecordError, Recorder, Status,
};

use crate::transport::Machine;
use crate::{load, mediator};

const SHAPE: LaunchShape = LaunchShape {
    grid: [1; 3],
    block: [32, 1, 1],
    shared_bytes: 0,
};

#[test]
fn a_recording_outlives_its_module_and_costs_a_packet_each_time() {
    let machine = Machine::new(&mediator(), Quota::default(), "recording");
    let device = Device::open(&machine).unwrap();
    assert_ne!(device.features() & features::RECORDING, 0);
    assert_eq!(device.minor_version(), 5);
    let space = device.create_space().unwrap();
    let memory = Buffer::new(&device, &space, 8192, MemoryKind::Host).unwrap();
    let fence = memory.fence(4096).unwrap();
    let module = load(&machine, &space, special::PTX);
    let recording = {
        let spin = module.kernel(special::SPIN).unwrap();
        let parameters = spin.parameters().unwrap();
        let parameters = parameters.with(0, &1_u32).unwrap();
        let (window, address) = machine.recording_ram(64 << 10);
        let mut recorder = Recorder::new(window, address);
        assert_eq!(
            recorder.launch(SHAPE, &parameters),
            Err(RecordError::ParameterMissing { index: 1 })
        );
        let parameters = parameters.with(1, &memory.gpu.address()).unwrap();
        for _ in 0..10 {
            recorder.launch(SHAPE, &parameters).unwrap();
        }
        recorder.nop().unwrap();
        recorder
            .copy(memory.gpu.address() + 1024, memory.gpu.address(), 128)
            .unwrap();
        recorder
            .fill(memory.gpu.address() + 2048, 64, 0x5555_aaaa)
            .unwrap();
        recorder.timestamp(memory.gpu.address() + 4104).unwrap();
        assert_eq!(recorder.bytes(), 24 * UNIT_BYTES);
        recorder.record(&space).unwrap()
    };
    module.unload().unwrap();
    let mut commands = CommandBuffer::new(&space, 256).unwrap();
    commands.release(&fence, 1).unwrap();
    commands.submit();
    commands.wait(&fence, 1, Patience::default()).unwrap();
    let before = machine.exits.load(Ordering::Relaxed);
    for _ in 0..50 {
        commands.replay(&recording).unwrap();
    }
    commands.release(&fence, 2).unwrap();
    commands.submit();
    commands.wait(&fence, 2, Patience::SPIN).unwrap();
    assert_eq!(machine.exits.load(Ordering::Relaxed), before);
    for thread in 0..32 {
        let want = special::spun(0, 500);
        assert_eq!(memory.cpu.load_u32(4 * thread), Ok(want));
        assert_eq!(memory.cpu.load_u32(1024 + 4 * thread), Ok(want));
    }
    assert_eq!(memory.cpu.load_u32(2108), Ok(0x5555_aaaa));
    assert_ne!(memory.cpu.load_u64(4104), Ok(0));
    recording.destroy().unwrap();
}

fn a_recorder_knows_its_room_and_a_refusal_its_packet(mediator: &Arc<Mediator>) {
    let machine = Machine::new(mediator, Quota::default(), "refused recording");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let (window, address) = machine.recording_ram(3 * UNIT_BYTES);
    let mut recorder = Recorder::new(window, address);
    assert_eq!(
        recorder.record(&space).err().unwrap().status(),
        Status::BadRange,
        "there is nothing in it"
    );
    recorder.nop().unwrap();
    recorder.fill_pattern(2, 8, 7, 2).unwrap();
    recorder.fill_pattern(1, 8, 7, 2).unwrap();
    assert_eq!(
        recorder.nop(),
        Err(RecordError::Full {
            wanted_bytes: 4 * UNIT_BYTES,
            room_bytes: 3 * UNIT_BYTES
        })
    );
    let refused = recorder.record(&space).err().unwrap();
    assert_eq!(refused.status(), Status::BadAlignment);
    assert_eq!(refused.refusal.detail as usize, 2 * UNIT_BYTES);
    recorder.clear();
    recorder.nop().unwrap();
    let recording = recorder.record(&space).unwrap();
    space.destroy().unwrap();
    assert_eq!(
        recording.destroy().err().unwrap().status(),
        Status::BadHandle
    );
}

on_each_back_end!(a_recorder_knows_its_room_and_a_refusal_its_packet,);
