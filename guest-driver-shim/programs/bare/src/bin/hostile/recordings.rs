//! Attacks with packets that must not be recorded, and with replays of recordings that do not
//! exist.

use causeway_guests::{Required, refused};
use causeway_kernels::special;
use causeway_protocol::message::{self, RECORDING_BYTES_MAX, Status};
use causeway_protocol::packet::{Fence, Fill, Launch, LaunchShape, Opcode, Replay, launch_units};
use causeway_protocol::registers::features;
use causeway_shim::{
    AddressSpace, Buffer, CommandBuffer, Device, MemoryKind, Patience, Recorder, Unit, operation,
};
use zerocopy::transmute;

use crate::messages::{BOGUS, refuse};
use crate::packets::{header, stops};
use crate::target::{Target, works};

/// Size of the guest RAM for packets, in bytes.
const RAM_BYTES: usize = 4096;
/// Number of no-ops before the invalid packet, which is the packet's offset in units.
const BEFORE: u32 = 5;

pub fn attack(target: &mut Target) {
    let transport = target.transport;
    let ram = target.machine.ram().window(RAM_BYTES);
    let ram = ram.required("guest RAM for packets");
    let mut recorder = Recorder::new(ram, ram.as_ptr().as_ptr() as u64);
    let device = Target::fresh(&transport);
    if device.features() & features::RECORDING == 0 {
        let space = device.create_space().required("an address space");
        recorder.nop().required("a no-op");
        refused("a recording", recorder.record(&space), Status::Unsupported);
        return target.survived();
    }
    ranges(target, &device);
    let space = device.create_space().required("an address space");
    packets(target, &device, &space, &mut recorder);
    handles(target, &device, &space, &mut recorder);
    changed(target, &device, &space, &mut recorder);
    endings(target, &device, &mut recorder);
    assert!(
        !device.is_lost(),
        "a refused recording must not cost the session"
    );
    works(&device, &space, "refused recordings");
}

/// Tries invalid sizes, and packets outside of RAM.
fn ranges(target: &mut Target, device: &Device<'_>) {
    let space = device.create_space().required("an address space");
    let memory = device.allocate(4096, MemoryKind::Host).required("memory");
    let found = *target.transport.found();
    let beyond = target.beyond_ram();
    let good = message::CreateRecording {
        space: space.handle(),
        reserved: 0,
        address: 0x10_0000,
        bytes: 64,
    };
    for bytes in [0, RECORDING_BYTES_MAX + 64, 1 << 40, u64::MAX - 63] {
        let request = message::CreateRecording { bytes, ..good };
        refuse::<operation::CreateRecording>(target, device, &request, Status::BadRange);
    }
    for bytes in [1, 63, 65, RECORDING_BYTES_MAX - 1] {
        let request = message::CreateRecording { bytes, ..good };
        let status = Status::BadAlignment;
        let detail = refuse::<operation::CreateRecording>(target, device, &request, status);
        assert_eq!(detail, 64);
    }
    for address in [
        beyond,
        beyond - 64,
        found.aperture,
        found.registers,
        u64::MAX - 63,
    ] {
        let request = message::CreateRecording {
            address,
            bytes: 128 + (2 << 10),
            ..good
        };
        refuse::<operation::CreateRecording>(target, device, &request, Status::BadRange);
    }
    for space in [0, BOGUS, memory.handle()] {
        let request = message::CreateRecording { space, ..good };
        let status = Status::BadHandle;
        let detail = refuse::<operation::CreateRecording>(target, device, &request, status);
        assert_eq!(detail, space);
    }
}

/// Tries packets that a ring refuses, too, and packets that only a ring may have. The refusal must
/// have their offset.
fn packets<'d>(
    target: &mut Target,
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
    recorder: &mut Recorder,
) {
    let other = device.create_space().required("another address space");
    let module = target.memory.load_module(&other, special::PTX);
    let foreign = module.kernel(special::SPIN).required("the kernel");
    let fence = |opcode, address| -> Unit {
        let header = header(opcode, 1);
        transmute!(Fence {
            header,
            address,
            ..Fence::default()
        })
    };
    let head = |opcode, units| -> Unit {
        let header = header(opcode, units);
        transmute!(Replay {
            header,
            ..Replay::default()
        })
    };
    let launch = |kernel, parameter_bytes| -> Unit {
        let header = header(Opcode::Launch, launch_units(parameter_bytes as usize));
        transmute!(Launch {
            header,
            kernel,
            parameter_bytes,
            shape: LaunchShape {
                shared_bytes: 0,
                grid: [1; 3],
                block: [1; 3],
            },
            ..Launch::default()
        })
    };
    let fill: Unit = transmute!(Fill {
        header: header(Opcode::Fill, 1),
        destination: 0x1002,
        length: 8,
        width: 4,
        ..Fill::default()
    });
    let cases = [
        ("zeroes", [0; 8], Status::BadPacket),
        ("ones", [u64::MAX; 8], Status::BadPacket),
        (
            "an acquire",
            fence(Opcode::FenceAcquire, 0x1000),
            Status::BadPacket,
        ),
        ("a replay", head(Opcode::Replay, 1), Status::BadPacket),
        (
            "an unaligned release",
            fence(Opcode::FenceRelease, 4),
            Status::BadAlignment,
        ),
        ("an unaligned fill", fill, Status::BadAlignment),
        (
            "a no-op of no length",
            head(Opcode::Nop, 0),
            Status::BadPacket,
        ),
        (
            "a no-op beyond the end",
            head(Opcode::Nop, 2),
            Status::BadPacket,
        ),
        (
            "a launch beyond the end",
            launch(foreign.handle(), 16),
            Status::BadPacket,
        ),
        ("no kernel", launch(BOGUS, 0), Status::BadHandle),
        (
            "another space's kernel",
            launch(foreign.handle(), 0),
            Status::BadHandle,
        ),
    ];
    for (what, unit, status) in cases {
        recorder.clear();
        for _ in 0..BEFORE {
            recorder.nop().required(what);
        }
        recorder.push(unit).required(what);
        let detail = refused(what, recorder.record(space), status);
        assert_eq!(detail, BEFORE * 64, "{what}: the offset of the packet");
        target.survived();
    }
}

