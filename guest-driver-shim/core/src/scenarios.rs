//! Tests of the whole API against the fake device.

use core::sync::atomic::Ordering;
use std::format;
use std::string::ToString;
use std::sync::{Arc, Mutex};
use std::vec;
use std::vec::Vec;

use causeway_protocol::message::{self, Opcode, Parameter, Status};
use causeway_protocol::packet;
use causeway_protocol::registers::features;
use causeway_protocol::ring;
use zerocopy::FromBytes;

use crate::fake::{Answer, FakeDevice, answer};
use crate::{
    Buffer, CommandBuffer, Device, LaunchShape, MemoryKind, Module, OpenError, ParameterError,
    Parameters, Patience, RamRange, SubmitError, WaitError, operation,
};

type Log = Arc<Mutex<Vec<Opcode>>>;

/// A device on which everything succeeds: handles count up, the aperture is given out from the
/// start.
fn well_behaved(log: &Log) -> FakeDevice {
    let log = Arc::clone(log);
    let (mut handles, mut aperture) = (0, 0);
    FakeDevice::new(move |opcode, body| {
        log.lock().unwrap().push(opcode);
        handles += 1;
        reply(opcode, body, handles, &mut aperture)
    })
}

fn reply(opcode: Opcode, body: &mut [u8], handle: u32, aperture: &mut u64) -> Answer {
    match opcode {
        Opcode::Allocate | Opcode::Import | Opcode::RegisterRam => {
            let size = message::Allocate::read_from_prefix(body).unwrap().0.size;
            let size = size.next_multiple_of(4096);
            answer(
                body,
                &message::AllocateReply {
                    handle,
                    access: 3,
                    size,
                },
            )
        }
        Opcode::MapCpu => {
            let length = message::MapCpu::read_from_prefix(body).unwrap().0.length;
            let address = *aperture;
            *aperture += length;
            answer(body, &message::AddressReply { address })
        }
        Opcode::MapGpu => answer(body, &message::AddressReply { address: 0x20_0000 }),
        Opcode::CreateSpace => answer(
            body,
            &message::HandleReply {
                handle,
                reserved: 0,
            },
        ),
        Opcode::LoadModule => answer(
            body,
            &message::LoadModuleReply {
                handle,
                log_bytes: 0,
            },
        ),
        Opcode::CreateCommandBuffer | Opcode::CreatePriorityCommandBuffer => answer(
            body,
            &message::CommandBufferReply {
                handle,
                doorbell: 5,
            },
        ),
        Opcode::GetKernel => answer(body, &kernel_reply(handle)),
        _ => (Status::Ok, 0),
    }
}

fn kernel_reply(handle: u32) -> message::KernelReply {
    let mut layout = [Parameter { offset: 0, size: 0 }; message::PARAMETERS_MAX];
    layout[0] = Parameter { offset: 0, size: 8 };
    layout[1] = Parameter { offset: 8, size: 4 };
    layout[2] = Parameter {
        offset: 64,
        size: 8,
    };
    message::KernelReply {
        handle,
        parameters: 3,
        parameter_bytes: 72,
        block_threads_max: 1024,
        shared_bytes: 0,
        reserved: 0,
        layout,
    }
}

const SHAPE: LaunchShape = LaunchShape {
    grid: [4, 1, 1],
    block: [32, 1, 1],
    shared_bytes: 0,
};

#[test]
fn a_buffer_is_made_by_one_batch_and_freed_by_one() {
    let log = Log::default();
    let fake = well_behaved(&log);
    let device = Device::open(&fake).unwrap();
    let space = device.create_space().unwrap();
    let before = fake.exits.load(Ordering::Relaxed);
    let buffer = Buffer::new(&device, &space, 10_000, MemoryKind::Host).unwrap();
    assert_eq!(fake.exits.load(Ordering::Relaxed), before + 1);
    assert_eq!(buffer.cpu.bytes(), 12_288);
    buffer.cpu.store_u64(8, 7).unwrap();
    assert_eq!(buffer.cpu.load_u32(8).unwrap(), 7);
    assert!(buffer.cpu.load_u32(9).is_err(), "misaligned");
    assert!(buffer.cpu.load_u64(12_281).is_err(), "outside");
    buffer.free().unwrap();
    assert_eq!(fake.exits.load(Ordering::Relaxed), before + 2);
    let tail = log.lock().unwrap().split_off(2);
    assert_eq!(
        tail,
        [
            Opcode::Allocate,
            Opcode::MapGpu,
            Opcode::MapCpu,
            Opcode::Free
        ]
    );
}

