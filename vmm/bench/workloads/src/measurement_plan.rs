//! The plan of a benchmark: which workloads, sizes and mechanisms it measures. The command makes
//! the plan from its arguments, and passes it to the guest as the guest's argument text.

use core::fmt;

use crate::{Cell, DeviceMemory, Exclusion, MECHANISMS, MechanismKind, WORKLOADS, WorkloadKind};

/// How many sizes a benchmark measures, and how many operations a sample has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Few and small sizes. The benchmark takes about 90 seconds on two cores.
    Quick,
    /// All sizes, with as many operations as precise figures need.
    Full,
}

/// Maximum number of samples that a benchmark may take of each cell.
pub const REPETITIONS_MAX: u32 = 200;

/// Returns which of `count` mechanisms, by index, is measured at position `place` (from 0) of
/// repetition `repetition`.
///
/// The order is a Williams design (E. J. Williams, 1949): over `count` repetitions, or twice as
/// many if `count` is odd, each mechanism is at each position equally often, and follows each other
/// mechanism equally often.
#[must_use]
pub const fn place_in_turn(repetition: u64, count: usize, place: usize) -> usize {
    let repetition = repetition as usize;
    let is_reversed = count % 2 == 1 && (repetition / count) % 2 == 1;
    let place = if is_reversed {
        count - 1 - place
    } else {
        place
    };
    // 0, 1, count - 1, 2, count - 2, …
    let step = place.div_ceil(2);
    let first = if place % 2 == 1 { step } else { count - step };
    (first + repetition) % count
}

/// Which cells a benchmark measures. A cell is a workload at one size by one mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many sizes to measure, and with how many operations in a sample.
    pub effort: Effort,
    /// Number of samples of each cell.
    pub repetitions: u32,
    /// Memory of the device that is passed through to the guest, or `None` without a device.
    pub device: Option<DeviceMemory>,
    workloads: u32,
    mechanisms: u32,
}

/// A word of a plan's text that [`Plan::parse`] does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid argument `{0}` of the guest: write quick, repetitions=N, workloads=BITS, \
     mechanisms=BITS or device=VENDOR:DEVICE:BAR:OFFSET:BYTES, separated by commas (BITS is a \
     bit mask in decimal, with a bit for each number of a workload or mechanism)"
)]
pub struct BadArgument<'a>(pub &'a str);

impl Plan {
    /// Returns a plan of all workloads and all mechanisms that need no passed-through device, with
    /// `repetitions` samples of each cell.
    #[must_use]
    pub const fn all(effort: Effort, repetitions: u32) -> Self {
        Self {
            effort,
            repetitions,
            device: None,
            workloads: u32::MAX,
            mechanisms: u32::MAX,
        }
    }

    /// Returns this plan, restricted to `workloads`.
    #[must_use]
    pub fn of_workloads(self, workloads: &[WorkloadKind]) -> Self {
        let bits = workloads.iter().fold(0, |bits, w| bits | 1 << *w as u32);
        Self {
            workloads: bits,
            ..self
        }
    }

    /// Returns this plan, restricted to `mechanisms`.
    #[must_use]
    pub fn of_mechanisms(self, mechanisms: &[MechanismKind]) -> Self {
        let bits = mechanisms.iter().fold(0, |bits, m| bits | 1 << *m as u32);
        Self {
            mechanisms: bits,
            ..self
        }
    }

    /// Returns the workloads of the plan, in the order of the table.
    pub fn workloads(self) -> impl Iterator<Item = WorkloadKind> {
        let all = WORKLOADS.into_iter();
        all.filter(move |w| self.workloads & 1 << *w as u32 != 0)
    }

    /// Returns this plan with `device` as the memory of the device that is passed through to the
    /// guest.
    #[must_use]
    pub fn with_device(self, device: Option<DeviceMemory>) -> Self {
        Self { device, ..self }
    }

    /// Returns the mechanisms of the plan, in the order of the table. Mechanisms that need a
    /// passed-through device are left out if there is none.
    pub fn mechanisms(self) -> impl Iterator<Item = MechanismKind> {
        let asked = self.asked_mechanisms();
        asked.filter(move |m| self.device.is_some() || !m.is_of_device())
    }

