//! Images and packets that a guest names by their place in the aperture.
#![allow(missing_docs, reason = "a test")]

mod rig;

use causeway_mediator_testing::ask;
use causeway_protocol::message::{
    APERTURE_ADDRESS, LoadModule, LoadModuleReply, MemoryKind, Opcode, Status,
};
use rig::{Guest, PAGE, READ, READ_WRITE, Refused, Rig};

const TEXT: &str = "kernel add";

fn load(guest: &Guest, space: u32, address: u64, bytes: u64) -> Result<u32, Refused> {
    let request = LoadModule {
        space,
        log_bytes: 0,
        image_address: APERTURE_ADDRESS | address,
        image_bytes: bytes,
        log_address: 0,
    };
    let reply: LoadModuleReply = ask(&guest.session, Opcode::LoadModule, &request)?;
    Ok(reply.handle)
}

#[test]
fn an_image_in_a_part_of_an_allocation_is_read_where_it_is_mapped() {
    let rig = Rig::new();
    rig.backend.define("add", 24, |_| Ok(()));
    let guest = &rig.guest;
    let space = guest.space();
    let memory = guest.memory(MemoryKind::Host, 4 * PAGE);
    // Two mappings, so that neither offset nor beginning is zero.
    guest.map_cpu(memory, 0, PAGE, READ).unwrap();
    let offset = guest.map_cpu(memory, PAGE, 2 * PAGE, READ_WRITE).unwrap();
    let place = guest.host.map(offset).unwrap();
    // Across a page's end.
    let at = PAGE - 5;
    place.write(at, TEXT.as_bytes()).unwrap();
    let module = load(guest, space, offset + at, TEXT.len() as u64).unwrap();
    guest.kernel(module, "add").unwrap();
}

#[test]
fn ranges_that_are_not_all_in_one_mapping_are_refused() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let memory = guest.memory(MemoryKind::Host, 2 * PAGE);
    let first = guest.map_cpu(memory, 0, PAGE, READ).unwrap();
    let second = guest.map_cpu(memory, PAGE, PAGE, READ).unwrap();
    assert_eq!(second, first + PAGE, "the test wants neighbours");
    for (address, bytes) in [
        (first + PAGE - 8, 16),
        (second + PAGE - 8, 16),
        (second + PAGE, 8),
        (APERTURE_ADDRESS - 8, 16),
    ] {
        let refused = load(guest, space, address, bytes).unwrap_err();
        assert_eq!(refused.0, Status::BadRange, "{address:#x}+{bytes:#x}");
    }
    // The last bytes of a mapping are in it.
    load(guest, space, second + PAGE - 8, 8).unwrap();
    guest.unmap(Opcode::UnmapCpu, 0, second).unwrap();
    let refused = load(guest, space, second, 8).unwrap_err();
    assert_eq!(refused.0, Status::BadRange, "the mapping has ended");
}

#[test]
fn a_log_is_written_only_where_the_memory_may_be_written() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let memory = guest.memory(MemoryKind::Host, PAGE);
    let offset = guest.map_cpu(memory, 0, PAGE, READ_WRITE).unwrap();
    let place = guest.host.map(offset).unwrap();
    place.write(0, b"nonsense").unwrap();
    let request = LoadModule {
        space,
        log_bytes: 64,
        image_address: APERTURE_ADDRESS | offset,
        image_bytes: 8,
        log_address: APERTURE_ADDRESS | (offset + 64),
    };
    let refused = ask::<_, LoadModuleReply>(&guest.session, Opcode::LoadModule, &request);
    assert_eq!(refused.unwrap_err().0, Status::BadModule);
    let mut log = [0; 6];
    place.read(64, &mut log).unwrap();
    assert_eq!(&log, b"line 1");

    // An import that may only be read.
    let token = guest.export(memory, READ).unwrap();
    let other = rig.another();
    let space = other.space();
    let import = other.import(&token, READ).unwrap().handle;
    let offset = other.map_cpu(import, 0, PAGE, READ).unwrap();
    let request = LoadModule {
        space,
        image_address: APERTURE_ADDRESS | offset,
        log_address: APERTURE_ADDRESS | (offset + 128),
        ..request
    };
    let refused = ask::<_, LoadModuleReply>(&other.session, Opcode::LoadModule, &request);
    assert_eq!(refused.unwrap_err().0, Status::AccessDenied);
    let mut log = [1; 4];
    place.read(128, &mut log).unwrap();
    assert_eq!(log, [0; 4]);
}
