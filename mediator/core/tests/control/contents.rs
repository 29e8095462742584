//! What is in a module, and what the device tells about itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_protocol::message::*;
use causeway_protocol::packet;
use zerocopy::IntoBytes;

use crate::rig::*;

fn name_at(
    guest: &Guest,
    module: u32,
    index: u32,
    offset: u32,
) -> Result<KernelNameReply, Refused> {
    let request = KernelNameAt {
        module,
        index,
        offset,
        reserved: 0,
    };
    guest.ask(Opcode::KernelName, &request)
}

fn copy(destination: u64, source: u64, length: u64) -> packet::CopyRange {
    packet::CopyRange {
        header: header(packet::Opcode::Copy, 1),
        destination,
        source,
        length,
        ..packet::CopyRange::default()
    }
}

#[test]
fn kernels_are_enumerated_by_name_whatever_its_length() {
    let rig = Rig::new();
    let long = "k".repeat(700);
    for name in ["b", "a", &long] {
        rig.backend.define(name, 8, |_| Ok(()));
    }
    let guest = &rig.guest;
    let text = format!("kernel b\nkernel {long}\nkernel a");
    let module = guest.load_module(guest.space(), &text, 0).unwrap();

    let first = name_at(guest, module, 0, 0).unwrap();
    assert_eq!(
        (first.kernels, first.name_bytes, first.name[0]),
        (3, 1, b'a')
    );
    let head = name_at(guest, module, 2, 0).unwrap();
    assert_eq!((head.name_bytes, head.name), (700, [b'k'; 512]));
    let tail = name_at(guest, module, 2, 512).unwrap();
    assert_eq!(&tail.name[..189], &[&[b'k'; 188][..], &[0]].concat());
    assert_eq!(name_at(guest, module, 2, 700).unwrap().name, [0; 512]);
    assert_eq!(
        name_at(guest, module, 2, 701).unwrap_err().0,
        Status::BadRange
    );
    assert_eq!(
        name_at(guest, module, 3, 0).unwrap_err().0,
        Status::NotInModule
    );

    let at = |index| {
        let request = GetKernelAt { module, index };
        guest.ask::<_, KernelReply>(Opcode::GetKernelAt, &request)
    };
    assert_eq!(at(2).unwrap().parameter_bytes, 8);
    assert_eq!(
        at(0).unwrap().handle,
        guest.kernel(module, "a").unwrap().handle
    );
    assert_eq!(at(3).unwrap_err().0, Status::NotInModule);
}

#[test]
fn a_kernel_tells_its_attributes_until_its_module_is_unloaded() {
    let rig = Rig::new();
    rig.backend.define("add", 24, |_| Ok(()));
    let guest = &rig.guest;
    let module = guest.load_module(guest.space(), "kernel add", 0).unwrap();
    let handle = guest.kernel(module, "add").unwrap().handle;
    let query = |handle| {
        let request = HandleRequest {
            handle,
            reserved: 0,
        };
        guest.ask::<_, KernelFacts>(Opcode::QueryKernel, &request)
    };
    let facts = query(handle).unwrap();
    assert_eq!((facts.attributes[0], facts.attributes[1]), (512, 1024));
    assert_eq!(facts.attributes[3], UNKNOWN_ATTRIBUTE);
    assert_eq!(query(module).unwrap_err(), (Status::BadHandle, module));
    let other = guest.beside(1);
    let request = HandleRequest {
        handle,
        reserved: 0,
    };
    let refused = other.ask::<_, KernelFacts>(Opcode::QueryKernel, &request);
    assert_eq!(refused.unwrap_err(), (Status::BadHandle, handle));
    guest.by_handle(Opcode::UnloadModule, module).unwrap();
    assert_eq!(query(handle).unwrap_err(), (Status::BadHandle, handle));
}