/// Replays and frees handles that are no recording of the address space.
fn handles<'d>(
    target: &mut Target,
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
    recorder: &mut Recorder,
) {
    recorder.clear();
    recorder.nop().required("a no-op");
    let recording = recorder.record(space).required("a recording");
    let gone = {
        let gone = recorder.record(space).required("a recording");
        gone.handle()
    };
    let other = device.create_space().required("another address space");
    let replay = |recording, reserved| -> Unit {
        let header = header(Opcode::Replay, 1);
        transmute!(Replay {
            header,
            recording,
            reserved: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, reserved]
        })
    };
    for handle in [0, BOGUS, u32::MAX, gone, space.handle()] {
        let what = "a replay of no recording";
        let unit = replay(handle, 0);
        stops(target, device, space, what, &[unit], Status::BadHandle);
        let request = message::HandleRequest {
            handle,
            reserved: 0,
        };
        // All-ones stands for the handle of the message before in the batch, which does not exist.
        refuse::<operation::DestroyRecording>(target, device, &request, Status::BadHandle);
    }
    let unit = replay(recording.handle(), 0);
    let what = "a replay in another space";
    stops(target, device, &other, what, &[unit], Status::BadHandle);
    let unit = replay(recording.handle(), 1);
    let what = "reserved words of a replay";
    stops(target, device, space, what, &[unit], Status::BadPacket);
    let mut two: Unit = replay(recording.handle(), 0);
    two[0] += 1 << 32;
    let what = "two units where one is due";
    stops(target, device, space, what, &[two], Status::BadPacket);
}

/// Checks that a replay executes the packets that were validated, even if the RAM from which they
/// were read has changed.
fn changed<'d>(
    target: &mut Target,
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
    recorder: &mut Recorder,
) {
    let what = "packets changed after they were recorded";
    let memory = Buffer::new(device, space, 8192, MemoryKind::Host).required(what);
    let fence = memory.fence(4096).required(what);
    recorder.clear();
    let address = memory.gpu.address();
    recorder.fill(address, 64, 7).required(what);
    let recording = recorder.record(space).required(what);
    recorder.clear();
    recorder.push([u64::MAX; 8]).required(what);
    let mut commands = CommandBuffer::new(space, 256).required(what);
    commands.replay(&recording).required(what);
    commands.release(&fence, 1).required(what);
    commands.submit();
    commands.wait(&fence, 1, Patience::default()).required(what);
    assert_eq!(memory.cpu.load_u32(60), Ok(7), "{what}");
    target.survived();
}

/// Tries recordings whose address space is freed, and more recordings than the quota allows.
fn endings<'d>(target: &mut Target, device: &'d Device<'d>, recorder: &mut Recorder) {
    recorder.clear();
    recorder.nop().required("a no-op");
    let gone = {
        let short_lived = device.create_space().required("an address space");
        let recording = recorder.record(&short_lived).required("a recording");
        short_lived.destroy().required("the end of the space");
        recording.destroy()
    };
    refused("a recording without space", gone, Status::BadHandle);
    target.survived();
    let space = device.create_space().required("an address space");
    let mut recorded = 0_u32;
    loop {
        match recorder.record(&space) {
            // Kept until the address space is freed.
            Ok(recording) => core::mem::forget(recording),
            Err(error) => {
                let expected = [Status::QuotaObjects, Status::QuotaBytes, Status::NoMemory];
                assert!(expected.contains(&error.status()), "{error}");
                break;
            }
        }
        recorded += 1;
        assert!(recorded < 100_000, "there is no quota of recordings");
    }
    target.survived();
}
