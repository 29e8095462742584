//! Pin and messages, from the device to the guest.

use causeway_host_vfio::InterruptKind::{Intx, Msi as MsiKind, Msix as MsixKind};

use super::rig::*;
use crate::interrupts::pci_line;

const ENABLE: u16 = 0x8000;
const MASK_ALL: u16 = 0x4000;

fn msix_control(rig: &Rig, control: u16) {
    rig.store(MSIX + 2, &control.to_le_bytes());
}

/// Programs a vector of the table.
fn program(rig: &Rig, vector: u64, data: u32, masked: bool) {
    let entry = rig.bar(2) + TABLE + 16 * vector;
    let words = [0xfee0_0000, 0, data, u32::from(masked)];
    for (at, word) in (0..).step_by(4).zip(words) {
        assert_eq!(rig.put(entry + at, &word.to_le_bytes()).result, Ok(()));
    }
}

fn pending(rig: &Rig) -> u64 {
    u64::from_le_bytes(rig.load(rig.bar(2) + PENDING).0)
}

/// Messages that KVM knows, by their data.
fn routed(rig: &Rig) -> Vec<u32> {
    let books = rig.chips.books();
    books
        .messages
        .values()
        .map(|message| message.data)
        .collect()
}

#[test]
fn the_pin_is_resampled_until_it_is_disabled() {
    let rig = Rig::new();
    let line = pci_line(1, 1);
    assert_eq!(rig.fake.vectors(Intx), [0]);
    assert!(rig.fake.is_resampled());
    assert!(rig.chips.books().resampled.contains_key(&line));
    assert!(rig.fake.fire(Intx, 0));
    assert!(
        !rig.fake.fire(Intx, 0),
        "masked until the guest has handled it"
    );
    rig.store(4, &[0x06, 0x04]);
    assert!(rig.fake.vectors(Intx).is_empty());
    assert!(rig.chips.books().connected.is_empty());
    rig.store(4, &[0x06, 0]);
    assert_eq!(rig.chips.books().connected.len(), 1);
    assert!(rig.fake.fire(Intx, 0));
}

#[test]
fn messages_replace_the_pin() {
    let rig = Rig::new();
    rig.store(MSI + 4, &0xfee0_1000_u32.to_le_bytes());
    rig.store(MSI + 12, &0x42_u16.to_le_bytes());
    // Four are there, two are granted.
    assert_eq!(rig.config(MSI + 2), [0x84, 0x01]);
    rig.store(MSI + 2, &[0x11, 0]);
    assert_eq!(rig.fake.vectors(MsiKind), [0, 1]);
    assert!(rig.fake.vectors(Intx).is_empty());
    assert_eq!(routed(&rig), [0x42, 0x43]);
    // More than there are.
    rig.store(MSI + 2, &[0x71, 0]);
    assert_eq!(rig.fake.vectors(MsiKind), [0, 1, 2, 3]);
    assert_eq!(routed(&rig), [0x40, 0x41, 0x42, 0x43]);
    rig.store(MSI + 2, &[0, 0]);
    assert!(rig.fake.vectors(MsiKind).is_empty() && routed(&rig).is_empty());
    assert_eq!(rig.fake.vectors(Intx), [0]);
    assert_eq!(rig.own(MSI + 2), [0x84, 0x01], "the kernel's to program");
}

#[test]
fn a_masked_message_is_pending() {
    let rig = Rig::new();
    rig.store(MSI + 2, &[0x21, 0]);
    rig.store(MSI + 16, &0b0100_u32.to_le_bytes());
    assert_eq!(rig.fake.vectors(MsiKind), [0, 1, 2, 3]);
    assert_eq!(routed(&rig), [0, 1, 3]);
    assert!(rig.fake.fire(MsiKind, 2));
    assert_eq!(rig.config32(MSI + 20), 0b0100);
    rig.store(MSI + 20, &[0; 4]);
    assert_eq!(rig.config32(MSI + 20), 0b0100, "read-only");
    rig.store(MSI + 16, &[0; 4]);
    assert_eq!(
        (routed(&rig), rig.config32(MSI + 20)),
        (vec![0, 1, 2, 3], 0)
    );
}

#[test]
fn the_table_says_what_a_vector_raises() {
    let rig = Rig::new();
    assert_eq!(rig.config(MSIX + 2), [7, 0]);
    msix_control(&rig, ENABLE | MASK_ALL);
    let all: Vec<u32> = (0..VECTORS.into()).collect();
    assert_eq!(rig.fake.vectors(MsixKind), all, "masked or not");
    program(&rig, 1, 0x31, false);
    program(&rig, 3, 0x33, true);
    assert!(routed(&rig).is_empty());
    assert!(rig.fake.fire(MsixKind, 1) && rig.fake.fire(MsixKind, 3));
    assert_eq!(pending(&rig), 0b1010);
    msix_control(&rig, ENABLE);
    assert_eq!((routed(&rig), pending(&rig)), (vec![0x31], 0b1000));
    program(&rig, 3, 0x33, false);
    assert_eq!((routed(&rig), pending(&rig)), (vec![0x31, 0x33], 0));
    program(&rig, 1, 0x31, true);
    assert!(rig.fake.fire(MsixKind, 1));
    msix_control(&rig, 0);
    assert!(rig.fake.vectors(MsixKind).is_empty() && routed(&rig).is_empty());
    msix_control(&rig, ENABLE | MASK_ALL);
    assert_eq!(
        pending(&rig),
        0,
        "what was pending is gone with what was enabled"
    );
}

#[test]
fn of_both_kinds_of_messages_msix_counts() {
    let rig = Rig::new();
    rig.store(MSI + 2, &[1, 0]);
    msix_control(&rig, ENABLE);
    assert!(rig.fake.vectors(MsiKind).is_empty());
    assert_eq!(rig.fake.vectors(MsixKind).len(), usize::from(VECTORS));
    msix_control(&rig, 0);
    assert_eq!(rig.fake.vectors(MsiKind), [0]);
}

#[test]
fn what_the_kernel_refuses_is_counted_and_the_guest_goes_on() {
    let mut rig = Rig::new();
    rig.fake.refuse_interrupts(true);
    msix_control(&rig, ENABLE);
    assert!(rig.fake.vectors(MsixKind).is_empty());
    rig.fake.refuse_interrupts(false);
    program(&rig, 2, 0x32, false);
    assert_eq!(
        rig.fake.vectors(MsixKind),
        [0, 1, 2],
        "what it has programmed, after all"
    );
    rig.passed.release();
    let [report] = rig.passed.reports() else {
        panic!("one device")
    };
    assert_eq!(
        (report.interrupts.mode, report.interrupts.vectors),
        ("MSI-X", 3)
    );
    assert!(report.failures > 0);
}