    /// Returns the mechanisms of the plan, in the order of the table, including those that need a
    /// device even if there is none.
    pub fn asked_mechanisms(self) -> impl Iterator<Item = MechanismKind> {
        let all = MECHANISMS.into_iter();
        all.filter(move |m| self.mechanisms & 1 << *m as u32 != 0)
    }

    /// Returns the cell of `workload` at `size` by `mechanism`, with the number of operations in a
    /// sample.
    ///
    /// # Errors
    /// [`Exclusion`] says why the mechanism does not run the workload at this size.
    pub fn cell(
        self,
        workload: WorkloadKind,
        mechanism: MechanismKind,
        size: u64,
    ) -> Result<Cell, Exclusion> {
        if mechanism.is_of_device() {
            let device = self.device.ok_or(Exclusion::NoDevice)?;
            let description = workload.description();
            if description.launches {
                return Err(Exclusion::NoKernels);
            }
            if !description.is_data {
                return Err(Exclusion::NoAllocator);
            }
            // What is left are loads, stores and copies of as many bytes as the size says.
            if size > device.bytes {
                let bytes = device.bytes;
                return Err(Exclusion::Memory { bytes });
            }
        }
        let cell = workload.cell(mechanism, self.effort, size);
        cell.ok_or(Exclusion::Exits)
    }

    /// Returns whether `cell` may be measured with the plan's effort and device, and has the right
    /// number of operations. The answer does not depend on the workloads and mechanisms to which
    /// the plan is restricted.
    #[must_use]
    pub fn has(self, cell: &Cell) -> bool {
        (cell.workload.description().sizes)(self.effort).contains(&cell.size)
            && self.cell(cell.workload, cell.mechanism, cell.size) == Ok(*cell)
    }

    /// Returns all cells of the plan, sorted by workload, size and mechanism.
    pub fn cells(self) -> impl Iterator<Item = Cell> {
        self.workloads().flat_map(move |workload| {
            let sizes = (workload.description().sizes)(self.effort).iter();
            sizes.flat_map(move |size| {
                let mechanisms = self.mechanisms();
                mechanisms.filter_map(move |mechanism| self.cell(workload, mechanism, *size).ok())
            })
        })
    }

    /// Parses the text of a plan, which the command passes to the guest: words separated by commas,
    /// each `quick`, `repetitions=N`, `workloads=BITS`, `mechanisms=BITS` or
    /// `device=VENDOR:DEVICE:BAR:OFFSET:BYTES`. BITS is a decimal number whose bit N stands for the
    /// workload or mechanism with number N. Without a word, the plan has all workloads, mechanisms
    /// and sizes, and 24 repetitions.
    ///
    /// # Errors
    /// [`BadArgument`] with the first word that is not one of these.
    pub fn parse(text: &str) -> Result<Self, BadArgument<'_>> {
        let mut plan = Self::all(Effort::Full, 24);
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let bad = BadArgument(word);
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<u32>().map_err(|_| bad);
            match name {
                "quick" if value.is_empty() => plan.effort = Effort::Quick,
                "repetitions" => {
                    let count = number()?;
                    let good = (1..=REPETITIONS_MAX).contains(&count);
                    plan.repetitions = good.then_some(count).ok_or(bad)?;
                }
                "workloads" => plan.workloads = number()?,
                "mechanisms" => plan.mechanisms = number()?,
                "device" => plan.device = Some(DeviceMemory::parse(value).ok_or(bad)?),
                _ => return Err(bad),
            }
        }
        Ok(plan)
    }
}