#[test]
fn what_a_failed_batch_has_allocated_is_freed() {
    let log = Log::default();
    let inner = Arc::clone(&log);
    let mut aperture = 0;
    let fake = FakeDevice::new(move |opcode, body| {
        inner.lock().unwrap().push(opcode);
        match opcode {
            Opcode::MapCpu => (Status::NoMemory, 3),
            _ => reply(opcode, body, 9, &mut aperture),
        }
    });
    let device = Device::open(&fake).unwrap();
    let space = device.create_space().unwrap();
    let error = Buffer::new(&device, &space, 4096, MemoryKind::Host)
        .err()
        .unwrap();
    assert_eq!(error.status(), Status::NoMemory);
    assert_eq!(error.refusal.opcode, Some(Opcode::MapCpu));
    assert_eq!(error.refusal.detail, 3);
    assert_eq!(log.lock().unwrap().last(), Some(&Opcode::Free));
    assert!(error.to_string().contains("4096 bytes"), "{error}");
}

#[test]
fn another_major_version_is_refused_before_hello() {
    let mut fake = FakeDevice::new(|_, _| panic!("no message may be sent"));
    fake.version = 0x0002_0000;
    let error = Device::open(&fake).err().unwrap();
    assert_eq!(error, OpenError::Version { host: 0x0002_0000 });
    assert!(format!("{error}").contains("2.0"));
}

/// As when the server of a socket is killed: at any moment.
#[test]
fn a_device_that_is_gone_is_not_taken_for_another() {
    let opening = {
        let fake = well_behaved(&Log::default());
        Device::open(&fake).unwrap();
        fake.exits.load(Ordering::Relaxed)
    };
    for answers in 0..opening {
        let mut fake = well_behaved(&Log::default());
        fake.answers = answers;
        // The last accesses only write, or read what all ones are right for.
        if let Err(error) = Device::open(&fake) {
            assert_eq!(
                error,
                OpenError::Gone,
                "after {answers} of {opening} accesses"
            );
        } else {
            assert!(answers > 4, "after {answers} of {opening} accesses");
        }
    }
}

#[test]
fn a_batch_beyond_the_control_area_is_not_sent() {
    let fake = well_behaved(&Log::default());
    let device = Device::open(&fake).unwrap();
    let before = fake.batches.load(Ordering::Relaxed);
    let mut batch = device.batch();
    let tickets: Vec<_> = (0..100)
        .map(|_| {
            batch.push::<operation::GetKernel>(&message::GetKernel {
                module: 1,
                name_bytes: 0,
                name: [0; 512],
            })
        })
        .collect();
    let replies = batch.execute();
    assert_eq!(replies.refusal().unwrap().status, Status::BadLength);
    assert!(replies.get(tickets[0]).is_none());
    drop(replies);
    assert_eq!(fake.batches.load(Ordering::Relaxed), before);
    device.create_space().unwrap();
}

#[test]
fn parameters_are_checked_against_the_layout() {
    let fake = well_behaved(&Log::default());
    let device = Device::open(&fake).unwrap();
    let space = device.create_space().unwrap();
    let module = Module::load(&space, RamRange::default(), RamRange::default()).unwrap();
    let kernel = module.kernel("saxpy").unwrap();
    assert!(module.kernel(&"x".repeat(513)).is_err());
    let mut parameters = kernel.parameters().unwrap();
    assert_eq!(
        parameters.set(0, &1_u32),
        Err(ParameterError::WrongSize {
            index: 0,
            bytes: 4,
            wanted_bytes: 8
        })
    );
    assert_eq!(
        parameters.set(3, &1_u32),
        Err(ParameterError::NoSuchParameter { index: 3, count: 3 })
    );
    assert_eq!(
        Parameters::<'_, 1>::new(&kernel).err(),
        Some(ParameterError::BlockTooLarge {
            bytes: 72,
            room_bytes: 64
        })
    );
    let mut commands = CommandBuffer::new(&space, 256).unwrap();
    parameters.set(0, &0x1122_u64).unwrap();
    parameters.set(2, &0x3344_u64).unwrap();
    assert_eq!(
        commands.launch(SHAPE, &parameters),
        Err(SubmitError::ParameterMissing { index: 1 })
    );
    assert_eq!(commands.position(), 0);
    parameters.set(1, &2.5_f32).unwrap();
    commands.launch(SHAPE, &parameters).unwrap();
    commands.submit();
    // The ring lies at the start of the fake's aperture.
    let ring = device.aperture();
    let at = ring::HEADER_BYTES as usize;
    let mut launch = [0; 64];
    ring.read(at, &mut launch).unwrap();
    let launch = packet::Launch::read_from_bytes(&launch).unwrap();
    assert_eq!((launch.header.units, launch.parameter_bytes), (3, 72));
    assert_eq!(launch.kernel, kernel.handle());
    assert_eq!(ring.load_u64(at + 64).unwrap(), 0x1122);
    assert_eq!(ring.load_u32(at + 72).unwrap(), 2.5_f32.to_bits());
    assert_eq!(ring.load_u64(at + 128).unwrap(), 0x3344);
    assert_eq!(ring.load_u64(ring::PRODUCER).unwrap(), 3);
}

