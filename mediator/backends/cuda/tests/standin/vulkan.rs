//! Device memory in the reach of CPUs through a Vulkan driver: the GPU's, or lavapipe for the
//! stand-in.

use causeway_cuda::Config;
use causeway_mediator::backend::Backend;
use causeway_memory::Backing;
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use causeway_standin_cuda::Lavapipe;

use crate::support::{GRANULE, Rig, is_child, shown, visible_through_vulkan};

/// What tells the stand-in to be lavapipe's device, if there is one here.
fn lavapipe(test: &str) -> Option<Lavapipe> {
    let found = Lavapipe::find();
    if let Err(error) = &found {
        let required = std::env::var_os("CAUSEWAY_REQUIRE_VULKAN").is_some();
        assert!(!required, "lavapipe: {error}");
        eprintln!("skipped: {test}: no lavapipe: {error}");
    }
    found.ok()
}

fn is_child_on(lavapipe: &Lavapipe, test: &str) -> bool {
    let settings = lavapipe.settings();
    let settings = settings.each_ref().map(|(name, value)| (*name, &**value));
    is_child(test, &settings)
}

fn rig() -> Rig {
    Rig::with(&Config {
        visible: Some(visible_through_vulkan()),
        ..Config::default()
    })
}

#[test]
fn what_the_gpu_stores_a_cpu_loads() {
    let name = "vulkan::what_the_gpu_stores_a_cpu_loads";
    if !lavapipe(name).is_some_and(|lavapipe| is_child_on(&lavapipe, name)) {
        return;
    }
    let mut rig = rig();
    let memory = rig.buffer(MemoryKind::DeviceVisible, 2 * GRANULE);
    rig.fill(memory.va, 2 * GRANULE, 3).unwrap();
    rig.wait().unwrap();
    for offset in [0, 8, GRANULE, 2 * GRANULE - 8] {
        assert_eq!(rig.space.load_u64(memory.va + offset), Some(0x3_0000_0003));
    }
    let part = shown(&memory.memory);
    for (offset, bytes) in [(0, 4096), (GRANULE, GRANULE), (4096, 2 * GRANULE - 4096)] {
        part.map(offset, bytes).unwrap();
    }
    assert!(part.map(4096, 2 * GRANULE).is_err(), "beyond its end");
    let backing = memory.memory.backing();
    assert!(matches!(backing, Some(Backing::Device(_))), "{backing:?}");
    // Given back and taken again, it is another's and empty.
    rig.free(memory);
    let next = rig.buffer(MemoryKind::DeviceVisible, 2 * GRANULE);
    assert_eq!(rig.space.load_u64(next.va), Some(0));
}

#[test]
fn an_import_is_seen_as_well() {
    let name = "vulkan::an_import_is_seen_as_well";
    if !lavapipe(name).is_some_and(|lavapipe| is_child_on(&lavapipe, name)) {
        return;
    }
    let mut rig = rig();
    let memory = rig.buffer(MemoryKind::DeviceVisible, GRANULE);
    let import = rig.cuda.import(memory.memory.export().unwrap()).unwrap();
    let other = rig.map(import, Access::ReadWrite);
    rig.fill(memory.va, 64, 9).unwrap();
    rig.wait().unwrap();
    assert_eq!(rig.space.load_u64(other.va), Some(0x9_0000_0009));
}

#[test]
fn memory_that_the_vulkan_driver_does_not_know_is_refused() {
    let name = "vulkan::memory_that_the_vulkan_driver_does_not_know_is_refused";
    let Some(mut lavapipe) = lavapipe(name) else {
        return;
    };
    lavapipe.mark = [0; 16];
    if !is_child_on(&lavapipe, name) {
        return;
    }
    let rig = rig();
    let seen = rig.allocate(MemoryKind::DeviceVisible, GRANULE);
    match seen {
        // That it is wrong shows when it is mapped.
        Ok(memory) => drop(shown(&memory).map(0, 4096).unwrap_err()),
        Err(error) => assert_eq!(error.status, Status::Unsupported, "{error}"),
    }
    rig.allocate(MemoryKind::Device, GRANULE).unwrap();
}
