//! What one exit costs, found out from all cells together.

use crate::bench::exits::cells::CellReport;

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

/// The cells that have exits, and take longer than natively.
pub fn points(cells: &[CellReport]) -> Vec<Point> {
    let point = |cell: &CellReport| {
        let native = native_of(cells, cell)?;
        let exits = cell.exits.as_ref()?.user_space_per_operation;
        let beyond_ns = cell.time.median_ns - native.time.median_ns;
        (exits > 0.0 && beyond_ns > 0.0).then_some(Point {
            exits,
            beyond_ns,
            mechanism: cell.mechanism,
        })
    };
    cells.iter().filter_map(point).collect()
}

/// The host's cell beside another.
pub fn native_of<'c>(cells: &'c [CellReport], cell: &CellReport) -> Option<&'c CellReport> {
    cells.iter().find(|other| {
        other.mechanism == "native" && (other.workload, other.size) == (cell.workload, cell.size)
    })
}

/// Nanoseconds of one exit: the middle of what the points say, each by itself, of those that exit at least once for each
/// operation. In the others, what is done between exits counts for more than they do.
pub fn exit_ns(points: &[Point]) -> Option<f64> {
    let often = points.iter().filter(|point| point.exits >= 1.0);
    let mut costs: Vec<f64> = often.map(|point| point.beyond_ns / point.exits).collect();
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(exits: f64, beyond_ns: f64) -> Point {
        Point {
            exits,
            beyond_ns,
            mechanism: "trap",
        }
    }

    #[test]
    fn the_cost_is_that_of_points_that_exit_each_time() {
        let points = [
            point(1.0, 1000.0),
            point(8.0, 9600.0),
            point(512.0, 512_000.0),
            point(0.001, 5000.0),
            point(2.0, 1800.0),
        ];
        assert_eq!(exit_ns(&points), Some(1000.0));
        assert_eq!(exit_ns(&points[3..4]), None);
    }
}
