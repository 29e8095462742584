use std::os::unix::fs::FileExt;
use std::sync::Arc;

use causeway_cuda::Attribute;
use causeway_mediator::backend::Backend;
use causeway_memory::{PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{HOST_ADDRESSES, MemoryKind, Status};
use causeway_protocol::registers::features;

use crate::support::{GRANULE, Rig, host, is_child, shown};

const PAGE: u64 = 4096;

#[test]
fn parts_and_several_mappings_show_the_same_memory() {
    if !is_child(
        "mapping::parts_and_several_mappings_show_the_same_memory",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    for kind in [MemoryKind::Device, MemoryKind::Host] {
        let gpu = &causeway_cuda::survey().unwrap().gpus[0];
        let read_only = gpu.support.has(Attribute::HostRegisterReadOnly);
        if kind == MemoryKind::Host && !read_only {
            eprintln!("skipped: this GPU cannot only read host memory");
            continue;
        }
        let all = rig.buffer(kind, 2 * GRANULE);
        let part = |rig: &Rig, offset, bytes, access| {
            rig.space.map(None, &all.memory, offset, bytes, access)
        };
        let second = part(&rig, 0, 2 * GRANULE, Access::ReadWrite).unwrap();
        let page = part(&rig, 5 * PAGE, PAGE, Access::ReadWrite).unwrap();
        let readable = part(&rig, 5 * PAGE, PAGE, Access::Read).unwrap();
        let addresses = [all.va, second, page, readable];
        let mut distinct = addresses.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 4, "{addresses:x?}");
        rig.fill(page, PAGE, 5).unwrap();
        rig.fill(second + 6 * PAGE, 8, 6).unwrap();
        let seen = rig.download(all.va + 5 * PAGE, PAGE + 8);
        assert_eq!(seen[..4], [5, 0, 0, 0]);
        assert_eq!(seen[PAGE as usize..][..4], [6, 0, 0, 0]);
        assert_eq!(rig.download(readable, PAGE)[..4], [5, 0, 0, 0]);
        assert_eq!(
            rig.fill(readable, 8, 1).unwrap_err().status,
            Status::MemoryFault
        );
        rig.renew_queue();
        // A part of a registration that was made read-only cannot be raised; memory of the device
        // can.
        let raised = rig.space.set_access(readable, Access::ReadWrite);
        match kind {
            MemoryKind::Host => assert_eq!(raised.unwrap_err().status, Status::Unsupported),
            _ => raised.unwrap(),
        }
        for va in addresses {
            rig.space.unmap(va).unwrap();
        }
    }
}

#[test]
fn addresses_are_given_where_they_can_be() {
    if !is_child("mapping::addresses_are_given_where_they_can_be", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let range = rig.cuda.attributes().va.clone();
    let memory = rig.allocate(MemoryKind::Device, 4 * GRANULE).unwrap();
    let wanted = range.start + 64 * GRANULE + 3 * PAGE;
    let map = |rig: &Rig, wanted| {
        rig.space
            .map(Some(wanted), &memory, 3 * PAGE, PAGE, Access::ReadWrite)
    };
    assert_eq!(map(&rig, wanted).unwrap(), wanted);
    rig.fill(wanted, PAGE, 1).unwrap();
    rig.wait().unwrap();
    for taken in [wanted, wanted + GRANULE, range.end + 3 * PAGE, 3 * PAGE] {
        let refused = map(&rig, taken).unwrap_err();
        assert_eq!(refused.status, Status::AddressInUse, "{taken:#x}");
    }
    let host = rig.allocate(MemoryKind::Host, GRANULE).unwrap();
    let refused = rig
        .space
        .map(Some(range.start), &host, 0, GRANULE, Access::ReadWrite);
    assert_eq!(refused.unwrap_err().status, Status::AddressInUse);
    rig.space.unmap(wanted).unwrap();
    assert_eq!(map(&rig, wanted).unwrap(), wanted, "free again");
}

#[test]
fn neighbouring_mappings_are_copied_over() {
    if !is_child("mapping::neighbouring_mappings_are_copied_over", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let base = rig.cuda.attributes().va.start + 1024 * GRANULE;
    let mut held = Vec::new();
    for index in 0..3 {
        let memory = rig.allocate(MemoryKind::Device, GRANULE).unwrap();
        let at = Some(base + index * GRANULE);
        let access = Access::ReadWrite;
        rig.space.map(at, &memory, 0, GRANULE, access).unwrap();
        held.push(memory);
    }
    let target = rig.buffer(MemoryKind::Host, 2 * GRANULE);
    rig.fill(base + GRANULE / 2, 2 * GRANULE, 0x0909_0909)
        .unwrap();
    rig.copy(target.va, base + GRANULE / 2 + 1, 2 * GRANULE - 1)
        .unwrap();
    rig.queue.finish().unwrap();
    let seen = host(&target.memory).bytes(2 * GRANULE);
    assert!(seen[..seen.len() - 1].iter().all(|byte| *byte == 9));
    assert_eq!(seen[seen.len() - 1], 0);
}

#[test]
fn device_memory_is_shown_to_cpus() {
    if !is_child("mapping::device_memory_is_shown_to_cpus", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let memory = rig.buffer(MemoryKind::DeviceVisible, GRANULE);
    let seen = shown(&memory.memory);
    assert_eq!(seen.bytes(), GRANULE);
    rig.fill(memory.va + 8, 8, 3).unwrap();
    rig.wait().unwrap();
    assert_eq!(rig.space.load_u64(memory.va + 8), Some(0x3_0000_0003));
    assert_eq!(rig.space.load_u64(memory.va + GRANULE - 8), Some(0));
    assert!(
        rig.allocate(MemoryKind::Device, 1)
            .unwrap()
            .backing()
            .is_none()
    );
}

#[test]
fn without_vulkan_only_that_is_refused() {
    if !is_child("mapping::without_vulkan_only_that_is_refused", &[]) {
        return;
    }
    let rig = Rig::with(&causeway_cuda::Config::default());
    let refused = rig.allocate(MemoryKind::DeviceVisible, 1).err().unwrap();
    assert_eq!(refused.status, Status::Unsupported);
    assert!(refused.context.contains("Vulkan"), "{}", refused.context);
    rig.allocate(MemoryKind::Device, 1).unwrap();
    rig.allocate(MemoryKind::Host, 1).unwrap();
}

fn ram(bytes: u64) -> Arc<SharedMemory> {
    Arc::new(SharedMemory::new("ram", bytes, PageSize::Small).unwrap())
}

#[test]
fn guest_ram_is_registered_once_and_used_in_place() {
    // As much as may be locked is what the whole takes: a second registration would be refused.
    let limit = (16 << 20).to_string();
    if !is_child(
        "mapping::guest_ram_is_registered_once_and_used_in_place",
        &[("CAUSEWAY_STANDIN_LOCKED_BYTES", &limit)],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let ram = ram(16 << 20);
    let view = ram.map(0, 16 << 20, Access::ReadWrite).unwrap();
    let device = rig.buffer(MemoryKind::Device, GRANULE);
    for offset in [0, 4096, 8 << 20, (16 << 20) - 8192] {
        let memory = rig
            .cuda
            .register_ram(Arc::clone(&ram), offset, 8192)
            .unwrap();
        let part = rig.map(memory, Access::ReadWrite);
        view.write(offset, &[9; 64]).unwrap();
        rig.copy(device.va, part.va, 64).unwrap();
        rig.copy(part.va + 64, device.va, 64).unwrap();
        rig.queue.finish().unwrap();
        let mut seen = [0; 128];
        view.read(offset, &mut seen).unwrap();
        assert_eq!(seen, [9; 128]);
        rig.free(part);
    }
}

#[test]
fn ram_that_cannot_be_locked_as_a_whole_is_registered_in_part() {
    let limit = (4 << 20).to_string();
    if !is_child(
        "mapping::ram_that_cannot_be_locked_as_a_whole_is_registered_in_part",
        &[("CAUSEWAY_STANDIN_LOCKED_BYTES", &limit)],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let ram = ram(16 << 20);
    let memory = rig.cuda.register_ram(Arc::clone(&ram), GRANULE, GRANULE);
    let part = rig.map(memory.unwrap(), Access::ReadWrite);
    rig.fill(part.va, 8, 4).unwrap();
    rig.queue.finish().unwrap();
    let view = ram.map(GRANULE, 8, Access::Read).unwrap();
    let mut seen = [0; 8];
    view.read(0, &mut seen).unwrap();
    assert_eq!(seen, [4, 0, 0, 0, 4, 0, 0, 0]);
    let refused = rig.cuda.register_ram(Arc::clone(&ram), 0, 8 << 20);
    let refused = refused.err().unwrap();
    assert_eq!(refused.status, Status::NoMemory);
    assert!(refused.context.contains("ulimit -l"), "{}", refused.context);
}

#[test]
fn read_only_registration_is_refused_where_there_is_none() {
    if !is_child(
        "mapping::read_only_registration_is_refused_where_there_is_none",
        &[("CAUSEWAY_STANDIN_ATTRIBUTES", "113=0")],
    ) {
        return;
    }
    let rig = Rig::new();
    let memory = rig.allocate(MemoryKind::Host, GRANULE).unwrap();
    let refused = rig.space.map(None, &memory, 0, GRANULE, Access::Read);
    let refused = refused.unwrap_err();
    assert_eq!(refused.status, Status::Unsupported);
    let attribute = "READ_ONLY_HOST_REGISTER_SUPPORTED";
    assert!(refused.context.contains(attribute), "{}", refused.context);
}

#[test]
fn host_memory_has_a_chosen_address_for_cpu_and_gpu() {
    let name = "mapping::host_memory_has_a_chosen_address_for_cpu_and_gpu";
    if !is_child(name, &[]) {
        return;
    }
    let mut rig = Rig::new();
    assert_ne!(rig.cuda.attributes().features & features::HOST_ADDRESSES, 0);
    let memory = rig.allocate(MemoryKind::Host, 4 * GRANULE).unwrap();
    let map = |rig: &Rig, wanted, offset, bytes, access| {
        rig.space.map(Some(wanted), &memory, offset, bytes, access)
    };
    let first = HOST_ADDRESSES.start + 64 * GRANULE;
    let all = Access::ReadWrite;
    assert_eq!(map(&rig, first, 0, 4 * GRANULE, all).unwrap(), first);
    rig.fill(first + GRANULE, 8, 7).unwrap();
    rig.wait().unwrap();
    // This process is the one that the GPU's addresses are equal in.
    let mut seen = [0; 4];
    let memory_of_process = std::fs::File::open("/proc/self/mem").unwrap();
    memory_of_process
        .read_exact_at(&mut seen, first + GRANULE)
        .unwrap();
    assert_eq!(u32::from_le_bytes(seen), 7);
    // A second time, and a part of it.
    let second = HOST_ADDRESSES.end - 2 * GRANULE;
    assert_eq!(map(&rig, second, GRANULE, GRANULE, all).unwrap(), second);
    assert_eq!(rig.space.load_u64(second), Some(7 << 32 | 7));
    for (wanted, bytes) in [
        (first, GRANULE),
        (first + GRANULE, GRANULE),
        (HOST_ADDRESSES.end - GRANULE, 2 * GRANULE),
        (HOST_ADDRESSES.start - GRANULE, GRANULE),
        (HOST_ADDRESSES.end, GRANULE),
        (u64::MAX - GRANULE + 1, GRANULE),
        (std::ptr::from_ref(&rig).addr() as u64 & !0xfff, PAGE),
    ] {
        let refused = map(&rig, wanted, 0, bytes, all).unwrap_err();
        assert_eq!(
            refused.status,
            Status::AddressInUse,
            "{wanted:#x}: {refused}"
        );
    }
    rig.space.unmap(first).unwrap();
    rig.space.unmap(second).unwrap();
    // What was unmapped is free again.
    assert_eq!(map(&rig, first, 0, GRANULE, all).unwrap(), first);
    assert_eq!(rig.space.load_u64(first + GRANULE), None);
}

#[test]
fn without_equal_addresses_none_can_be_chosen_for_host_memory() {
    let name = "mapping::without_equal_addresses_none_can_be_chosen_for_host_memory";
    if !is_child(name, &[("CAUSEWAY_STANDIN_ATTRIBUTES", "91=0")]) {
        return;
    }
    let rig = Rig::new();
    assert_eq!(rig.cuda.attributes().features & features::HOST_ADDRESSES, 0);
    let memory = rig.allocate(MemoryKind::Host, GRANULE).unwrap();
    let wanted = Some(HOST_ADDRESSES.start);
    let refused = rig
        .space
        .map(wanted, &memory, 0, GRANULE, Access::ReadWrite);
    assert_eq!(refused.unwrap_err().status, Status::AddressInUse);
}

#[test]
fn memory_is_not_registered_again_without_end() {
    let name = "mapping::memory_is_not_registered_again_without_end";
    if !is_child(name, &[]) {
        return;
    }
    let rig = Rig::with(&causeway_cuda::Config {
        memory_bytes: Some(2 << 30),
        ..causeway_cuda::Config::default()
    });
    // No page of it is ever there.
    let bytes = 4 << 30;
    let memory = rig.cuda.register_ram(ram(bytes), 0, bytes).unwrap();
    let map = |wanted, access| rig.space.map(wanted, &memory, 0, bytes, access);
    let chosen = HOST_ADDRESSES.start;
    assert_eq!(map(Some(chosen), Access::ReadWrite).unwrap(), chosen);
    // 66 GiB are the limit.
    let held: Vec<u64> = (0..15).map(|_| map(None, Access::Read).unwrap()).collect();
    for refused in [
        map(None, Access::Read),
        map(Some(chosen + bytes), Access::ReadWrite),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.status, Status::NoMemory, "{refused}");
        assert!(refused.context.contains("once more"), "{refused}");
    }
    // The registration that guest RAM has anyway is not counted.
    map(None, Access::ReadWrite).unwrap();
    rig.space.unmap(held[0]).unwrap();
    map(None, Access::Read).unwrap();
}
