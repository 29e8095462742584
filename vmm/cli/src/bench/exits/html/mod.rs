//! The report of `bench exits` as a page in one file.

use std::fmt::Write as _;
use std::io::{self, Write};

mod axis;
mod fit;
mod plots;

use super::cells::CellReport;
use super::report::ExitsReport;
use super::table;
use axis::Axis;
use plots::{Axes, Group, Line, PlotError};

const STYLE: &str = include_str!("page.css");
/// The mechanisms, as the key names them.
const KEY: [(&str, &str); 6] = [
    (
        "mediated",
        "this project: memory in an aperture, commands in a ring",
    ),
    ("trap", "every access is emulated"),
    ("forward", "calls are sent with their data"),
    ("passthrough", "a device is the guest's, by VFIO"),
    ("native-bar", "no VM, memory of that device"),
    ("native", "no VM"),
];

/// Writes the page of a report.
pub fn write(out: &mut dyn Write, report: &ExitsReport) -> io::Result<()> {
    let page = page(report).map_err(io::Error::other)?;
    out.write_all(page.as_bytes())
}

fn page(report: &ExitsReport) -> Result<String, PlotError> {
    let mut out =
        String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    out.push_str("<title>VM exits, by mechanism</title>\n<style>\n");
    out.push_str(STYLE);
    out.push_str("</style></head><body>\n");
    head(&mut out, report);
    exits(&mut out, report)?;
    sizes(&mut out, report)?;
    let points = fit::points(&report.cells);
    let exit_ns = fit::exit_ns(&points);
    cost(&mut out, &points, exit_ns)?;
    share(&mut out, report, exit_ns)?;
    all(&mut out, report);
    out.push_str("</body></html>\n");
    Ok(out)
}

/// What ran where.
fn head(out: &mut String, report: &ExitsReport) {
    out.push_str("<h1>VM exits, and what they cost</h1>\n");
    out.push_str("<p class=\"quiet\">The same workloads in the same guest by each way to virtualize a GPU, taken in turn.</p>\n");
    let host = &report.host;
    let verdict = match report.passed {
        true => String::from("passed: every result was verified, and both exit counters agree"),
        false => format!("not passed: {}", report.result),
    };
    let devices = report.devices.iter().map(|device| {
        let value = format!("{} ({}), passed through", device.address, device.id);
        ("device", value)
    });
    let rows = [
        ("back end", report.backend.clone()),
        ("processor", format!("{}, {} CPUs", host.cpu, host.cpus)),
        ("memory", format!("{} GiB", host.memory_bytes >> 30)),
        ("kernel", host.kernel.clone()),
        ("KVM", host.kvm.text().to_string()),
        ("causeway", report.causeway.to_owned()),
        ("command", report.command.join(" ")),
        ("samples", format!("{} of each cell", report.repetitions)),
        ("result", verdict),
    ];
    out.push_str("<dl>\n");
    for (name, value) in rows.into_iter().chain(devices) {
        let class = if name == "result" && !report.passed {
            " class=\"failed\""
        } else {
            ""
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "<dt>{name}</dt><dd{class}>{}</dd>", escaped(&value));
    }
    out.push_str("</dl>\n<p class=\"key\">");
    let measured = |name| report.cells.iter().any(|cell| cell.mechanism == name);
    for (name, what) in KEY.into_iter().filter(|(name, _)| measured(*name)) {
        let _ = write!(out, "<span><i class=\"{name}\"></i>{name}: {what}</span>");
    }
    out.push_str("</p>\n");
}

fn figure(out: &mut String, svg: &str, caption: &str) {
    let _ = writeln!(
        out,
        "<figure>{svg}<figcaption>{}</figcaption></figure>",
        escaped(caption)
    );
}

/// The cells of each workload at its smallest size, which every mechanism has.
fn smallest(report: &ExitsReport) -> Vec<(String, Vec<&CellReport>)> {
    let mut groups: Vec<(String, Vec<&CellReport>)> = Vec::new();
    for cell in &report.cells {
        match groups.last_mut() {
            Some((name, group)) if name == cell.workload => {
                if group[0].size == cell.size {
                    group.push(cell);
                }
            }
            _ => groups.push((cell.workload.to_owned(), vec![cell])),
        }
    }
    groups
}

fn exits(out: &mut String, report: &ExitsReport) -> Result<(), PlotError> {
    out.push_str("<h2>Exits to the VMM for one operation</h2>\n");
    let group = |(name, cells): (String, Vec<&CellReport>)| Group {
        name,
        bars: cells
            .iter()
            .filter_map(|cell| {
                let exits = cell.exits.as_ref()?;
                Some((cell.mechanism, exits.user_space_per_operation))
            })
            .collect(),
    };
    let groups: Vec<Group> = smallest(report).into_iter().map(group).collect();
    let axes = Axes {
        x: "",
        y: "exits",
        x_text: &|_| String::new(),
        y_text: &|exits| table::count(*exits),
    };
    let values = groups.iter().flat_map(|group| &group.bars);
    let y = Axis::decades(values.map(|(_, value)| *value));
    let svg = plots::bars(&groups, &y, &axes)?;
    figure(
        out,
        &svg,
        "Each workload at its smallest size; the scale is logarithmic, and 0 is below it.",
    );
    Ok(())
}

