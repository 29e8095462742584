//! What one exit costs, found out from all samples together.

use crate::exits::cells::CellReport;
use causeway_bench_statistics::{Ratio, median_of};

/// What an exit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load or store.
    Memory,
    /// A port.
    Port,
}

/// A cell with exits, and what it costs beyond the same natively.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Exits to the VMM of one operation.
    pub exits: f64,
    /// Nanoseconds of one operation beyond those of the host.
    pub beyond_ns: f64,
    /// Mechanism.
    pub mechanism: &'static str,
}

/// Nanoseconds of one exit, by what it is for; none where nothing of its kind was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// Of one for memory.
    pub memory: Option<Ratio>,
    /// Of one for a port.
    pub port: Option<Ratio>,
}

/// The cells that exit and take longer than natively, and how many exit and do not.
pub fn points(cells: &[CellReport]) -> (Vec<Point>, usize) {
    let point = |cell: &CellReport| {
        let native = native_of(cells, cell)?;
        let exits = cell.exits.as_ref()?.user_space_per_operation;
        (exits > 0.0).then_some(Point {
            exits,
            beyond_ns: cell.time.median_ns - native.time.median_ns,
            mechanism: cell.mechanism,
        })
    };
    let points = cells.iter().filter_map(point);
    let (slower, others): (Vec<Point>, Vec<Point>) = points.partition(|p| p.beyond_ns > 0.0);
    (slower, others.len())
}

/// The host's cell beside another.
fn native_of<'c>(cells: &'c [CellReport], cell: &CellReport) -> Option<&'c CellReport> {
    cells.iter().find(|other| {
        other.mechanism == "native" && (other.workload, other.size) == (cell.workload, cell.size)
    })
}

impl Costs {
    /// What one costs: for memory by `trap`'s loads, stores and copies, for ports by calls that are forwarded one by one.
    pub fn of(cells: &[CellReport]) -> Self {
        Self {
            memory: slope(cells, Access::Memory),
            port: slope(cells, Access::Port),
        }
    }

    /// What the exits of one operation cost; none if one of them has no known cost.
    pub fn of_cell(self, cell: &CellReport) -> Option<f64> {
        let exits = cell.exits.as_ref()?;
        let part = |each: f64, cost: Option<Ratio>| match each {
            0.0 => Some(0.0),
            each => Some(each * cost?.median),
        };
        let memory = part(exits.mmio_per_operation, self.memory)?;
        Some(memory + part(exits.io_per_operation, self.port)?)
    }
}

/// The slope of time beyond native over exits: for each repetition that of the line through the origin by Theil and Sen,
/// which is the median of the slopes of its points; of these, the median over the repetitions with its interval.
fn slope(cells: &[CellReport], access: Access) -> Option<Ratio> {
    let of_cells: Vec<Vec<f64>> = cells
        .iter()
        .filter(|cell| is_simple(cells, cell, access))
        .filter_map(|cell| slopes(cells, cell))
        .collect();
    let repetitions = of_cells.iter().map(Vec::len).max()?;
    let medians = (0..repetitions).filter_map(|repetition| {
        let of_repetition = of_cells.iter().filter_map(|cell| cell.get(repetition));
        median_of(&of_repetition.copied().collect::<Vec<_>>())
    });
    Ratio::of(medians.map(|slope| (slope, 1.0)))
}

/// Nanoseconds beyond native for each exit, repetition by repetition.
fn slopes(cells: &[CellReport], cell: &CellReport) -> Option<Vec<f64>> {
    let native = native_of(cells, cell)?;
    let exits = cell.exits.as_ref()?.user_space_per_operation;
    let pairs = cell.time.samples_ns.iter().zip(&native.time.samples_ns);
    Some(
        pairs
            .map(|(ours, natively)| (ours - natively) / exits)
            .collect(),
    )
}

