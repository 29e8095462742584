//! What the guest sees in configuration space.

use causeway_host_vfio::RegionIndex;

use super::rig::*;

#[test]
fn the_function_is_the_devices_own_but_for_what_is_the_guests() {
    let rig = Rig::new();
    assert_eq!(rig.config32(0), 0x11e8_1234);
    assert_eq!(rig.config32(8), 0x00ff_0010);
    assert_eq!(rig.config32(0x2c), 0x1100_1af4);
    let [cache_line, latency, kind, test] = rig.config(0x0c);
    assert_eq!(
        (cache_line, latency, kind, test),
        (0, 0, 0, 0),
        "one function"
    );
    // INTA#, whatever the device has.
    let line = crate::interrupts::pci_line(1, 1) as u8;
    assert_eq!(rig.config(0x3c), [line, 1, 3, 4]);
    rig.store(0x3c, &[5, 9]);
    assert_eq!(rig.config(0x3c), [5, 1]);
    assert_eq!(rig.own(0x3c), [0x0b, 0x02]);
}

#[test]
fn capabilities_are_linked_past_those_that_are_not_shown() {
    let rig = Rig::new();
    let [mut at] = rig.config(0x34);
    let mut found = Vec::new();
    while at != 0 {
        let [id, next] = rig.config(at);
        found.push((id, at));
        at = next;
    }
    let shown = [
        (1, POWER),
        (5, MSI),
        (0x10, EXPRESS),
        (9, VENDOR),
        (0x11, MSIX),
    ];
    assert_eq!(found, shown);
    assert_eq!(rig.config(PRODUCT_DATA), [0; 4]);
    assert_eq!(rig.config(ADVANCED), [0; 4]);
    assert_ne!(rig.config32(4) >> 16 & 0x10, 0);
}

#[test]
fn resets_and_power_are_out_of_reach() {
    let rig = Rig::new();
    // No wake-up events, no D1 and D2; D3hot is the guest's word only.
    assert_eq!(rig.config(POWER + 2), [0x27, 0, 0x08, 0]);
    rig.store(POWER + 4, &[0xff, 0xff]);
    assert_eq!(rig.config(POWER + 4), [0x0b, 0]);
    assert_eq!(rig.own(POWER + 4), [0x00, 0x81]);
    // An endpoint within the root complex, of version 2, which has no reset of its own.
    assert_eq!(rig.config(EXPRESS + 2), [0x92, 0]);
    assert_eq!(rig.config32(EXPRESS + 4), 0x0000_8fc0);
    rig.store(EXPRESS + 8, &[0xff; 4]);
    assert_eq!(rig.own(EXPRESS + 8), [0x10, 0x28, 0x05, 0]);
}

#[test]
fn the_vendors_capability_is_passed_on_whole_and_no_further() {
    let rig = Rig::new();
    assert_eq!(rig.config(VENDOR + 4), [2, 3, 4, 5]);
    rig.store(VENDOR + 4, &[0xaa; 4]);
    rig.store(VENDOR + 0x10, &[0xbb; 4]);
    rig.store(VENDOR, &[0xff; 2]);
    rig.store(VENDOR + 2, &[0xff]);
    assert_eq!(
        rig.own(VENDOR),
        [0x09, MSIX, VENDOR_BYTES, 1, 0xaa, 0xaa, 0xaa, 0xaa]
    );
    assert_eq!(rig.own(VENDOR + 0x10), [0xbb, 0xbb, 0, 0], "it ends there");
}

#[test]
fn bus_mastering_is_the_devices_and_memory_decoding_the_guests() {
    let rig = Rig::new();
    assert_eq!(rig.config(4), [2, 0]);
    rig.store(4, &[0xff, 0xff]);
    assert_eq!(rig.config(4), [0x46, 0x05]);
    assert_eq!(rig.own(4), [0x46, 0x01], "INTx is disabled by us");
    rig.store(4, &[0, 0]);
    assert_eq!(rig.config(4), [0, 0]);
    assert_eq!(rig.own(4), [0x02, 0], "it decodes on");
}

#[test]
fn errors_are_cleared_where_the_guest_stores_ones() {
    let rig = Rig::new();
    rig.store(4, &[6, 0, 0, 0x80]);
    // A real device would clear the bit; the fake keeps what it is told.
    assert_eq!(rig.own(4), [6, 0, 0x10, 0x80]);
    rig.fake
        .poke(RegionIndex::Config, 6, &[0x10, 0xf0])
        .unwrap();
    rig.store(4, &[2, 0]);
    assert_eq!(rig.own(4), [2, 0, 0x10, 0xf0], "a store beside it");
    rig.store(4, &[2, 0, 0, 0x40]);
    assert_eq!(rig.own(7), [0x40], "no other bit is told to clear");
}