#[test]
fn the_doorbell_rings_only_for_a_sleeping_device() {
    let fake = well_behaved(&Log::default());
    let device = Device::open(&fake).unwrap();
    let space = device.create_space().unwrap();
    let mut commands = CommandBuffer::new(&space, 256).unwrap();
    device.aperture().store_u64(ring::WAKE, 1).unwrap();
    commands.nop().unwrap();
    commands.submit();
    commands.nop().unwrap();
    commands.submit();
    commands.submit();
    assert_eq!(*fake.doorbells.lock().unwrap(), [5]);
    assert_eq!(commands.doorbells_rung(), 1);
}

#[test]
fn a_wait_spins_then_sleeps_then_gives_up() {
    let log = Log::default();
    let inner = Arc::clone(&log);
    let mut aperture = 0;
    let fake = FakeDevice::new(move |opcode, body| {
        inner.lock().unwrap().push(opcode);
        match opcode {
            Opcode::Wait => (Status::TimedOut, 0),
            _ => reply(opcode, body, 1, &mut aperture),
        }
    });
    let device = Device::open(&fake).unwrap();
    let space = device.create_space().unwrap();
    let buffer = Buffer::new(&device, &space, 4096, MemoryKind::Host).unwrap();
    let fence = buffer.fence(16).unwrap();
    assert!(buffer.fence(4096).is_err());
    assert!(buffer.fence(12).is_err());
    fence.store(3);
    fence.wait(3, Patience::SPIN).unwrap();
    let patience = Patience {
        spins: 10,
        timeout_ns: 50_000_000,
    };
    assert_eq!(
        fence.wait(4, patience),
        Err(WaitError::TimedOut {
            wanted: 4,
            found: 3
        })
    );
    let waits = log
        .lock()
        .unwrap()
        .iter()
        .filter(|o| **o == Opcode::Wait)
        .count();
    assert_eq!(waits, 3, "20 ms slices of 50 ms");
}

#[test]
fn a_wait_ends_when_the_command_buffer_stops() {
    let fake = well_behaved(&Log::default());
    let device = Device::open(&fake).unwrap();
    let space = device.create_space().unwrap();
    let commands = CommandBuffer::new(&space, 256).unwrap();
    let buffer = Buffer::new(&device, &space, 4096, MemoryKind::Host).unwrap();
    let fence = buffer.fence(0).unwrap();
    device
        .aperture()
        .store_u64(ring::FAULT_POSITION, 12)
        .unwrap();
    device
        .aperture()
        .store_u64(ring::FAULT_STATUS, Status::MemoryFault as u64)
        .unwrap();
    let stopped = WaitError::Stopped {
        status: Status::MemoryFault,
        position: 12,
    };
    assert_eq!(commands.wait(&fence, 1, Patience::SPIN), Err(stopped));
}

#[test]
fn a_command_buffer_is_destroyed_before_its_memory_is_freed() {
    let log = Log::default();
    let fake = well_behaved(&log);
    let device = Device::open(&fake).unwrap();
    let space = device.create_space().unwrap();
    drop(CommandBuffer::new(&space, 256).unwrap());
    CommandBuffer::new(&space, 512).unwrap().destroy().unwrap();
    assert!(CommandBuffer::new(&space, 300).is_err());
    let one = [
        Opcode::Allocate,
        Opcode::MapCpu,
        Opcode::CreateCommandBuffer,
        Opcode::DestroyCommandBuffer,
        Opcode::Free,
    ];
    assert_eq!(log.lock().unwrap()[2..], [one, one].concat());
}

#[test]
fn cpus_share_the_control_area_without_mixing_batches() {
    let fake = well_behaved(&Log::default());
    let device = Device::open(&fake).unwrap();
    std::thread::scope(|scope| {
        for bytes in [4096_u64, 8192, 12_288] {
            let device = &device;
            scope.spawn(move || {
                for _ in 0..200 {
                    let allocation = device.allocate(bytes, MemoryKind::Device).unwrap();
                    assert_eq!(allocation.bytes(), bytes);
                }
            });
        }
    });
    assert_eq!(fake.batches.load(Ordering::Relaxed), 1 + 3 * 200 * 2);
}