impl fmt::Display for Plan {
    /// Writes the plan as the text that [`Self::parse`] parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.effort == Effort::Quick {
            f.write_str("quick,")?;
        }
        write!(
            f,
            "repetitions={},workloads={},mechanisms={}",
            self.repetitions, self.workloads, self.mechanisms
        )?;
        match self.device {
            Some(device) => write!(f, ",device={device}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    /// A device with a megabyte of memory.
    const DEVICE: DeviceMemory = DeviceMemory {
        vendor: 0x1af4,
        device: 0x1110,
        bar: 2,
        offset: 0,
        bytes: 1 << 20,
    };

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let plans = [
            Plan::all(Effort::Full, 20),
            Plan::all(Effort::Quick, 1).with_device(Some(DEVICE)),
            Plan::all(Effort::Quick, 5)
                .of_workloads(&[WORKLOADS[1]])
                .of_mechanisms(&[MechanismKind::Trap, MechanismKind::Native]),
        ];
        for plan in plans {
            assert_eq!(Plan::parse(&plan.to_string()), Ok(plan));
        }
        assert_eq!(plans[2].workloads().collect::<Vec<_>>(), [WORKLOADS[1]]);
        assert_eq!(plans[2].mechanisms().count(), 2);
    }

    #[test]
    fn each_is_as_often_in_each_place_and_behind_each_other() {
        for count in 1..=6 {
            let turns = count * (1 + count % 2);
            let mut places = std::vec![0; count * count];
            let mut behind = std::vec![0; count * count];
            for turn in 0..turns {
                let order: Vec<usize> = (0..count)
                    .map(|place| place_in_turn(turn as u64, count, place))
                    .collect();
                for (place, mechanism) in order.iter().enumerate() {
                    places[place * count + mechanism] += 1;
                }
                for pair in order.windows(2) {
                    behind[pair[0] * count + pair[1]] += 1;
                }
            }
            assert!(places.iter().all(|n| *n == turns / count), "{places:?}");
            let pairs = (0..count * count).filter(|pair| pair / count != pair % count);
            let wanted = turns / count;
            assert!(
                pairs.clone().all(|pair| behind[pair] == wanted),
                "{behind:?}"
            );
        }
    }

    #[test]
    fn what_means_nothing_is_named() {
        for text in [
            "slow",
            "repetitions=0",
            "repetitions=201",
            "workloads=x",
            "quick=1",
            "device=1af4:1110",
        ] {
            assert_eq!(Plan::parse(text), Err(BadArgument(text)));
        }
    }

    #[test]
    fn mechanisms_that_take_a_device_are_there_with_one() {
        let plan = Plan::all(Effort::Quick, 1);
        assert!(plan.mechanisms().all(|mechanism| !mechanism.is_of_device()));
        assert_eq!(plan.asked_mechanisms().count(), MECHANISMS.len());
        let (load, passthrough) = (WorkloadKind::Load, MechanismKind::Passthrough);
        let size = (load.description().sizes)(Effort::Quick)[0];
        let left_out = plan.cell(load, passthrough, size);
        assert_eq!(left_out, Err(Exclusion::NoDevice));
        let plan = plan.with_device(Some(DEVICE));
        assert_eq!(plan.mechanisms().count(), MECHANISMS.len());
        let cell = plan.cell(load, passthrough, size).unwrap();
        assert!(plan.has(&cell) && plan.cells().any(|other| other == cell));
    }

    #[test]
    fn a_device_has_copies_as_large_as_it_is_and_no_more_than_memory() {
        let plan = Plan::all(Effort::Quick, 1).with_device(Some(DEVICE));
        for mechanism in [MechanismKind::Passthrough, MechanismKind::NativeBar] {
            let why = |workload, size| plan.cell(workload, mechanism, size).err();
            let bytes = DEVICE.bytes;
            assert_eq!(why(WorkloadKind::CopyIn, 256 << 10), None);
            let large = why(WorkloadKind::CopyIn, 4 << 20);
            assert_eq!(large, Some(Exclusion::Memory { bytes }));
            assert_eq!(why(WorkloadKind::Trace, 300), Some(Exclusion::NoKernels));
            assert_eq!(
                why(WorkloadKind::Allocate, 4096),
                Some(Exclusion::NoAllocator)
            );
            let mut cell = plan.cell(WorkloadKind::CopyIn, mechanism, 64).unwrap();
            cell.size = 4 << 20;
            assert!(!plan.has(&cell), "beyond the device");
        }
    }
}
