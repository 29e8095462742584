//! What a device that is held does, over hardware that is none.

use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_host_vfio::fake::{FakeHardware, FakeTranslation};
use causeway_host_vfio::{
    AccessError, Address, Area, Device, DeviceEvent, InterruptError, InterruptKind, MapError,
    OpenError, RegionIndex, ResetMethod,
};
use causeway_memory::PAGE_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use touch::Touch;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

#[path = "../examples/devices/touch.rs"]
mod touch;

const BAR: RegionIndex = RegionIndex::Bar(2);

fn address() -> Address {
    "0000:00:03.0".parse().unwrap()
}

fn hardware() -> FakeHardware {
    FakeHardware::new()
        .unwrap()
        .with_region(BAR, 16 * PAGE_BYTES)
        .unwrap()
        .with_region(RegionIndex::Rom, 2048)
        .unwrap()
        .with_interrupts(InterruptKind::Intx, 1)
        .with_interrupts(InterruptKind::Msi, 1)
        .with_interrupts(InterruptKind::Msix, 4)
}

fn held() -> (Arc<FakeHardware>, Device) {
    let hardware = Arc::new(hardware());
    let device = hardware.device(address()).unwrap();
    (hardware, device)
}

fn event() -> EventFd {
    EventFd::new(EFD_NONBLOCK).unwrap()
}

