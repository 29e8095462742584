//! What is to be measured: read from a guest's arguments, made from a command's.

use core::fmt;

use crate::{Cell, MECHANISMS, MechanismKind, WORKLOADS, WorkloadKind};

/// How much is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A minute, on a small machine.
    Quick,
    /// As long as it takes.
    Full,
}

/// Most repetitions.
pub const REPETITIONS_MAX: u32 = 200;

/// What is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How much.
    pub effort: Effort,
    /// Samples of each cell.
    pub repetitions: u32,
    workloads: u32,
    mechanisms: u32,
}

/// An argument that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadArgument<'a>(pub &'a str);

impl fmt::Display for BadArgument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is none of quick, repetitions=N, workloads=BITS, mechanisms=BITS",
            self.0
        )
    }
}

impl Plan {
    /// Everything.
    #[must_use]
    pub const fn all(effort: Effort, repetitions: u32) -> Self {
        Self {
            effort,
            repetitions,
            workloads: u32::MAX,
            mechanisms: u32::MAX,
        }
    }

    /// Only these workloads.
    #[must_use]
    pub fn of_workloads(self, workloads: &[WorkloadKind]) -> Self {
        let bits = workloads.iter().fold(0, |bits, w| bits | 1 << *w as u32);
        Self {
            workloads: bits,
            ..self
        }
    }

    /// Only these mechanisms.
    #[must_use]
    pub fn of_mechanisms(self, mechanisms: &[MechanismKind]) -> Self {
        let bits = mechanisms.iter().fold(0, |bits, m| bits | 1 << *m as u32);
        Self {
            mechanisms: bits,
            ..self
        }
    }

    /// The workloads, in order.
    pub fn workloads(self) -> impl Iterator<Item = WorkloadKind> {
        let all = WORKLOADS.into_iter();
        all.filter(move |w| self.workloads & 1 << *w as u32 != 0)
    }

    /// The mechanisms, in order.
    pub fn mechanisms(self) -> impl Iterator<Item = MechanismKind> {
        let all = MECHANISMS.into_iter();
        all.filter(move |m| self.mechanisms & 1 << *m as u32 != 0)
    }

    /// All cells, row by row: workload, size, mechanism.
    pub fn cells(self) -> impl Iterator<Item = Cell> {
        self.workloads().flat_map(move |workload| {
            let sizes = (workload.description().sizes)(self.effort).iter();
            sizes.flat_map(move |size| {
                let mechanisms = self.mechanisms();
                mechanisms.filter_map(move |mechanism| workload.cell(mechanism, self.effort, *size))
            })
        })
    }

    /// Reads a guest's arguments.
    ///
    /// # Errors
    /// The word that means nothing.
    pub fn parse(text: &str) -> Result<Self, BadArgument<'_>> {
        let mut plan = Self::all(Effort::Full, 20);
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
                _ => return Err(bad),
            }
        }
        Ok(plan)
    }
}

impl fmt::Display for Plan {
    /// As [`Self::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.effort == Effort::Quick {
            f.write_str("quick,")?;
        }
        write!(
            f,
            "repetitions={},workloads={},mechanisms={}",
            self.repetitions, self.workloads, self.mechanisms
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let plans = [
            Plan::all(Effort::Full, 20),
            Plan::all(Effort::Quick, 1),
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
    fn what_means_nothing_is_named() {
        for text in [
            "slow",
            "repetitions=0",
            "repetitions=201",
            "workloads=x",
            "quick=1",
        ] {
            assert_eq!(Plan::parse(text), Err(BadArgument(text)));
        }
    }
}
