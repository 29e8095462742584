//! MSI, the older of the two capabilities for message-signalled interrupts (PCI Local Bus
//! Specification 3.0, 6.8.1).

use std::io;
use std::sync::Arc;

use causeway_host_vfio::{AccessError, Device, InterruptKind, RegionIndex};

use super::filter::Owner::{Fixed, Guest};
use super::filter::{Patch, patch};
use crate::interrupts::{InterruptController, MessageInterrupt, MsiMessage};
use crate::pci::ConfigSpace;

/// Message control bit: the function raises messages, and no pin.
const ENABLE: u16 = 1 << 0;
/// Message control bit: the address is of 64 bits.
const WIDE: u16 = 1 << 7;
/// Message control bit: each vector can be masked.
const MASKABLE: u16 = 1 << 8;
/// Bytes of configuration space in which capabilities lie.
const CONFIG_BYTES: usize = 256;
/// Most vectors, as a power of two.
const VECTORS_LOG_MAX: u16 = 5;

/// The MSI capability of a passed-through device, as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiCapability {
    /// Offset of the MSI capability in configuration space.
    pub offset: u8,
    /// Number of vectors, as its logarithm to base 2: 0 for one vector to 5 for 32 vectors.
    pub vectors_log: u16,
    wide: bool,
    maskable: bool,
}

impl MsiCapability {
    /// Returns the MSI capability that `device` has at `offset` of configuration space. It has no
    /// more vectors than VFIO can signal. Returns `None` if VFIO cannot signal any, or the
    /// capability does not fit into configuration space.
    ///
    /// # Errors
    /// [`AccessError`] if the device's configuration space cannot be read.
    pub fn of(device: &Device, offset: u8) -> Result<Option<Self>, AccessError> {
        let control = device.read_u16(RegionIndex::Config, u64::from(offset) + 2)?;
        let info = device.interrupts(InterruptKind::Msi);
        if info.count == 0 || !info.eventfd {
            return Ok(None);
        }
        let capable = (control >> 1 & 7).min(VECTORS_LOG_MAX);
        let msi = Self {
            offset,
            vectors_log: capable.min(info.count.ilog2() as u16),
            wide: control & WIDE != 0,
            maskable: control & MASKABLE != 0,
        };
        Ok(Some(msi).filter(|msi| msi.end() <= CONFIG_BYTES))
    }

    /// Returns one past its last byte in configuration space: that of the pending bits, or of the
    /// data.
    fn end(&self) -> usize {
        let behind_data = if self.maskable { 12 } else { 2 };
        usize::from(self.offset) + usize::from(self.data()) + behind_data
    }

    /// Returns the rules for the bits of the capability, with offsets from its start. The guest
    /// decides the enable bit, the number of vectors, address, data and masks; its stores do not
    /// reach the device.
    pub fn patches(&self) -> Vec<Patch> {
        let flag = |on: bool, bit: u16| if on { bit } else { 0 };
        let fixed = self.vectors_log << 1 | flag(self.wide, WIDE) | flag(self.maskable, MASKABLE);
        let mut patches = vec![
            patch(2, !0, Fixed(fixed)),
            patch(2, ENABLE | 7 << 4, Guest(0)),
            patch(4, 0xfffc, Guest(0)),
            patch(6, 0xffff, Guest(0)),
        ];
        if self.wide {
            patches.extend([8, 10].map(|at| patch(at, 0xffff, Guest(0))));
        }
        let data = self.data();
        patches.push(patch(data, 0xffff, Guest(0)));
        if self.maskable {
            let vectors = self.all_vectors();
            patches.push(patch(data + 2, 0xffff, Fixed(0)));
            patches.push(patch(data + 4, vectors as u16, Guest(0)));
            patches.push(patch(data + 6, (vectors >> 16) as u16, Guest(0)));
            patches.extend([8, 10].map(|at| patch(data + at, 0xffff, Fixed(0))));
        }
        patches
    }

