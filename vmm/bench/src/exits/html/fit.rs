//! Estimates the cost of one exit from all samples.

use crate::exits::cells::CellReport;
use causeway_bench_medians::{Ratio, median_of};

/// Kind of access by which a guest causes an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load or store to memory of an emulated device.
    Memory,
    /// An access to an I/O port.
    Port,
}

/// A point in the plot of cost against exits: a cell that has exits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Exits to the VMM in one operation.
    pub exits: f64,
    /// How much longer one operation takes in the guest than on the host, in nanoseconds.
    pub beyond_ns: f64,
    /// Name of the cell's mechanism.
    pub mechanism: &'static str,
}

/// Estimated cost of one exit in nanoseconds, by kind of access; `None` for a kind that was not
/// measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// Cost of an exit for a load or store, in nanoseconds.
    pub memory: Option<Ratio>,
    /// Cost of an exit for a port access, in nanoseconds.
    pub port: Option<Ratio>,
}

/// Returns a point for each cell with exits whose operations take longer than on the host, and the
/// number of cells with exits whose operations take no longer.
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

/// Returns the host's cell of the same workload and size.
fn native_of<'c>(cells: &'c [CellReport], cell: &CellReport) -> Option<&'c CellReport> {
    cells.iter().find(|other| {
        other.mechanism == "native" && (other.workload, other.size) == (cell.workload, cell.size)
    })
}

impl Costs {
    /// Estimates both costs: for loads and stores from the simple workloads of mechanism `trap`,
    /// for ports from those of mechanism `forward`.
    pub fn of(cells: &[CellReport]) -> Self {
        Self {
            memory: slope(cells, Access::Memory),
            port: slope(cells, Access::Port),
        }
    }

    /// Returns the cost in nanoseconds of all exits of one operation of `cell`, or `None` if the
    /// cost of one of its exits is unknown.
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

/// The slope of time beyond native over exits: for each repetition that of the line through the
/// origin by Theil and Sen, which is the median of the slopes of its points; of these, the median
/// over the repetitions with its interval.
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
    let slopes = pairs.map(|(ours, natively)| (ours - natively) / exits);
    Some(slopes.collect())
}

/// Returns whether a cell mainly causes exits for one kind of access, at least one for each
/// operation.
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
    use causeway_bench_medians::Distribution;
    use causeway_bench_medians::NotTimed;

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
            single: NotTimed::InLoop.into(),
            exits: exits.map(|[mmio, io]| ExitReport {
                user_space_per_operation: mmio + io,
                mmio_per_operation: mmio,
                io_per_operation: io,
                ..ExitReport::default()
            }),
            alone: None,
            quoted: None,
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
