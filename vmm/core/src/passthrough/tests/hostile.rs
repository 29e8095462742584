//! A guest that breaks the rules: stores of every width to every offset, BARs anywhere, virtual
//! CPUs that race.

use std::sync::Barrier;

use causeway_host_vfio::RegionIndex;

use super::rig::*;
use crate::bus::GuestAddress;

/// SplitMix64 (Steele, Lea, Flood, 2014).
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit
    }

    /// Returns a place that matters: RAM, where BARs begin, somewhere near, or anywhere.
    fn place(&mut self) -> u64 {
        let near = self.below(4) << 12;
        match self.below(5) {
            0 => near,
            1 => (0xe000_0000 + (self.below(64) << 20)) | near,
            2 => (5 << 30) + (self.below(64) << 16),
            3 => u64::MAX << self.below(40),
            _ => self.word(),
        }
    }
}

/// Returns an access to configuration space as the bus makes them: 1, 2 or 4 bytes within an
/// aligned word.
fn config_access(random: &mut Random) -> (u8, Vec<u8>) {
    let bytes = 1 << random.below(3);
    let offset = random.below(256 / bytes) * bytes;
    let value = if random.below(2) == 0 {
        random.place()
    } else {
        random.word()
    };
    (offset as u8, value.to_le_bytes()[..bytes as usize].to_vec())
}

/// No slot covers RAM or another slot, and none is beyond the guest's addresses.
fn check_slots(rig: &Rig) {
    let mut end = RAM_BYTES;
    for (gpa, bytes) in rig.slots() {
        assert!(gpa >= end && gpa + bytes <= 1 << 40, "{gpa:#x}+{bytes:#x}");
        end = gpa + bytes;
    }
}

/// What of the device's own configuration space the guest may change.
fn is_passed_on(offset: u8) -> bool {
    (4..8).contains(&offset) || (VENDOR + 3..VENDOR + VENDOR_BYTES).contains(&offset)
}

fn own(rig: &Rig) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    rig.fake.peek(RegionIndex::Config, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn stores_of_every_width_to_every_offset_change_nothing_of_the_devices_but_what_is_passed_on() {
    let rig = Rig::new();
    let before = own(&rig);
    for value in [0xff, 0x00, 0x55] {
        for bytes in [1_u16, 2, 4] {
            for offset in (0..256).step_by(bytes.into()) {
                rig.store(offset as u8, &[value; 4][..bytes.into()]);
                check_slots(&rig);
            }
        }
    }
    for (offset, (before, after)) in before.iter().zip(own(&rig)).enumerate() {
        let passed_on = u8::try_from(offset).is_ok_and(is_passed_on);
        assert!(
            passed_on || *before == after,
            "{offset:#x}: {before:#x} became {after:#x}"
        );
    }
    // Command: bus mastering and errors only. The device decodes on, and the kernel disables its
    // pin.
    let [low, high] = rig.own(4);
    assert_eq!((low & !0x44, high & !0x01), (0x02, 0));
}

#[test]
fn messages_whose_registers_are_not_all_in_configuration_space_are_not_shown() {
    // 20 bytes with 32-bit addresses and masks, 24 with 64-bit ones, 10 and 14 without masks.
    for (control, bytes) in [
        (0x0104_u16, 20_u8),
        (0x0184, 24),
        (0x0004, 10),
        (0x0084, 14),
    ] {
        let fits = (0_u8.wrapping_sub(bytes) & !3, true);
        for (offset, shown) in [fits, (fits.0 + 4, false)] {
            let fake = hardware();
            let [low, high] = control.to_le_bytes();
            let entry = [0x05, EXPRESS, low, high];
            let config = RegionIndex::Config;
            fake.poke(config, u64::from(POWER) + 1, &[offset]).unwrap();
            fake.poke(config, offset.into(), &entry).unwrap();
            let rig = Rig::with(fake).unwrap();
            let next = if shown { offset } else { EXPRESS };
            assert_eq!(rig.config(POWER + 1), [next], "{bytes} at {offset:#x}");
            let command = rig.config::<2>(4);
            for at in (offset..=0xfc).step_by(4) {
                rig.store(at, &[0xff; 4]);
            }
            assert_eq!(rig.config::<2>(4), command);
        }
    }
}

#[test]
fn whatever_a_guest_does_slots_keep_off_what_is_not_theirs() {
    for seed in 0..20 {
        let mut rig = Rig::new();
        let random = &mut Random(seed);
        for _ in 0..300 {
            match random.below(4) {
                0 | 1 => {
                    let (offset, bytes) = config_access(random);
                    rig.store(offset, &bytes);
                }
                2 => {
                    let (offset, mut bytes) = config_access(random);
                    rig.function.read_config(offset, &mut bytes);
                }
                _ => {
                    let address = GuestAddress(rig.bar(2).wrapping_add(random.below(BAR2_BYTES)));
                    let mut bytes = random.word().to_le_bytes();
                    let width = 1 << random.below(4);
                    let _ = rig.bus.write(address, &bytes[..width]);
                    let _ = rig.bus.read(address, &mut bytes[..width]);
                }
            }
            check_slots(&rig);
        }
        rig.passed.release();
        assert!(rig.slots().is_empty(), "seed {seed}");
        assert!(rig.chips.books().connected.is_empty(), "seed {seed}");
    }
}

#[test]
fn virtual_cpus_that_race_leave_nothing_behind() {
    let mut rig = Rig::new();
    let (function, bus) = (rig.function.clone(), rig.bus.clone());
    let (two, start) = (rig.bar(2), Barrier::new(4));
    std::thread::scope(|scope| {
        for vcpu in 0..4 {
            let (function, bus, start) = (&function, &bus, &start);
            scope.spawn(move || {
                let random = &mut Random(vcpu);
                start.wait();
                for _ in 0..500 {
                    let (offset, bytes) = config_access(random);
                    match vcpu {
                        // One moves BARs, one enables and disables messages, the others use the
                        // device.
                        0 => function.write_config(
                            0x10 + offset % 0x18 / 4 * 4,
                            &random.place().to_le_bytes()[..4],
                        ),
                        1 => function.write_config(MSIX, &(random.word() as u32).to_le_bytes()),
                        2 => function.write_config(offset, &bytes),
                        _ => {
                            let table = two + TABLE + random.below(u64::from(VECTORS) * 16) / 4 * 4;
                            let _ = bus.write(GuestAddress(table), &[random.word() as u8; 4]);
                        }
                    }
                }
            });
        }
    });
    check_slots(&rig);
    rig.passed.release();
    assert!(rig.slots().is_empty());
    let books = rig.chips.books();
    assert!(books.messages.is_empty() && books.connected.is_empty());
}
