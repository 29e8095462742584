//! Configuration space of a passed-through device, as the guest sees it: some bits are emulated,
//! and some are the device's.

use causeway_host_vfio::{AccessError, Device, RegionIndex};

use crate::pci::ConfigSpace;

/// Bytes that configuration mechanism #1 reaches.
const BYTES: usize = 256;

/// Who decides the value of one bit of a device's configuration space as the guest sees it, and
/// what a guest's store does to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nobody: the bit always has the value that the rule gives.
    Fixed(u16),
    /// The guest: its stores change the emulated bit and do not reach the device. At first the bit
    /// has the value that the rule gives.
    Guest(u16),
    /// The device: the guest's loads read the device's bit, and its stores do nothing.
    Shown,
    /// The device: the guest's loads read the device's bit, and its stores reach the device.
    Passed,
    /// The device: the guest's loads read the device's bit, and a store of one clears it (RW1C).
    Cleared,
}

/// A rule for some bits of one word of configuration space: the bits `mask` of the 16-bit word at
/// `offset` behave as `owner` says. Bits for which there is no rule are always zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Offset of the word, an even number: from the start of configuration space or, in rules for a
    /// capability, from the start of the capability.
    pub offset: u8,
    /// The bits of the word for which the rule is.
    pub mask: u16,
    /// Who decides the values of these bits.
    pub owner: Owner,
}

/// Returns the rule by which the bits `mask` of the word at `offset` behave as `owner` says.
pub const fn patch(offset: u8, mask: u16, owner: Owner) -> Patch {
    Patch {
        offset,
        mask,
        owner,
    }
}

/// The configuration space of a passed-through device as the guest sees it. Each bit is emulated or
/// belongs to the device, as rules ([`Patch`]) say.
pub struct Filter {
    /// The values that the table defines.
    space: ConfigSpace,
    /// Bits that are read from the device.
    shown: [u8; BYTES],
    /// Bits that are stored to the device.
    passed: [u8; BYTES],
    /// Bits that are stored to the device where they are one.
    cleared: [u8; BYTES],
}

impl Filter {
    /// Returns a configuration space with the rules `patches`. Bits for which there is no rule are
    /// zero.
    pub fn new(patches: &[Patch]) -> Self {
        let mut filter = Self {
            space: ConfigSpace::blank(),
            shown: [0; BYTES],
            passed: [0; BYTES],
            cleared: [0; BYTES],
        };
        filter.apply(0, patches);
        filter
    }

    /// Adds the rules `patches` in their order, with `base` added to their offsets. For a bit that
    /// has several rules, the last one counts. Rules for words beyond the end of configuration
    /// space are ignored.
    pub fn apply(&mut self, base: usize, patches: &[Patch]) {
        for patch in patches {
            self.own(base + usize::from(patch.offset), patch.mask, patch.owner);
        }
    }

    /// Adds one rule: from now on, `owner` decides the bits `mask` of the 16-bit word at `offset`.
    /// Does nothing if the word lies beyond the end of configuration space.
    pub fn own(&mut self, offset: usize, mask: u16, owner: Owner) {
        if offset + 2 > BYTES {
            return;
        }
        let (value, writable) = match owner {
            Owner::Fixed(value) => (value, false),
            Owner::Guest(value) => (value, true),
            Owner::Shown | Owner::Passed | Owner::Cleared => (0, false),
        };
        self.space.define_u16(offset, mask, value, writable);
        let from_device = matches!(owner, Owner::Shown | Owner::Passed | Owner::Cleared);
        set(&mut self.shown, offset, mask, from_device);
        set(&mut self.passed, offset, mask, owner == Owner::Passed);
        set(&mut self.cleared, offset, mask, owner == Owner::Cleared);
    }

    /// Returns the emulated part of configuration space, which contains the addresses that the
    /// guest has stored to the BARs.
    pub fn space(&self) -> &ConfigSpace {
        &self.space
    }

    /// Returns the emulated part of configuration space, so that the caller can change it.
    pub fn space_mut(&mut self) -> &mut ConfigSpace {
        &mut self.space
    }

    /// Carries out the guest's load at `offset`, which lies within an aligned 32-bit word, and
    /// fills `into`. Returns whether the access had to read `device`.
    ///
    /// # Errors
    /// [`AccessError`] if the device cannot be read. The bits that belong to the device are then
    /// ones in `into`, as if the device were unplugged.
    pub fn read(&self, device: &Device, offset: u8, into: &mut [u8]) -> Result<bool, AccessError> {
        self.space.read(offset, into);
        let Some(shown) = part(&self.shown, offset, into.len()) else {
            return Ok(false);
        };
        if shown.iter().all(|mask| *mask == 0) {
            return Ok(false);
        }
        let mut word = [0xff; 4];
        let Some(bytes) = word.get_mut(..into.len()) else {
            return Ok(false);
        };
        let result = device.read(RegionIndex::Config, offset.into(), bytes);
        if result.is_err() {
            bytes.fill(0xff);
        }
        for ((byte, mask), own) in into.iter_mut().zip(shown).zip(bytes) {
            *byte = *byte & !mask | *own & mask;
        }
        result.map(|()| true)
    }