    /// Returns the number of vectors that the guest has enabled: 0 if MSI is disabled.
    pub fn enabled(&self, space: &ConfigSpace) -> usize {
        let control = space.u16(usize::from(self.offset) + 2);
        let granted = (control >> 4 & 7).min(self.vectors_log);
        match control & ENABLE {
            0 => 0,
            _ => 1 << granted,
        }
    }

    /// Returns the interrupt message that the guest has stored to `space`, its configuration space,
    /// for vector number `vector`. Returns `None` if the vector is masked or not enabled.
    pub fn message(&self, space: &ConfigSpace, vector: usize) -> Option<MsiMessage> {
        let base = usize::from(self.offset);
        let enabled = self.enabled(space);
        let data_at = base + usize::from(self.data());
        let masked = self.maskable && space.u32(data_at + 4) >> vector & 1 != 0;
        if vector >= enabled || masked {
            return None;
        }
        let high = if self.wide { space.u32(base + 8) } else { 0 };
        let data = u32::from(space.u16(data_at));
        Some(MsiMessage {
            address: u64::from(high) << 32 | u64::from(space.u32(base + 4)),
            // The function changes as many of the low bits as it takes to tell its vectors apart.
            data: data & !(enabled as u32 - 1) | vector as u32,
        })
    }

    /// Returns the offset in configuration space of the pending bits; `None` if the capability has
    /// none, because its vectors cannot be masked.
    pub fn pending(&self) -> Option<u8> {
        self.maskable.then(|| self.offset + self.data() + 8)
    }

    /// Returns the offset of the data in the capability.
    fn data(&self) -> u8 {
        if self.wide { 12 } else { 8 }
    }

    /// Returns a mask with a bit for each vector of the capability.
    fn all_vectors(&self) -> u32 {
        ((1_u64 << (1 << self.vectors_log)) - 1) as u32
    }
}

/// The MSI vectors of a passed-through device, each of which is connected to an interrupt of the
/// guest.
pub struct MsiVectors {
    /// The capability to which the vectors belong.
    pub capability: MsiCapability,
    /// The guest's interrupts, one for each vector, by vector number.
    pub interrupts: Vec<MessageInterrupt>,
}

impl MsiVectors {
    /// Returns the vectors of `capability`, all masked. The interrupt of the guest for each comes
    /// from `controller`.
    ///
    /// # Errors
    /// `ENOSPC` if the VM has too many message interrupts, `EMFILE` or `ENFILE` if no descriptor is
    /// left for an eventfd.
    pub fn new(
        capability: MsiCapability,
        controller: &Arc<InterruptController>,
    ) -> io::Result<Self> {
        let interrupts = (0..1 << capability.vectors_log).map(|_| controller.message());
        Ok(Self {
            capability,
            interrupts: interrupts.collect::<io::Result<_>>()?,
        })
    }

    /// Gives each vector the interrupt message that the guest has stored to `space`, its
    /// configuration space, or masks the vector if it has none there.
    ///
    /// # Errors
    /// The hypervisor's error for the first message that it refuses; that vector stays masked.
    pub fn route(&self, space: &ConfigSpace) -> io::Result<()> {
        let mut result = Ok(());
        for (vector, interrupt) in self.interrupts.iter().enumerate() {
            let set = interrupt.set(self.capability.message(space, vector));
            result = result.and(set);
        }
        result
    }

    /// Returns MSI's pending bits: bit n is set if vector n was raised while it was masked.
    pub fn pending(&self) -> u32 {
        let pending = self.interrupts.iter().map(MessageInterrupt::is_pending);
        pending.enumerate().fold(0, |bits, (vector, pending)| {
            bits | u32::from(pending) << vector
        })
    }

    /// Clears MSI's pending bits: no vector is pending afterwards.
    pub fn clear_pending(&self) {
        let interrupts = self.interrupts.iter();
        interrupts.for_each(MessageInterrupt::clear_pending);
    }
}
