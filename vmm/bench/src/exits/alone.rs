//! Mechanisms measured alone on a GPU: the process of the other side holds no context on it.
//!
//! In turn, the worker process of the guest's session and the process of the VMM, which does the
//! work of the other mechanisms, both have contexts on the GPU, and each sample may begin with a
//! switch.

use causeway_bench_workloads::MechanismKind;
use causeway_bench_workloads::measurement_plan::Plan;

use super::cells::{AloneReport, CellReport};
use causeway_bench_medians::{Quoted, Ratio};

/// A part of the mechanisms, whose work one process does on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The mediated mechanism, by the guest's worker process.
    Guest,
    /// The host itself, and the mechanisms whose devices are in the process of the VMM.
    Host,
}

impl Part {
    /// Both parts, in the order in which they are measured.
    pub const ALL: [Self; 2] = [Self::Guest, Self::Host];

    /// Returns the part of `plan` that this process measures, or `None` if it has none of the
    /// mechanisms. Mechanisms that use a passed-through device, and no GPU, belong to no part.
    pub fn of(self, plan: Plan) -> Option<Plan> {
        let plan = plan.with_device(None);
        let is_mine = |kind: &MechanismKind| match self {
            Self::Guest => *kind == MechanismKind::Mediated,
            Self::Host => *kind != MechanismKind::Mediated,
        };
        let mine: Vec<MechanismKind> = plan.mechanisms().filter(is_mine).collect();
        (!mine.is_empty()).then(|| plan.of_mechanisms(&mine))
    }
}

/// Adds `alone`, cells that were measured alone, to the same cells of `cells`.
pub fn add(cells: &mut [CellReport], alone: &[CellReport]) {
    for cell in cells {
        let same = |other: &&CellReport| other.key() == cell.key();
        let Some(found) = alone.iter().find(same) else {
            continue;
        };
        let native = |other: &&CellReport| {
            other.key() == (cell.workload, cell.size, MechanismKind::Native.name())
        };
        let native = alone.iter().find(native).filter(|_| !cell.is_native());
        let over_native = native
            .and_then(|native| Ratio::of_medians(&found.time.samples_ns, &native.time.samples_ns));
        cell.quoted = Quoted::of(over_native, cell.over_native);
        cell.alone = Some(AloneReport {
            time: found.time.clone(),
            over_native,
            single: found.single,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exits::html::fit::tests::cell;
    use causeway_bench_workloads::measurement_plan::Effort;

    #[test]
    fn each_mechanism_belongs_to_the_process_that_does_its_work() {
        let plan = Plan::all(Effort::Quick, 1);
        let of = |part: Part| -> Vec<_> { part.of(plan).unwrap().mechanisms().collect() };
        assert_eq!(of(Part::Guest), [MechanismKind::Mediated]);
        let host = of(Part::Host);
        assert!(host.contains(&MechanismKind::Native) && host.contains(&MechanismKind::Trap));
        assert_eq!(host.len() + 1, plan.mechanisms().count());
        let native = plan.of_mechanisms(&[MechanismKind::Native]);
        assert_eq!(Part::Guest.of(native), None);
    }

    #[test]
    fn ratios_alone_are_those_of_medians_and_the_greater_is_quoted() {
        let mut cells = [
            cell("load", "mediated", None, [8.0; 6]),
            cell("load", "native", None, [10.0; 6]),
        ];
        cells[0].over_native = Ratio::of([(8.0, 10.0)]);
        let alone = [
            cell("load", "mediated", None, [9.0; 6]),
            cell("load", "native", None, [6.0; 6]),
        ];
        add(&mut cells, &alone);
        let found = cells[0].alone.as_ref().unwrap();
        assert_eq!(found.over_native.unwrap().median, 1.5);
        assert_eq!(cells[0].quoted.unwrap().measured, "alone");
        let native = cells[1].alone.as_ref().unwrap();
        assert!(native.over_native.is_none() && cells[1].quoted.is_none());
    }
}
