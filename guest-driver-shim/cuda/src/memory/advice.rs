//! What programs advise about managed memory. Advice changes nothing; queries return it.

use crate::error::{Answer, Code};

/// `CU_DEVICE_CPU`
pub(super) const CPU: i32 = -1;
/// `CU_DEVICE_INVALID`
pub(super) const NONE: i32 = -2;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
pub(super) const DEVICE: i32 = 1;
/// `CU_MEM_LOCATION_TYPE_HOST`
pub(super) const HOST: i32 = 2;

/// What the program has advised about managed memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Advice {
    is_read_mostly: bool,
    preferred: Option<Target>,
    pub(super) accessed_by: Vec<Target>,
    pub(super) prefetched: Option<Target>,
}

/// Where memory is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The device with this number.
    Device(i32),
    Host,
}

impl Target {
    /// Returns the number of the device, or that of the CPU.
    pub(super) const fn number(self) -> i32 {
        match self {
            Self::Device(number) => number,
            Self::Host => CPU,
        }
    }

    const fn kind(self) -> i32 {
        match self {
            Self::Device(_) => DEVICE,
            Self::Host => HOST,
        }
    }
}

impl Advice {
    /// Notes a `CUmem_advise`.
    pub(super) fn note(&mut self, advice: u32, target: Target) -> Answer {
        match advice {
            1 => self.is_read_mostly = true,
            2 => self.is_read_mostly = false,
            3 => self.preferred = Some(target),
            4 => self.preferred = None,
            5 if !self.accessed_by.contains(&target) => self.accessed_by.push(target),
            5 => {}
            6 => self.accessed_by.retain(|known| *known != target),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    /// Returns the number that a `CUmem_range_attribute` has, other than the list of who accesses
    /// the memory.
    pub(super) fn number(&self, attribute: u32) -> Answer<i32> {
        let number = |target: Option<Target>| target.map_or(NONE, Target::number);
        let kind = |target: Option<Target>| target.map_or(0, Target::kind);
        // The host has no number.
        let device = |target: Option<Target>| target.map_or(0, |target| target.number().max(0));
        Ok(match attribute {
            1 => i32::from(self.is_read_mostly),
            2 => number(self.preferred),
            4 => number(self.prefetched),
            5 => kind(self.preferred),
            7 => kind(self.prefetched),
            6 => device(self.preferred),
            8 => device(self.prefetched),
            _ => return Err(Code::INVALID_VALUE),
        })
    }
}
