//! Takes resources until nothing is left. After a reset, all must be free again.

use causeway_guests::Required;
use causeway_protocol::message::{self, Status};
use causeway_shim::{Access, CommandBuffer, Device, MemoryKind, Operation, operation};

use crate::target::{Target, works};

/// Number of messages, in batches: more than any quota allows.
const TRIES: usize = 200_000;
/// Number of batches with aperture mappings of the same page.
const MAPPED_BATCHES: u32 = 4;
/// Number of messages in a batch.
const TOGETHER: usize = 500;

pub fn attack(target: &mut Target) {
    let transport = target.transport;
    for _ in 0..2 {
        bytes(target, &Target::fresh(&transport));
    }
    allocations(target, &Target::fresh(&transport));
    command_buffers(target, &Target::fresh(&transport));
    {
        let device = Target::fresh(&transport);
        exhaust::<operation::CreateSpace>(
            target,
            &device,
            &message::Empty {},
            &[Status::QuotaObjects, Status::NoMemory],
        );
    }
    mappings(target, &Target::fresh(&transport));
    tokens(target, &Target::fresh(&transport));
}

/// Repeats a request until it is refused with one of `statuses`. Returns how often it succeeded.
fn exhaust<O: Operation>(
    target: &mut Target,
    device: &Device<'_>,
    request: &O::Request,
    statuses: &[Status],
) -> usize {
    for round in 0..TRIES / TOGETHER {
        let mut batch = device.batch();
        let mut granted = 0;
        let tickets: [_; TOGETHER] = core::array::from_fn(|_| batch.push::<O>(request));
        let replies = batch.execute();
        granted += tickets
            .iter()
            .filter(|ticket| replies.get(**ticket).is_some())
            .count();
        if let Some(refusal) = replies.refusal() {
            let name = O::OPCODE.name();
            assert!(
                statuses.contains(&refusal.status),
                "{name} until refused: {refusal}"
            );
            target.survived();
            return round * TOGETHER + granted;
        }
    }
    panic!(
        "{} was granted {TRIES} times: there is no quota",
        O::OPCODE.name()
    )
}

/// Takes GPU memory, in large pieces and then in small ones.
fn bytes(target: &mut Target, device: &Device<'_>) {
    let attributes = device.attributes().required("the attributes");
    let mut taken = 0;
    let mut piece = attributes.memory_bytes / 4;
    while piece >= attributes.granularity_bytes {
        let request = message::Allocate {
            size: piece,
            kind: MemoryKind::Device as u32,
            flags: 0,
        };
        match device.call::<operation::Allocate>(&request) {
            Ok(reply) => taken += reply.size,
            Err(refusal) => {
                let expected = [Status::QuotaBytes, Status::NoMemory];
                assert!(
                    expected.contains(&refusal.status),
                    "allocating until refused: {refusal}"
                );
                piece /= 2;
            }
        }
    }
    assert!(
        taken <= attributes.memory_bytes,
        "{taken} bytes were had, more than the quota"
    );
    let attributes = device.attributes().required("the attributes");
    assert_eq!(attributes.memory_used_bytes, taken, "the account is right");
    target.survived();
}

fn allocations(target: &mut Target, device: &Device<'_>) {
    let request = message::Allocate {
        size: 1,
        kind: MemoryKind::Host as u32,
        flags: 0,
    };
    let statuses = [
        Status::QuotaAllocations,
        Status::QuotaBytes,
        Status::NoMemory,
    ];
    let granted = exhaust::<operation::Allocate>(target, device, &request, &statuses);
    let limit = device
        .attributes()
        .required("the attributes")
        .allocations_max;
    assert!(
        granted <= limit as usize,
        "{granted} allocations, more than {limit}"
    );
}

fn command_buffers(target: &mut Target, device: &Device<'_>) {
    let space = device.create_space().required("an address space");
    let limit = device
        .attributes()
        .required("the attributes")
        .command_buffers_max;
    let mut held = 0;
    loop {
        match CommandBuffer::new(&space, 256) {
            Ok(commands) => core::mem::forget(commands),
            Err(error) => {
                assert!(error.status() == Status::QuotaCommandBuffers, "{error}");
                assert_eq!(error.refusal.detail, limit);
                break;
            }
        }
        held += 1;
        assert!(held <= limit, "{held} command buffers, more than {limit}");
    }
    target.survived();
    drop(space);
    let space = device.create_space().required("an address space");
    works(
        device,
        &space,
        "command buffers up to the quota, ended with their address space",
    );
}

fn mappings(target: &mut Target, device: &Device<'_>) {
    let space = device.create_space().required("an address space");
    let memory = device.allocate(4096, MemoryKind::Host).required("memory");
    let statuses = [Status::QuotaObjects, Status::NoMemory];
    let gpu = message::MapGpu {
        space: space.handle(),
        allocation: memory.handle(),
        offset: 0,
        length: 4096,
        address: 0,
        access: Access::Read.wire(),
        reserved: 0,
    };
    exhaust::<operation::MapGpu>(target, device, &gpu, &statuses);
    drop(space);
    let allocation = memory.handle();
    let access = Access::Read.wire();
    let cpu = message::MapCpu {
        allocation,
        access,
        offset: 0,
        length: 4096,
    };
    // Not until the quota is used up, which takes seconds, because each is a mapping in the host,
    // too.
    for _ in 0..MAPPED_BATCHES {
        let mut batch = device.batch();
        for _ in 0..TOGETHER {
            batch.push::<operation::MapCpu>(&cpu);
        }
        assert_eq!(batch.execute().refusal(), None, "many mappings of one page");
    }
    target.survived();
}

fn tokens(target: &mut Target, device: &Device<'_>) {
    let memory = device.allocate(4096, MemoryKind::Host).required("memory");
    let export = message::Export {
        allocation: memory.handle(),
        access: Access::Read.wire(),
        gpus: 0,
    };
    exhaust::<operation::Export>(target, device, &export, &[Status::QuotaObjects]);
}