/// Whether a cell does little but exit for one kind of access, at least once for each operation.
fn is_simple(cells: &[CellReport], cell: &CellReport, access: Access) -> bool {
    let Some(exits) = &cell.exits else {
        return false;
    };
    match access {
        Access::Memory => {
            let workloads = ["store", "load", "copy-in", "copy-out"];
            cell.mechanism == "trap"
                && workloads.contains(&cell.workload)
                && exits.io_per_operation == 0.0
                && exits.mmio_per_operation >= 1.0
        }
        Access::Port => {
            let workloads = ["load", "copy-out", "launch-and-wait"];
            let sizes = cells.iter().filter(|other| other.workload == cell.workload);
            cell.mechanism == "forward"
                && workloads.contains(&cell.workload)
                && sizes.map(|other| other.size).min() == Some(cell.size)
                && exits.mmio_per_operation == 0.0
                && exits.io_per_operation == 1.0
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::exits::counts::ExitReport;
    use causeway_bench_statistics::Distribution;

    /// A cell with exits for memory and ports, and these times.
    pub fn cell(
        workload: &'static str,
        mechanism: &'static str,
        exits: Option<[f64; 2]>,
        times: [f64; 6],
    ) -> CellReport {
        CellReport {
            workload,
            what: "",
            size: 64,
            unit: "B",
            mechanism,
            operations: 1,
            samples: times.len(),
            time: Distribution::of(times.to_vec()).unwrap(),
            unsteady: false,
            over_native: None,
            cpu_ns: None,
            exits: exits.map(|[mmio, io]| ExitReport {
                user_space_per_operation: mmio + io,
                mmio_per_operation: mmio,
                io_per_operation: io,
                ..ExitReport::default()
            }),
        }
    }

    #[test]
    fn the_cost_of_an_exit_is_the_slope_of_cells_that_do_little_else() {
        let cells = [
            cell("load", "native", None, [10.0; 6]),
            cell("load", "trap", Some([1.0, 0.0]), [1010.0; 6]),
            cell("store", "native", None, [10.0; 6]),
            // One repetition that went wrong in all of its cells is one of six.
            cell(
                "store",
                "trap",
                Some([1.0, 0.0]),
                [1110.0, 1110.0, 9e9, 1110.0, 1110.0, 1110.0],
            ),
            cell("copy-in", "native", None, [10.0; 6]),
            cell("copy-in", "trap", Some([8.0, 0.0]), [9610.0; 6]),
            cell("load", "forward", Some([0.0, 1.0]), [3010.0; 6]),
            // Most of it is something else.
            cell("store", "forward", Some([0.0, 0.001]), [5000.0; 6]),
            cell("matmul", "native", None, [10.0; 6]),
            cell("matmul", "trap", Some([1.0, 0.0]), [9e9; 6]),
        ];
        let costs = Costs::of(&cells);
        let memory = costs.memory.unwrap();
        assert_eq!((memory.median, memory.low), (1100.0, Some(1100.0)));
        assert_eq!(memory.high, Some(1200.0), "the repetition that went wrong");
        assert_eq!(costs.port.unwrap().median, 3000.0);
        let both = cell("allocate", "forward", Some([2.0, 1.0]), [1.0; 6]);
        assert_eq!(costs.of_cell(&both), Some(2.0 * 1100.0 + 3000.0));
        let (points, hidden) = points(&cells);
        assert_eq!((points.len(), hidden), (6, 0));
    }

    #[test]
    fn a_cost_that_is_not_known_is_none() {
        let cells = [cell("load", "trap", Some([1.0, 0.0]), [1010.0; 6])];
        let costs = Costs::of(&cells);
        assert_eq!(costs, Costs::default(), "nothing native to compare with");
        assert_eq!(costs.of_cell(&cells[0]), None);
        let without = cell("load", "mediated", Some([0.0; 2]), [10.0; 6]);
        assert_eq!(costs.of_cell(&without), Some(0.0));
    }

    #[test]
    fn cells_that_exit_and_take_no_longer_are_counted() {
        let cells = [
            cell("load", "native", None, [10.0; 6]),
            cell("load", "trap", Some([1.0, 0.0]), [9.0; 6]),
        ];
        assert_eq!(points(&cells), (Vec::new(), 1));
    }
}
