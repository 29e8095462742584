//! What work takes of a device that executes it on threads of the host.

use std::ops::AddAssign;

/// What work has taken of a device whose units are processor cores, added up over the units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of the work, in nanoseconds.
    pub busy_ns: u64,
    /// Time that the work has taken by the clock, in nanoseconds.
    pub elapsed_ns: u64,
    /// The same for each unit for which the work had something to do, added up over the units,
    /// whether it got them or not.
    pub wanted_ns: u64,
}

impl Usage {
    /// Returns what work has taken that was executed by one thread in `elapsed_ns` nanoseconds.
    pub fn of_one_unit(elapsed_ns: u64) -> Self {
        Self {
            busy_ns: elapsed_ns,
            elapsed_ns,
            wanted_ns: elapsed_ns,
        }
    }

    /// Returns the mean number of units for which the work had something to do, rounded; `None` if
    /// there was no work.
    pub fn width(&self) -> Option<u64> {
        let half_ns = self.elapsed_ns / 2;
        let wanted_ns = self.wanted_ns.saturating_add(half_ns);
        wanted_ns.checked_div(self.elapsed_ns)
    }

    /// Returns whether the work had the processor for less than half of the time that it wanted it.
    /// Then the host has fewer cores to spare than the device has units.
    pub fn is_starved(&self) -> bool {
        self.busy_ns < self.wanted_ns / 2
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.busy_ns = self.busy_ns.saturating_add(more.busy_ns);
        self.elapsed_ns = self.elapsed_ns.saturating_add(more.elapsed_ns);
        self.wanted_ns = self.wanted_ns.saturating_add(more.wanted_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_starved_below_half_of_the_time_that_it_wanted() {
        let is_starved = |busy_ns| {
            let usage = Usage {
                busy_ns,
                elapsed_ns: 50,
                wanted_ns: 100,
            };
            usage.is_starved()
        };
        assert!(is_starved(0) && is_starved(49));
        assert!(!is_starved(50) && !is_starved(51));
    }
}
