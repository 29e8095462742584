//! Plots of the cost of exits, and of their share of the time.

use super::axis::Axis;
use super::figure::{Figure, distinct};
use super::fit::{self, Costs, Point};
use super::plots::{self, Axes, PlotError};
use super::{description, groups, mechanisms, round};
use crate::exits::cells::CellReport;
use crate::exits::report::ExitsReport;
use causeway_bench_medians::Ratio;
use causeway_bench_medians::figures::{count, time, time_within};

/// Right end of the plot in per cent. Longer bars end there.
const PERCENT_MAX: f64 = 200.0;

/// Begins the plots about the cost of exits, and adds the first to the page `out`: how much longer
/// operations take than on the host, against their exits.
///
/// # Errors
/// [`PlotError`] if the plot cannot be drawn.
pub fn against_exits(
    out: &mut String,
    report: &ExitsReport,
    costs: Costs,
) -> Result<(), PlotError> {
    out.push_str("<h2>Cost of exits</h2>\n<div class=\"pair\">\n");
    let axes = Axes {
        x: "exits for one operation",
        y: "time beyond native",
        x_text: &|exits| format!("{exits}"),
        y_text: &|ns| round(*ns),
    };
    let (points, hidden) = fit::points(&report.cells);
    let lines = [("trap", costs.memory), ("forward", costs.port)];
    let lines = lines.map(|(mechanism, cost)| Some((mechanism, cost?.median)));
    let lines: Vec<_> = lines.into_iter().flatten().collect();
    let figure = Figure {
        title: "Time beyond native against exits",
        description: spoken(&points, &lines),
        mechanisms: distinct(points.iter().map(|point| point.mechanism)),
        svg: plots::scatter(&points, &lines, &axes)?,
        caption: &caption(costs, hidden),
    };
    figure.write(out);
    Ok(())
}

/// Returns what the points and the lines show as text.
fn spoken(points: &[Point], lines: &[(&str, f64)]) -> String {
    let mut text = format!("{} cells.", points.len());
    for point in points {
        let (exits, ns) = (count(point.exits), time(point.beyond_ns));
        text += &format!(" {}: {exits} exits, {ns}.", point.mechanism);
    }
    for (mechanism, ns) in lines {
        text += &format!(" Line of {mechanism}: {} for an exit.", time(*ns));
    }
    text
}

fn caption(costs: Costs, hidden: usize) -> String {
    let mut caption = String::from("One point for each cell that exits.");
    let lines = [
        (
            costs.memory,
            "a load or store, from trap's loads, stores and copies",
        ),
        (
            costs.port,
            "a store to a port, from calls that are forwarded one by one",
        ),
    ];
    for (cost, what) in lines {
        let text = cost.map(|cost| format!(" {} for {what}.", cost_text(cost)));
        caption.push_str(&text.unwrap_or_default());
    }
    if costs != Costs::default() {
        caption.push_str(
            " Lines go through the origin: in each repetition, the median over its points (Theil \
             and Sen); of these, the median with its 95 % interval.",
        );
    }
    if hidden != 0 {
        caption.push_str(&format!(
            " {hidden} cells that exit took no longer than natively, and are not shown."
        ));
    }
    caption
}

fn cost_text(cost: Ratio) -> String {
    time_within(cost.median, cost.low.zip(cost.high))
}

/// Adds a plot to the page `out`, what share of an operation's time its exits take, and ends the
/// plots about the cost of exits.
///
/// # Errors
/// [`PlotError`] if the plot cannot be drawn.
pub fn share(out: &mut String, report: &ExitsReport, costs: Costs) -> Result<(), PlotError> {
    if costs != Costs::default() {
        percentages(out, report, costs)?;
    }
    out.push_str("</div>\n");
    Ok(())
}

fn percentages(out: &mut String, report: &ExitsReport, costs: Costs) -> Result<(), PlotError> {
    let groups = groups(report, |cell| percent(cell, costs));
    let axes = Axes {
        x: "% of the time",
        y: "",
        x_text: &|percent| format!("{percent:.0}"),
        y_text: &|_| String::new(),
    };
    let bars = groups.iter().flat_map(|group| &group.bars);
    let highest = bars.map(|(_, percent)| *percent).fold(0.0, f64::max);
    let end = (1.1 * highest).clamp(110.0, PERCENT_MAX);
    let marks = [0.0, 25.0, 50.0, 75.0, 100.0, 150.0];
    let marks = marks.into_iter().filter(|mark| *mark <= end).collect();
    let figure = Figure {
        title: "Share of the time that exits take",
        description: description(&groups, &|percent| format!("{percent:.0} %")),
        mechanisms: mechanisms(&groups),
        svg: plots::bars(&groups, &Axis::linear(end, marks), &axes, axes.x_text)?,
        caption: &share_caption(highest),
    };
    figure.write(out);
    Ok(())
}

/// Returns the cost of a cell's exits in per cent of its time.
fn percent(cell: &CellReport, costs: Costs) -> Option<f64> {
    Some(100.0 * costs.of_cell(cell)? / cell.time.median_ns)
}

fn share_caption(highest: f64) -> String {
    let mut caption = String::from(
        "Exits of each workload at its smallest size, each at the cost above, over its time.",
    );
    if highest > 100.0 {
        caption.push_str(" More than 100: exits of that cell cost less than the line says.");
    }
    if highest > PERCENT_MAX {
        caption.push_str(" Bars that reach the right edge are longer than the plot is wide.");
    }
    caption
}

#[cfg(test)]
mod tests {
    use super::super::fit::tests::cell;
    use super::*;

    #[test]
    fn shares_beyond_all_of_the_time_are_shown_and_said() {
        let cost = Ratio {
            median: 1500.0,
            low: Some(1400.0),
            high: Some(1600.0),
        };
        let costs = Costs {
            memory: Some(cost),
            port: None,
        };
        let trapped = cell("load", "trap", Some([1.0, 0.0]), [1000.0; 6]);
        assert_eq!(percent(&trapped, costs), Some(150.0));
        let ported = cell("load", "forward", Some([0.0, 1.0]), [1000.0; 6]);
        assert_eq!(percent(&ported, costs), None, "its cost is not known");
        assert!(share_caption(150.0).contains("More than 100"));
        assert!(!share_caption(99.0).contains("More than 100"));
        let text = caption(costs, 2);
        assert!(
            text.contains("1.50 µs (1.40-1.60) for a load or store"),
            "{text}"
        );
        assert!(text.contains("2 cells"), "{text}");
        assert!(!text.contains("port"), "{text}");
    }
}