#[test]
fn registers_are_the_devices_and_every_access_is_counted() {
    let (hardware, device) = held();
    hardware.poke(BAR, 8, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(device.read_u32(BAR, 8).unwrap(), 0x0403_0201);
    assert_eq!(device.read_u16(BAR, 12).unwrap(), 0x0605);
    device.write(BAR, 16 * PAGE_BYTES - 2, b"hi").unwrap();
    let mut seen = [0; 2];
    hardware.peek(BAR, 16 * PAGE_BYTES - 2, &mut seen).unwrap();
    assert_eq!(&seen, b"hi");
    let statistics = device.statistics();
    assert_eq!((statistics.reads, statistics.writes), (2, 1));
    assert_eq!(statistics.refused, 0);
}

#[test]
fn accesses_that_cannot_be_carried_out_are_errors_with_their_numbers() {
    let (_hardware, device) = held();
    for (offset, bytes) in [
        (16 * PAGE_BYTES, 1),
        (16 * PAGE_BYTES - 1, 2),
        (u64::MAX, 4),
        (0, 0),
    ] {
        let error = device.read(BAR, offset, &mut vec![0; bytes]).unwrap_err();
        assert!(
            matches!(error, AccessError::Range { size: 0x10000, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("0000:00:03.0"), "{error}");
    }
    let absent = device.read_u8(RegionIndex::Bar(0), 0).unwrap_err();
    assert_eq!(absent.to_string(), "device 0000:00:03.0 has no BAR 0");
    let forbidden = device.write(RegionIndex::Rom, 0, &[0]).unwrap_err();
    assert!(
        matches!(forbidden, AccessError::Forbidden { .. }),
        "{forbidden}"
    );
    assert_eq!(device.statistics().refused, 6);
}

#[test]
fn a_transfer_that_ends_early_is_an_error() {
    // A region that the device's file does not have.
    let hardware = Arc::new(hardware().with_change(RegionIndex::Config, |region| {
        region.file_offset += 4094;
    }));
    let device = hardware.device(address()).unwrap();
    let error = device.read_u32(RegionIndex::Config, 0).unwrap_err();
    let message = error.to_string();
    assert!(
        matches!(
            error,
            AccessError::Short {
                done: 2,
                bytes: 4,
                ..
            }
        ),
        "{message}"
    );
}

#[test]
fn mappings_show_the_same_memory_and_keep_to_their_range() {
    let (hardware, device) = held();
    let mapping = device.map(BAR, PAGE_BYTES, 2 * PAGE_BYTES).unwrap();
    mapping.store_u32(4, 0x1234_5678).unwrap();
    mapping.store_u64(8, 0x1122_3344_5566_7788).unwrap();
    assert_eq!(device.read_u32(BAR, PAGE_BYTES + 4).unwrap(), 0x1234_5678);
    hardware.poke(BAR, PAGE_BYTES + 16, &[7; 8]).unwrap();
    assert_eq!(mapping.load_u64(16).unwrap(), u64::from_ne_bytes([7; 8]));
    assert_eq!(mapping.load_u32(8).unwrap(), 0x5566_7788);
    mapping.load_u32(2 * PAGE_BYTES).unwrap_err();
    mapping.load_u32(2).unwrap_err();
    mapping.store_u64(4, 0).unwrap_err();
    mapping.copy_in(2 * PAGE_BYTES - 1, &[1, 2]).unwrap_err();
    mapping.copy_out(u64::MAX, &mut [0]).unwrap_err();
    mapping.fill(1, 2 * PAGE_BYTES, 0).unwrap_err();
    assert_eq!(device.statistics().mapped_bytes, 2 * PAGE_BYTES);
}

#[test]
fn bulk_copies_are_right_at_every_alignment() {
    let (_hardware, device) = held();
    let mapping = device.map(BAR, 0, PAGE_BYTES).unwrap();
    for start in 0..9 {
        for length in [0, 1, 7, 8, 9, 15, 16, 17, 31, 100] {
            mapping.fill(0, 256, 0xee).unwrap();
            let pattern: Vec<u8> = (1..=length).collect();
            mapping.copy_in(64 + start, &pattern).unwrap();
            let mut seen = vec![0; usize::from(length)];
            mapping.copy_out(64 + start, &mut seen).unwrap();
            assert_eq!(seen, pattern, "{length} bytes at {start}");
            let mut all = [0; 256];
            mapping.copy_out(0, &mut all).unwrap();
            let touched = all.iter().filter(|byte| **byte != 0xee).count();
            assert_eq!(touched, pattern.len(), "{length} bytes at {start}");
        }
    }
    mapping.fill(3, 30, 0).unwrap();
    let mut all = [0; 64];
    mapping.copy_out(0, &mut all).unwrap();
    let zeros: Vec<_> = (0..64).filter(|i| all[*i] == 0).collect();
    assert_eq!(zeros, (3..33).collect::<Vec<_>>());
}

#[test]
fn only_what_the_kernel_lets_be_mapped_is() {
    let sparse = hardware().with_change(BAR, |region| {
        region.mappable = vec![
            Area {
                offset: 0,
                bytes: PAGE_BYTES,
            },
            Area {
                offset: 2 * PAGE_BYTES,
                bytes: 14 * PAGE_BYTES,
            },
        ];
    });
    let device = Arc::new(sparse).device(address()).unwrap();
    device.map(BAR, 0, PAGE_BYTES).unwrap();
    device.map(BAR, 3 * PAGE_BYTES, 13 * PAGE_BYTES).unwrap();
    for (offset, bytes) in [
        (0, 2 * PAGE_BYTES),
        (PAGE_BYTES, PAGE_BYTES),
        (0, 100),
        (0, 0),
    ] {
        let error = device.map(BAR, offset, bytes).unwrap_err();
        assert!(matches!(error, MapError::Range { .. }), "{error}");
    }
    let absent = device.map(RegionIndex::Bar(5), 0, PAGE_BYTES).unwrap_err();
    assert!(matches!(absent, MapError::Absent { .. }), "{absent}");
}

#[test]
fn memory_that_is_lent_can_be_mapped_again_and_again_within_its_range() {
    let (hardware, device) = held();
    let memory = device.memory(BAR, 4 * PAGE_BYTES, 2 * PAGE_BYTES).unwrap();
    assert_eq!(memory.bytes(), 2 * PAGE_BYTES);
    hardware.poke(BAR, 5 * PAGE_BYTES, b"x").unwrap();
    for _ in 0..2 {
        let mapping = memory.map(PAGE_BYTES, PAGE_BYTES).unwrap();
        // SAFETY: in range, and read by one volatile load.
        #[allow(unsafe_code)]
        let byte = unsafe { mapping.as_ptr().read_volatile() };
        assert_eq!(byte, b'x');
    }
    memory.map(PAGE_BYTES, 2 * PAGE_BYTES).unwrap_err();
    memory.map(u64::MAX, PAGE_BYTES).unwrap_err();
    device
        .memory(BAR, 15 * PAGE_BYTES, 2 * PAGE_BYTES)
        .unwrap_err();
}

#[test]
fn a_pin_signals_until_it_masks_itself() {
    let (hardware, device) = held();
    let (trigger, unmask) = (event(), event());
    device.set_intx(&trigger, Some(&unmask)).unwrap();
    assert!(hardware.is_resampled());
    assert!(hardware.fire(InterruptKind::Intx, 0));
    assert_eq!(trigger.read().unwrap(), 1);
    assert!(!hardware.fire(InterruptKind::Intx, 0));
    device.set_intx(&trigger, None).unwrap();
    assert!(!hardware.is_resampled());
    assert!(hardware.fire(InterruptKind::Intx, 0));
}

#[test]
fn one_kind_of_interrupts_is_enabled_at_a_time() {
    let (hardware, device) = held();
    let (pin, a, b) = (event(), event(), event());
    device.set_intx(&pin, None).unwrap();
    device
        .set_vectors(InterruptKind::Msix, &[Some(&a), None, Some(&b)])
        .unwrap();
    assert_eq!(hardware.vectors(InterruptKind::Intx), [0; 0]);
    assert_eq!(hardware.vectors(InterruptKind::Msix), [0, 2]);
    assert!(hardware.fire(InterruptKind::Msix, 2) && !hardware.fire(InterruptKind::Msix, 1));
    b.read().unwrap();
    a.read().unwrap_err();
    assert_eq!(device.statistics().vectors, 3);
    device.disable_interrupts().unwrap();
    assert_eq!(hardware.vectors(InterruptKind::Msix), [0; 0]);
}

#[test]
fn interrupts_that_there_are_not_are_refused() {
    let (hardware, device) = held();
    let a = event();
    let five = [Some(&a); 5];
    let error = device.set_vectors(InterruptKind::Msix, &five).unwrap_err();
    assert_eq!(
        error.to_string(),
        "device 0000:00:03.0 has no MSI-X vector 4: it has 4 vectors, counted from 0"
    );
    let error = device
        .set_vectors(InterruptKind::Request, &[Some(&a)])
        .unwrap_err();
    assert!(
        matches!(error, InterruptError::NotMessages { .. }),
        "{error}"
    );
    hardware.refuse_interrupts(true);
    let error = device
        .set_vectors(InterruptKind::Msi, &[Some(&a)])
        .unwrap_err();
    assert!(matches!(error, InterruptError::Failed { .. }), "{error}");
    let bare = Arc::new(FakeHardware::new().unwrap());
    let bare = bare.device(address()).unwrap();
    let error = bare.set_intx(&a, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "device 0000:00:03.0 has no INTx interrupts"
    );
}

#[test]
fn a_device_is_left_without_interrupts_dma_and_state() {
    let (hardware, device) = held();
    let a = event();
    device.set_vectors(InterruptKind::Msi, &[Some(&a)]).unwrap();
    device.set_bus_mastering(true).unwrap();
    device.set_memory_decoding(true).unwrap();
    let command = || {
        let mut command = [0; 2];
        hardware.peek(RegionIndex::Config, 4, &mut command).unwrap();
        command[0]
    };
    assert_eq!(command(), 6);
    assert_eq!(device.reset().unwrap(), ResetMethod::Function);
    drop(device);
    assert_eq!(hardware.vectors(InterruptKind::Msi), [0; 0]);
    assert_eq!(command(), 2);
    assert_eq!(hardware.resets(), 2);
}

fn readable(watch: &impl AsFd) -> bool {
    let mut files = [PollFd::new(watch, PollFlags::IN)];
    poll(&mut files, Some(&Timespec::default())).unwrap() == 1
}

#[test]
fn a_watch_tells_of_being_asked_back_and_of_stores_to_reset() {
    let folder =
        std::env::temp_dir().join(format!("causeway-host-vfio-watch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let attribute = folder.join("reset");
    std::fs::write(&attribute, "").unwrap();
    let hardware = Arc::new(hardware().with_reset_attribute(&attribute));
    let device = hardware.device(address()).unwrap();
    let watch = device.watch().unwrap();
    assert!(!readable(&watch));
    assert_eq!(watch.take(), []);
    assert!(hardware.fire(InterruptKind::Request, 0));
    assert!(hardware.fire(InterruptKind::Request, 0));
    assert!(readable(&watch));
    assert_eq!(watch.take(), [DeviceEvent::AskedBack]);
    assert!(!readable(&watch));
    std::fs::read(&attribute).unwrap();
    assert!(!readable(&watch));
    std::fs::write(&attribute, "1").unwrap();
    assert!(readable(&watch));
    assert_eq!(watch.take(), [DeviceEvent::Reset]);
    assert!(!readable(&watch));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_container_without_vfio_opens_nothing() {
    let container = Arc::new(FakeTranslation::default()).container();
    let error = Device::open(&container, address()).unwrap_err();
    assert!(matches!(error, OpenError::NoVfio { .. }), "{error}");
}
