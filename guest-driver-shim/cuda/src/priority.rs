//! Priorities of streams: a smaller number is more urgent, and 0 is the least urgent.

use causeway_protocol::registers::features;
use causeway_shim_linux::shim::Device;

/// The most urgent priority where the host has none: that of today's GPUs. CUDA documents an empty
/// range for devices without priorities, but PyTorch takes that for an error
/// (`torch.cuda.Stream.priority_range`). So the library takes priorities and tells them, and they
/// have no effect.
const GREATEST_WITHOUT_EFFECT: i32 = -5;

/// The priorities that streams can have.
pub(crate) struct Priorities {
    greatest: i32,
    /// Whether the host has priorities.
    take_effect: bool,
}

impl Priorities {
    /// Returns those of a device, of which the library uses `used_features`.
    pub(crate) fn of(device: &Device<'_>, used_features: u64) -> Self {
        match used_features & features::PRIORITIES {
            0 => Self::up_to(0),
            _ => Self::up_to(device.greatest_priority()),
        }
    }

    /// Returns those of a host whose most urgent is `greatest`; 0 if it has none.
    fn up_to(greatest: i32) -> Self {
        Self {
            greatest: if greatest < 0 {
                greatest
            } else {
                GREATEST_WITHOUT_EFFECT
            },
            take_effect: greatest < 0,
        }
    }

    /// Returns the most urgent priority.
    pub(crate) const fn greatest(&self) -> i32 {
        self.greatest
    }

    /// Returns `priority` brought into the range, as NVIDIA's driver does.
    pub(crate) fn within(&self, priority: i32) -> i32 {
        priority.clamp(self.greatest, 0)
    }

    /// Returns the priority of the ring for streams of `priority`, which is within the range.
    pub(crate) const fn of_ring(&self, priority: i32) -> i32 {
        if self.take_effect { priority } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_the_hosts() {
        let host = Priorities::up_to(-2);
        assert_eq!(host.greatest(), -2);
        assert_eq!([-9, -1, 4].map(|wanted| host.within(wanted)), [-2, -1, 0]);
        assert_eq!(host.of_ring(-2), -2);
    }

    #[test]
    fn a_host_without_priorities_has_rings_of_one_kind() {
        let host = Priorities::up_to(0);
        assert_eq!(host.greatest(), -5, "what PyTorch expects");
        assert_eq!(host.within(-99), -5);
        assert_eq!(host.of_ring(-5), 0);
    }
}