    /// Carries out the guest's store of `from` at `offset`, which lies within an aligned 32-bit
    /// word. Returns whether the store reached `device`, as an access of the same width and offset.
    ///
    /// # Errors
    /// [`AccessError`] if the device cannot be read or written.
    pub fn write(&mut self, device: &Device, offset: u8, from: &[u8]) -> Result<bool, AccessError> {
        self.space.write(offset, from);
        let (Some(passed), Some(cleared)) = (
            part(&self.passed, offset, from.len()),
            part(&self.cleared, offset, from.len()),
        ) else {
            return Ok(false);
        };
        let mut word = [0; 4];
        let Some(bytes) = word.get_mut(..from.len()) else {
            return Ok(false);
        };
        if passed.iter().chain(cleared).all(|mask| *mask == 0) {
            return Ok(false);
        }
        // What is not passed on stays as it is. Bits that a one clears are not kept: they would be
        // cleared.
        if passed.iter().any(|mask| *mask != 0xff) {
            device.read(RegionIndex::Config, offset.into(), bytes)?;
        }
        for (((byte, passed), cleared), new) in bytes.iter_mut().zip(passed).zip(cleared).zip(from)
        {
            let told = passed | cleared;
            *byte = *byte & !told | new & told;
        }
        device.write(RegionIndex::Config, offset.into(), bytes)?;
        Ok(true)
    }
}

fn set(bits: &mut [u8; BYTES], offset: usize, mask: u16, on: bool) {
    for (byte, mask) in bits[offset..].iter_mut().zip(mask.to_le_bytes()) {
        *byte = if on { *byte | mask } else { *byte & !mask };
    }
}

fn part(bits: &[u8; BYTES], offset: u8, bytes: usize) -> Option<&[u8]> {
    let start = usize::from(offset);
    bits.get(start..start.checked_add(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_host_vfio::fake::FakeHardware;
    use std::sync::Arc;

    const TABLE: [Patch; 5] = [
        patch(0x40, 0xffff, Owner::Shown),
        patch(0x42, 0x00f0, Owner::Guest(0x0050)),
        patch(0x42, 0x000f, Owner::Passed),
        patch(0x42, 0xf000, Owner::Cleared),
        patch(0x44, 0xffff, Owner::Fixed(0x1234)),
    ];

    fn device(bytes: &[u8]) -> (Arc<FakeHardware>, Device) {
        let fake = Arc::new(FakeHardware::new().unwrap());
        fake.poke(RegionIndex::Config, 0x40, bytes).unwrap();
        let device = fake.device("00:03.0".parse().unwrap()).unwrap();
        (fake, device)
    }

    fn stored(fake: &FakeHardware) -> [u8; 8] {
        let mut bytes = [0; 8];
        fake.peek(RegionIndex::Config, 0x40, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_load_is_put_together_from_both() {
        let (_fake, device) = device(&[0x11, 0x22, 0xff, 0xff, 0xff, 0xff]);
        let filter = Filter::new(&TABLE);
        let read = |offset| {
            let mut bytes = [0; 4];
            let asked = filter.read(&device, offset, &mut bytes).unwrap();
            (bytes, asked)
        };
        assert_eq!(read(0x40), ([0x11, 0x22, 0x5f, 0xf0], true));
        assert_eq!(read(0x44), ([0x34, 0x12, 0, 0], false));
        assert_eq!(read(0xfc), ([0; 4], false));
        let mut byte = [0];
        filter.read(&device, 0x41, &mut byte).unwrap();
        assert_eq!(byte, [0x22]);
    }

    #[test]
    fn a_store_reaches_only_the_bits_that_are_passed_on() {
        let (fake, device) = device(&[0x11, 0x22, 0xa5, 0xff, 0x77, 0x77]);
        let mut filter = Filter::new(&TABLE);
        let mut write = |offset, bytes: &[u8]| filter.write(&device, offset, bytes).unwrap();
        assert!(!write(0x40, &[0, 0]));
        assert!(!write(0x44, &[0; 4]));
        assert_eq!(stored(&fake)[..6], [0x11, 0x22, 0xa5, 0xff, 0x77, 0x77]);
        // Bits 15:12 are stored as the guest stores them: zero clears nothing.
        assert!(write(0x40, &[0, 0, 0xcc, 0x20]));
        assert_eq!(stored(&fake)[..6], [0x11, 0x22, 0xac, 0x2f, 0x77, 0x77]);
        let mut byte = [0];
        filter.read(&device, 0x42, &mut byte).unwrap();
        assert_eq!(byte, [0xcc]);
    }

    #[test]
    fn a_device_that_does_not_answer_reads_ones() {
        let fake = FakeHardware::new().unwrap();
        let fake = fake.with_change(RegionIndex::Config, |region| region.bytes = 0x40);
        let device = Arc::new(fake).device("00:03.0".parse().unwrap()).unwrap();
        let mut filter = Filter::new(&TABLE);
        let mut bytes = [0; 4];
        assert!(filter.read(&device, 0x40, &mut bytes).is_err());
        assert_eq!(bytes, [0xff, 0xff, 0x5f, 0xf0]);
        assert!(filter.write(&device, 0x42, &[0]).is_err());
        filter.read(&device, 0x44, &mut bytes).unwrap();
        assert_eq!(bytes, [0x34, 0x12, 0, 0]);
    }

    #[test]
    fn the_last_patch_that_names_a_bit_counts() {
        let mut filter = Filter::new(&TABLE);
        filter.apply(
            0x40,
            &[
                patch(2, 0xffff, Owner::Fixed(0)),
                patch(0xfe, 1, Owner::Guest(1)),
            ],
        );
        let (fake, device) = device(&[0xff; 6]);
        assert!(!filter.write(&device, 0x42, &[0, 0]).unwrap());
        assert_eq!(stored(&fake)[2..4], [0xff, 0xff]);
    }
}
