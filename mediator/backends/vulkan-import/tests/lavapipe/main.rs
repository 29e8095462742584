//! Import and mapping on a real Vulkan driver: Mesa's lavapipe, which needs no GPU, or what else
//! can do it.
#![allow(unsafe_code)] // Calls Vulkan.

mod exporter;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_memory::{DeviceMapping, MemoryError};
use causeway_vulkan_import::{ImportError, Uuid, VulkanDevice, VulkanError};

use exporter::{BYTES, Exporter};

const PAGE: u64 = 4096;

/// The first device whose memory can be visible; none, with the reason. Where
/// `CAUSEWAY_REQUIRE_VULKAN` is set, that is a failure.
fn device() -> Option<Uuid> {
    let reason = match causeway_vulkan_import::report() {
        Ok(report) => {
            let mut visible = report.devices.iter().filter(|d| d.visible_bytes.is_ok());
            match visible.next() {
                Some(device) => return Some(device.uuid),
                None => format!("{report:?}"),
            }
        }
        Err(e) => e.to_string(),
    };
    assert!(
        std::env::var_os("CAUSEWAY_REQUIRE_VULKAN").is_none(),
        "Vulkan is required here: {reason}"
    );
    eprintln!("skipped: no Vulkan device with visible memory ({reason})");
    None
}

/// One test at a time: some count what this process has.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open() -> Option<(Exporter, Arc<VulkanDevice>, MutexGuard<'static, ()>)> {
    let alone = alone();
    let uuid = device()?;
    let device = VulkanDevice::open(uuid).unwrap();
    Some((Exporter::new(uuid), device, alone))
}

/// Descriptors and mappings of this process.
fn counts() -> (usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (files, maps.lines().count())
}

fn word(mapping: &dyn DeviceMapping, offset: u64) -> &AtomicU64 {
    // SAFETY: tests stay within what they mapped; others use the memory by atomic accesses.
    unsafe { &*mapping.as_ptr().as_ptr().add(offset as usize).cast() }
}

fn store(mapping: &dyn DeviceMapping, offset: u64, value: u64) {
    word(mapping, offset).store(value, Ordering::Relaxed);
}

fn load(mapping: &dyn DeviceMapping, offset: u64) -> u64 {
    word(mapping, offset).load(Ordering::Relaxed)
}

#[test]
fn what_one_side_writes_the_other_reads() {
    let Some((exporter, device, _alone)) = open() else {
        return;
    };
    exporter.word(8).store(42, Ordering::Relaxed);
    let memory = device.import(exporter.export(), BYTES).unwrap();
    assert_eq!(memory.bytes(), BYTES);
    let mapping = memory.map(0, BYTES).unwrap();
    assert_eq!(load(&*mapping, 8), 42);
    store(&*mapping, BYTES - 8, 43);
    assert_eq!(exporter.load(BYTES - 8), 43);
}

#[test]
fn parts_are_mapped_any_number_of_times_and_end_one_by_one() {
    let Some((exporter, device, _alone)) = open() else {
        return;
    };
    let memory = device.import(exporter.export(), BYTES).unwrap();
    let first = memory.map(PAGE, PAGE).unwrap();
    let second = memory.map(PAGE, 2 * PAGE).unwrap();
    assert_ne!(first.as_ptr(), second.as_ptr());
    store(&*first, 16, 7);
    assert_eq!((load(&*second, 16), exporter.load(PAGE + 16)), (7, 7));
    drop(first);
    store(&*second, PAGE + 16, 8);
    assert_eq!(exporter.load(2 * PAGE + 16), 8);
    // The memory lives as long as a mapping, whatever becomes of the rest.
    drop((memory, device));
    assert_eq!(load(&*second, 16), 7);
}

#[test]
fn ranges_outside_are_refused_with_their_numbers() {
    let Some((exporter, device, _alone)) = open() else {
        return;
    };
    let memory = device.import(exporter.export(), BYTES).unwrap();
    for (offset, bytes) in [
        (0, 0),
        (0, BYTES + PAGE),
        (BYTES, PAGE),
        (u64::MAX - 4095, PAGE),
        (8, PAGE),
        (0, 8),
    ] {
        let refused = memory.map(offset, bytes).unwrap_err();
        assert!(matches!(refused, MemoryError::Range { .. }), "{refused}");
    }
}

#[test]
fn a_device_that_is_not_there_is_refused_with_the_names_of_those_that_are() {
    let _alone = alone();
    if device().is_none() {
        return;
    }
    let error = VulkanDevice::open([0x5a; 16]).unwrap_err();
    let VulkanError::Device { found, .. } = &error else {
        panic!("{error}");
    };
    assert!(error.to_string().contains(&found[0].0), "{error}");
}

#[test]
fn descriptors_of_something_else_are_an_error_and_nothing_leaks() {
    let Some((_exporter, device, _alone)) = open() else {
        return;
    };
    let (before, _) = counts();
    let short = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&short, PAGE).unwrap();
    let refused = device.import(short, 2 * PAGE).unwrap_err();
    assert!(
        matches!(refused, ImportError::Size { has: PAGE, .. }),
        "{refused}"
    );
    // As long as announced, but nothing that any driver made.
    let foreign =
        rustix::fs::memfd_create("foreign", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&foreign, BYTES).unwrap();
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    for file in [foreign, null] {
        let memory = device.import(file, PAGE).unwrap();
        for _ in 0..10 {
            let refused = memory.map(0, PAGE).unwrap_err();
            assert!(matches!(refused, MemoryError::Device { .. }), "{refused}");
        }
    }
    assert_eq!(counts().0, before);
}

#[test]
fn mapping_again_and_again_leaves_no_descriptor_and_no_mapping_behind() {
    let Some((exporter, device, _alone)) = open() else {
        return;
    };
    let memory = device.import(exporter.export(), BYTES).unwrap();
    drop(memory.map(0, PAGE).unwrap());
    let (files, maps) = counts();
    for _ in 0..100 {
        drop(memory.map(0, PAGE).unwrap());
    }
    let (files_after, maps_after) = counts();
    assert_eq!(files_after, files);
    // The allocator of the driver has some of its own.
    assert!(maps_after < maps + 50, "{maps} before, {maps_after} after");
}