fn sizes(out: &mut String, report: &ExitsReport) -> Result<(), PlotError> {
    out.push_str("<h2>Time against size</h2>\n<div class=\"pair\">\n");
    let copies = [
        ("copy-in", "Copies to memory of the GPU."),
        ("copy-out", "Copies from memory of the GPU."),
    ];
    for (workload, caption) in copies {
        let line = |(mechanism, _)| Line {
            mechanism,
            points: report
                .cells
                .iter()
                .filter(|cell| cell.workload == workload && cell.mechanism == mechanism)
                .map(|cell| (cell.size as f64, cell.time.median_ns))
                .collect(),
        };
        // Native first: what is mediated runs on it.
        let lines: Vec<Line> = KEY.into_iter().rev().map(line).collect();
        if lines.iter().all(|line| line.points.is_empty()) {
            continue;
        }
        let axes = Axes {
            x: "size",
            y: "time",
            x_text: &|bytes| table::bytes(*bytes as u64),
            y_text: &|ns| round(*ns),
        };
        figure(out, &plots::lines(&lines, &axes)?, caption);
    }
    out.push_str("</div>\n");
    Ok(())
}

fn cost(out: &mut String, points: &[fit::Point], exit_ns: Option<f64>) -> Result<(), PlotError> {
    out.push_str("<h2>Cost against exits</h2>\n");
    let axes = Axes {
        x: "exits for one operation",
        y: "time beyond native",
        x_text: &|exits| format!("{exits}"),
        y_text: &|ns| round(*ns),
    };
    let svg = plots::scatter(points, exit_ns, &axes)?;
    let caption = match exit_ns {
        Some(cost) => format!(
            "One point for each cell that exits. The line is {} for each exit, the median of the cells that exit at least once for each operation.",
            table::time(cost)
        ),
        None => String::from("One point for each cell that exits."),
    };
    figure(out, &svg, &caption);
    Ok(())
}

fn share(out: &mut String, report: &ExitsReport, exit_ns: Option<f64>) -> Result<(), PlotError> {
    let Some(cost) = exit_ns else {
        return Ok(());
    };
    out.push_str("<h2>Share of the time that exits take</h2>\n");
    let percent = |cell: &CellReport| {
        let exits = cell.exits.as_ref()?.user_space_per_operation;
        let share = 100.0 * exits * cost / cell.time.median_ns;
        Some((cell.mechanism, share.min(100.0)))
    };
    let group = |(name, cells): (String, Vec<&CellReport>)| Group {
        name,
        bars: cells.iter().filter_map(|cell| percent(cell)).collect(),
    };
    let groups: Vec<Group> = smallest(report).into_iter().map(group).collect();
    let axes = Axes {
        x: "",
        y: "% of the time",
        x_text: &|_| String::new(),
        y_text: &|percent| format!("{percent:.0}"),
    };
    let y = Axis::linear(110.0, vec![0.0, 25.0, 50.0, 75.0, 100.0]);
    let svg = plots::bars(&groups, &y, &axes)?;
    figure(
        out,
        &svg,
        "Exits of each workload at its smallest size, each at the cost above, over its time.",
    );
    Ok(())
}

/// Every cell, and what was not measured.
fn all(out: &mut String, report: &ExitsReport) {
    out.push_str("<h2>Every cell</h2>\n<p class=\"quiet\">Times are medians and 99th percentiles of one operation; the ratio is the median over those of the host in the same turn, on memory of the same kind, with its 95 % interval. Interrupts of the host and faults of first touches are counted apart.</p>\n");
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for column in table::COLUMNS {
        let _ = write!(out, "<th>{}</th>", escaped(column));
    }
    out.push_str("</tr></thead><tbody>\n");
    for (begins, cell, texts) in table::rows(&report.cells) {
        let class = if begins { " class=\"begins\"" } else { "" };
        let _ = write!(out, "<tr{class}>");
        for (index, text) in texts.iter().enumerate() {
            let class = match index {
                2 => format!(" class=\"{}\"", cell.mechanism),
                _ => String::new(),
            };
            let _ = write!(out, "<td{class}>{}</td>", escaped(text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n<ul class=\"quiet\">\n");
    for missing in &report.missing {
        let _ = writeln!(
            out,
            "<li>not measured: {} by {}: {}</li>",
            escaped(&missing.what),
            missing.mechanism,
            escaped(&missing.reason)
        );
    }
    out.push_str("</ul>\n");
}

/// A power of ten nanoseconds, for an axis.
fn round(ns: f64) -> String {
    match ns {
        n if n < 1e3 => format!("{n} ns"),
        n if n < 1e6 => format!("{:.0} µs", n / 1e3),
        n if n < 1e9 => format!("{:.0} ms", n / 1e6),
        n => format!("{:.0} s", n / 1e9),
    }
}

/// Text as it may stand in a page.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_cannot_become_part_of_the_page() {
        let typed = "--json <script>\"&";
        assert_eq!(escaped(typed), "--json &lt;script&gt;&quot;&amp;");
    }
}
