//! Cells that were not measured, and the reasons.

use causeway_bench_workloads::measurement_plan::Plan;
use causeway_bench_workloads::{Cell, Exclusion, MechanismKind, WorkloadKind};
use serde::Serialize;

/// Text of [`Omission::what`] if all workloads of a mechanism are missing.
pub const EVERYTHING: &str = "everything";

/// Cells of the table that were not measured, and the reason. A cell is a workload at one size by
/// one mechanism.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Omission {
    /// Name of the mechanism, or `all`.
    pub mechanism: &'static str,
    /// Name of the workload with its size, or [`EVERYTHING`].
    pub what: String,
    /// Name of the workload; `None` if all workloads are missing.
    pub workload: Option<&'static str>,
    /// Size of the workload in `unit`; `None` if all sizes are missing.
    pub size: Option<u64>,
    /// Unit of `size`: `B` for bytes, or what is counted.
    pub unit: &'static str,
    /// Why the cells were not measured, as text for people.
    pub reason: String,
}

impl Omission {
    /// Returns the omission of all cells of a mechanism.
    pub fn everything(mechanism: MechanismKind, reason: &str) -> Self {
        Self {
            mechanism: mechanism.name(),
            what: EVERYTHING.to_owned(),
            workload: None,
            size: None,
            unit: "",
            reason: reason.to_owned(),
        }
    }

    /// Returns the omission of all cells on back end `name`.
    pub fn back_end(name: &str, reason: &str) -> Self {
        Self {
            mechanism: "all",
            what: format!("{EVERYTHING} on {name}"),
            ..Self::everything(MechanismKind::Native, reason)
        }
    }

    fn workload(mechanism: MechanismKind, workload: WorkloadKind, reason: String) -> Self {
        Self {
            what: workload.name().to_owned(),
            workload: Some(workload.name()),
            reason,
            ..Self::everything(mechanism, "")
        }
    }

    fn size(mechanism: MechanismKind, workload: WorkloadKind, size: u64, reason: String) -> Self {
        let description = workload.description();
        let what = format!("{} {size} {}", description.name, description.unit);
        Self {
            what: what.trim_end().to_owned(),
            size: Some(size),
            unit: description.unit,
            ..Self::workload(mechanism, workload, reason)
        }
    }
}

/// Returns the cells that are not measured because their mechanism cannot run them, each with the
/// reason. `plan` is the plan of the benchmark.
pub fn left_out(plan: Plan) -> Vec<Omission> {
    let mut missing = Vec::new();
    let mut of_device = plan.asked_mechanisms().filter(|m| m.is_of_device());
    if let (None, Some(mechanism)) = (plan.device, of_device.next()) {
        let reason = Exclusion::NoDevice.to_string();
        missing.push(Omission::everything(mechanism, &reason));
    }
    // Cells of the host beside a guest's excluded cells are also excluded.
    let compared = |m: &MechanismKind| *m != MechanismKind::NativeBar;
    for workload in plan.workloads() {
        for mechanism in plan.mechanisms().filter(compared) {
            left_out_of(plan, workload, mechanism, &mut missing);
        }
    }
    missing
}

/// Returns the excluded cells of one workload. Sizes with the same reason become one omission.
fn left_out_of(
    plan: Plan,
    workload: WorkloadKind,
    mechanism: MechanismKind,
    missing: &mut Vec<Omission>,
) {
    for size in (workload.description().sizes)(plan.effort) {
        let Err(left_out) = plan.cell(workload, mechanism, *size) else {
            continue;
        };
        let reason = left_out.to_string();
        if left_out.is_of_all_sizes() {
            missing.push(Omission::workload(mechanism, workload, reason));
            break;
        }
        missing.push(Omission::size(mechanism, workload, *size, reason));
    }
}

/// Returns an omission with `reason` for each planned cell for which `is_measured` is false. If no
/// cell of a mechanism was measured, one omission stands for all of them.
pub fn not_reached(plan: Plan, is_measured: impl Fn(&Cell) -> bool, reason: &str) -> Vec<Omission> {
    let mut missing = Vec::new();
    for mechanism in plan.mechanisms() {
        let cells = plan.cells().filter(|cell| cell.mechanism == mechanism);
        let (there, absent): (Vec<Cell>, Vec<Cell>) = cells.partition(&is_measured);
        if there.is_empty() && !absent.is_empty() {
            missing.push(Omission::everything(mechanism, reason));
            continue;
        }
        let of =
            |cell: Cell| Omission::size(mechanism, cell.workload, cell.size, reason.to_owned());
        missing.extend(absent.into_iter().map(of));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_bench_workloads::DeviceMemory;
    use causeway_bench_workloads::measurement_plan::Effort;

    fn rows(missing: Vec<Omission>) -> Vec<(&'static str, String, String)> {
        let missing = missing.into_iter();
        missing
            .map(|row| (row.mechanism, row.what, row.reason))
            .collect()
    }

    #[test]
    fn without_a_device_one_row_says_so_if_one_was_asked_for() {
        let plan = Plan::all(Effort::Quick, 1).of_workloads(&[WorkloadKind::Load]);
        let all = rows(left_out(plan));
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!((all[0].0, all[0].1.as_str()), ("passthrough", EVERYTHING));
        assert!(all[0].2.contains("--vfio"), "{all:?}");
        let mediated = plan.of_mechanisms(&[MechanismKind::Mediated]);
        assert_eq!(left_out(mediated), []);
    }

    #[test]
    fn what_a_device_lacks_is_a_row_for_each_workload() {
        let plan = Plan::all(Effort::Quick, 1).with_device(Some(DeviceMemory {
            vendor: 1,
            device: 2,
            bar: 0,
            offset: 0,
            bytes: 1 << 20,
        }));
        let passed = plan.of_mechanisms(&[MechanismKind::Passthrough, MechanismKind::NativeBar]);
        let rows = rows(left_out(passed));
        assert!(rows.iter().all(|row| row.0 == "passthrough"), "{rows:?}");
        let of = |what: &str| rows.iter().filter(|row| row.1 == what).count();
        assert_eq!((of("submit"), of("allocate"), of("load")), (1, 1, 0));
        assert_eq!(of("load 67108864 B"), 1, "{rows:?}");
    }

    #[test]
    fn cells_that_were_not_reached_are_rows() {
        let plan = Plan::all(Effort::Quick, 1)
            .of_workloads(&[WorkloadKind::Load, WorkloadKind::LaunchAndWait])
            .of_mechanisms(&[MechanismKind::Trap, MechanismKind::Native]);
        let loads_by_trap = |cell: &Cell| {
            (cell.workload, cell.mechanism) == (WorkloadKind::Load, MechanismKind::Trap)
        };
        let rows = not_reached(plan, loads_by_trap, "it ended");
        let what: Vec<_> = rows.iter().map(|row| (row.mechanism, &*row.what)).collect();
        assert_eq!(
            what,
            [("trap", "launch-and-wait 1"), ("native", EVERYTHING)]
        );
        assert_eq!(rows[0].workload, Some("launch-and-wait"));
        assert_eq!((rows[0].size, rows[1].size), (Some(1), None));
        assert_eq!(not_reached(plan, |_| true, "it ended"), []);
    }
}
