//! Which BAR is chosen, and the message when none suits.

use std::sync::Arc;

use causeway_host_vfio::fake::FakeHardware;
use causeway_host_vfio::{Area, RegionIndex};
use causeway_mediator::backend::Backend;
use causeway_vfio_backend::{OpenError, Vfio};

use crate::rig::{MEMORY_64, PAGE, device, hardware, set_registers};

/// Base address register: 32 bits, not prefetchable, as registers are.
const REGISTERS: u32 = 0;
/// Base address register: I/O ports.
const PORTS: u32 = 1;

fn refusal(hardware: &Arc<FakeHardware>, bar: Option<u8>) -> String {
    let refused = Vfio::over(device(hardware), bar).err();
    let refused = refused.expect("it does not suit");
    assert!(matches!(refused, OpenError::Bar(_)), "{refused:?}");
    refused.to_string()
}

#[test]
fn the_largest_prefetchable_memory_is_chosen_unless_another_is_named() {
    let hardware = hardware(&[
        (0, REGISTERS, 64 * PAGE),
        (1, MEMORY_64, 2 * PAGE),
        (3, MEMORY_64, 8 * PAGE),
    ]);
    let chosen = |bar| {
        let backend = Vfio::over(device(&hardware), bar).unwrap();
        let attributes = backend.attributes();
        (attributes.name.clone(), attributes.memory_bytes)
    };
    let name = |bar| format!("vfio 0000:00:03.0 BAR {bar}");
    assert_eq!(chosen(None), (name(3), 8 * PAGE));
    assert_eq!(chosen(Some(1)), (name(1), 2 * PAGE));
    assert_eq!(chosen(Some(0)), (name(0), 64 * PAGE));
}

#[test]
fn every_mistake_is_named() {
    let hardware = hardware(&[
        (0, REGISTERS, 4 * PAGE),
        (2, PORTS, 4 * PAGE),
        (4, REGISTERS, 256),
    ]);
    for (bar, part) in [
        (Some(5), "has no BAR 5: it has BAR 0, BAR 2, BAR 4"),
        (
            Some(2),
            "BAR 2 of device 0000:00:03.0 has I/O ports, not memory",
        ),
        (Some(4), "has 256 bytes, less than a page of 4096"),
        (None, "no BAR of prefetchable memory"),
    ] {
        let message = refusal(&hardware, bar);
        assert!(message.contains(part), "{bar:?}: {message}");
    }
    assert_eq!(hardware.resets(), 4, "each time it was given back");
}

#[test]
fn what_the_kernel_keeps_to_itself_cannot_be_chosen() {
    let bars = [(2, MEMORY_64, 4 * PAGE)];
    let fake = FakeHardware::new().unwrap();
    let fake = fake.with_region(RegionIndex::Bar(2), 4 * PAGE).unwrap();
    let fake = fake.with_change(RegionIndex::Bar(2), |region| region.mappable.clear());
    set_registers(&fake, &bars);
    let fake = Arc::new(fake);
    let message = refusal(&fake, Some(2));
    assert!(
        message.contains("BAR 2 of device 0000:00:03.0 has no whole page"),
        "{message}"
    );
    let message = refusal(&fake, None);
    assert!(message.contains("can be mapped"), "{message}");
}

#[test]
fn parts_that_can_be_mapped_are_used_by_whole_pages_and_without_the_msix_table() {
    let fake = FakeHardware::new().unwrap();
    let fake = fake.with_region(RegionIndex::Bar(2), 16 * PAGE).unwrap();
    let fake = fake.with_change(RegionIndex::Bar(2), |region| {
        region.mappable = vec![
            Area {
                offset: 0,
                bytes: 6 * PAGE,
            },
            Area {
                offset: 8 * PAGE + 512,
                bytes: 4 * PAGE,
            },
        ];
    });
    set_registers(&fake, &[(2, MEMORY_64, 0)]);
    // A list of one capability: MSI-X, 2 vectors, its table on page 3 of BAR 2 and its pending bits
    // on page 5.
    let poke = |at, bytes: &[u8]| fake.poke(RegionIndex::Config, at, bytes).unwrap();
    poke(0x06, &[1 << 4, 0]);
    poke(0x34, &[0x40]);
    poke(0x40, &[0x11, 0, 1, 0]);
    poke(0x44, &((3 * PAGE as u32) | 2).to_le_bytes());
    poke(0x48, &((5 * PAGE as u32 + 64) | 2).to_le_bytes());
    let fake = Arc::new(fake);
    let backend = Vfio::over(device(&fake), None).unwrap();
    // Pages 0 to 2, 4, and 9 to 11: the last area has three whole ones.
    assert_eq!(backend.attributes().memory_bytes, 7 * PAGE);
}

#[test]
fn a_ring_of_capabilities_ends() {
    let fake = hardware(&[(2, MEMORY_64, PAGE)]);
    let poke = |at, bytes: &[u8]| fake.poke(RegionIndex::Config, at, bytes).unwrap();
    poke(0x06, &[1 << 4, 0]);
    poke(0x34, &[0x40]);
    poke(0x40, &[0x05, 0x40]);
    let backend = Vfio::over(device(&fake), Some(2)).unwrap();
    assert_eq!(backend.attributes().memory_bytes, PAGE);
}

#[test]
fn the_device_can_do_no_dma_and_send_no_interrupt() {
    let fake = hardware(&[(2, MEMORY_64, PAGE)]);
    fake.poke(RegionIndex::Config, 0x04, &[0x07, 0]).unwrap();
    let backend = Vfio::over(device(&fake), None).unwrap();
    let mut command = [0; 2];
    fake.peek(RegionIndex::Config, 0x04, &mut command).unwrap();
    assert_eq!(
        command,
        [0x03, 0],
        "memory stays on, bus mastering does not"
    );
    drop(backend);
    assert_eq!(fake.resets(), 1);
}