#[test]
fn variables_can_be_copied_to_until_their_module_is_unloaded() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let module = guest.load_module(space, "variable v 16", 0).unwrap();
    assert_eq!(
        guest.variable(module, "w").unwrap_err().0,
        Status::NotInModule
    );
    assert_eq!(guest.variable(space, "v").unwrap_err().0, Status::BadHandle);
    let other = guest.beside(1);
    assert_eq!(
        other.variable(module, "v").unwrap_err().0,
        Status::BadHandle
    );
    let found = guest.variable(module, "v").unwrap();
    assert_eq!(found.bytes, 16);

    let (va, view) = guest.buffer(space, PAGE);
    view.write(0, &7_u64.to_le_bytes()).unwrap();
    let mut queue = guest.command_buffer(space);
    let to = copy(found.address + 8, va, 8);
    let from = copy(va + 8, found.address + 8, 8);
    let done = release(va + 16, 1);
    queue.submit(&[to.as_bytes(), from.as_bytes(), done.as_bytes()]);
    guest
        .wait(space, va + 16, 1, Duration::from_secs(30))
        .unwrap();
    assert_eq!(view.load_u64(8, Ordering::Acquire).unwrap(), 7);

    guest.by_handle(Opcode::UnloadModule, module).unwrap();
    assert_eq!(
        guest.variable(module, "v").unwrap_err().0,
        Status::BadHandle
    );
    queue.submit(&[to.as_bytes()]);
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
    let report: FaultReport = guest.ask(Opcode::QueryFault, &Empty {}).unwrap();
    assert_eq!(report.cuda_result, 700);
}

#[test]
fn copies_beyond_a_variable_are_refused() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let module = guest.load_module(space, "variable v 16", 0).unwrap();
    let found = guest.variable(module, "v").unwrap();
    let (va, _view) = guest.buffer(space, PAGE);
    let mut queue = guest.command_buffer(space);
    queue.submit(&[copy(found.address + 8, va, 9).as_bytes()]);
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
}

#[test]
fn the_device_tells_its_facts_with_the_limits_of_the_session() {
    let rig = Rig::with_quota(causeway_mediator::Quota {
        memory_bytes: 3 << 20,
        ..causeway_mediator::Quota::default()
    });
    let facts: DeviceFacts = rig.guest.ask(Opcode::QueryDevice, &Empty {}).unwrap();
    assert_eq!(&facts.name[..5], b"fake\0");
    assert_eq!(facts.memory_bytes, 3 << 20);
    assert_eq!((facts.attributes[0], facts.attributes[9]), (1024, 32));
    assert_eq!(facts.attributes[1], UNKNOWN_ATTRIBUTE);
}

#[test]
fn tensors_are_described_by_the_back_end() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let (address, _mapping) = guest.buffer(space, 4096);
    let request = EncodeTensorMap {
        space,
        address,
        rank: 5,
        ..EncodeTensorMap::default()
    };
    let ask = |request| guest.ask::<_, TensorMapReply>(Opcode::EncodeTensorMap, &request);
    let reply = ask(request).unwrap();
    assert_eq!((reply.cuda_result, reply.map[8]), (0, 5));
    assert_eq!(reply.map[..8], address.to_le_bytes());
    let none = ask(EncodeTensorMap { rank: 0, ..request }).unwrap();
    assert_eq!((none.cuda_result, none.map), (1, [0; TENSOR_MAP_BYTES]));
    for (wrong, status) in [
        (EncodeTensorMap { kind: 3, ..request }, Status::BadRange),
        (EncodeTensorMap { rank: 6, ..request }, Status::BadRange),
        (
            EncodeTensorMap {
                space: 77,
                ..request
            },
            Status::BadHandle,
        ),
        (
            EncodeTensorMap {
                address: 1 << 40,
                ..request
            },
            Status::MemoryFault,
        ),
    ] {
        assert_eq!(ask(wrong).err().unwrap().0, status);
    }
}

#[test]
fn a_device_whose_kernels_cannot_print_has_no_text() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let request = HandleRequest {
        handle: guest.space(),
        reserved: 0,
    };
    let reply: OutputReply = guest.ask(Opcode::ReadOutput, &request).unwrap();
    assert_eq!((reply.text_bytes, reply.text[0]), (0, 0));
    let request = HandleRequest {
        handle: 7,
        reserved: 0,
    };
    let refused = guest.ask::<_, OutputReply>(Opcode::ReadOutput, &request);
    assert_eq!(refused.unwrap_err(), (Status::BadHandle, 7));
}