#[test]
fn window_copies_are_exact_at_every_alignment() {
    let fake = well_behaved(&Log::default());
    let device = Device::open(&fake).unwrap();
    let window = device.aperture();
    let data: Vec<u8> = (0..=255).collect();
    for offset in 0..9 {
        for length in [0, 1, 7, 8, 9, 63, 200] {
            window.zero(0, 512).unwrap();
            window.write(offset, &data[..length]).unwrap();
            let mut back = vec![0; length + 2];
            window.read(offset.saturating_sub(1), &mut back).unwrap();
            let from = offset.min(1);
            assert_eq!(
                back[from..from + length],
                data[..length],
                "{offset} {length}"
            );
            assert!(back[from + length..].iter().all(|b| *b == 0));
        }
    }
    assert!(window.write(window.bytes() - 3, &data[..4]).is_err());
    assert!(window.read(usize::MAX, &mut [0; 4]).is_err());
}

#[test]
fn a_variable_is_looked_up_by_a_name_that_fits() {
    let log = Log::default();
    let inner = Arc::clone(&log);
    let mut aperture = 0;
    let fake = FakeDevice::new(move |opcode, body| {
        inner.lock().unwrap().push(opcode);
        match opcode {
            Opcode::GetVariable => {
                let request = message::GetVariable::read_from_prefix(body).unwrap().0;
                let name = &request.name[..request.name_bytes as usize];
                if name != b"table" {
                    return (Status::NotInModule, 0);
                }
                let (address, bytes) = (0x5000, 16);
                answer(body, &message::VariableReply { address, bytes })
            }
            _ => reply(opcode, body, 3, &mut aperture),
        }
    });
    let device = Device::open(&fake).unwrap();
    let space = device.create_space().unwrap();
    let module = Module::load(&space, RamRange::default(), RamRange::default()).unwrap();
    let found = module.variable("table").unwrap();
    assert_eq!((found.address, found.bytes), (0x5000, 16));
    let refused = module.variable("tables").unwrap_err();
    assert_eq!(refused.status(), Status::NotInModule);
    assert!(refused.to_string().contains("`tables` in module 0x3"));
    let before = log.lock().unwrap().len();
    let refused = module.variable(&"x".repeat(513)).unwrap_err();
    assert_eq!(refused.status(), Status::NotInModule);
    assert_eq!(log.lock().unwrap().len(), before, "no message is sent");
}

#[test]
fn a_result_of_the_driver_is_read_only_from_hosts_that_tell_it() {
    let report = message::FaultReport {
        cuda_result: 716,
        ..message::FaultReport::default()
    };
    for (minor, told) in [(2, None), (3, Some(716))] {
        let fake = FakeDevice::new(move |opcode, body| match opcode {
            Opcode::Hello => answer(
                body,
                &message::HelloReply {
                    major: 1,
                    minor,
                    ..message::HelloReply::default()
                },
            ),
            _ => (Status::Ok, 0),
        });
        let device = Device::open(&fake).unwrap();
        assert_eq!(device.cuda_result(&report), told);
    }
}

#[test]
fn a_priority_is_asked_for_only_where_there_are_some() {
    for (bits, minor, asked) in [
        (features::PRIORITIES, 4, Some(-3)),
        (features::PRIORITIES, 3, None),
        (0, 4, None),
    ] {
        let seen = Arc::new(Mutex::new(None));
        let inner = Arc::clone(&seen);
        let mut aperture = 0;
        let fake = FakeDevice::new(move |opcode, body| match opcode {
            Opcode::Hello => answer(
                body,
                &message::HelloReply {
                    major: 1,
                    minor,
                    greatest_priority: if minor < 4 { 0 } else { -5 },
                    features: bits,
                    ..message::HelloReply::default()
                },
            ),
            _ => {
                if opcode == Opcode::CreatePriorityCommandBuffer {
                    let request = message::CreatePriorityCommandBuffer::read_from_prefix(body);
                    *inner.lock().unwrap() = Some(request.unwrap().0.priority);
                }
                reply(opcode, body, 3, &mut aperture)
            }
        });
        let device = Device::open(&fake).unwrap();
        assert_eq!(device.greatest_priority(), asked.map_or(0, |_| -5));
        let space = device.create_space().unwrap();
        drop(CommandBuffer::with_priority(&space, 256, 0).unwrap());
        assert_eq!(*seen.lock().unwrap(), None, "the priority of all");
        drop(CommandBuffer::with_priority(&space, 256, -3).unwrap());
        assert_eq!(*seen.lock().unwrap(), asked);
    }
}
