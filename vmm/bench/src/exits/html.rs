//! The report of `bench exits` as a page in one file.

use std::fmt::Write as _;
use std::io::{self, Write};

mod axis;
mod cost;
mod fit;
mod plots;
mod tables;

use super::cells::CellReport;
use super::report::ExitsReport;
use axis::Axis;
use causeway_bench_medians::figures::count;
use causeway_run::table;
use fit::Costs;
use plots::{Axes, Group, Line, PlotError};

const STYLE: &str = include_str!("html/page.css");
/// The mechanisms, as the key names them.
const KEY: [(&str, &str); 6] = [
    (
        "mediated",
        "this project: memory in an aperture, commands in a ring",
    ),
    ("trap", "every access is emulated"),
    ("forward", "calls are sent with their data"),
    ("passthrough", "the guest owns a device, by VFIO"),
    ("native-bar", "no VM, memory of that device"),
    ("native", "no VM"),
];

/// Writes the report as an HTML page.
///
/// # Errors
/// The error of `out`, or the error of drawing a plot.
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
    let costs = Costs::of(&report.cells);
    cost::against_exits(&mut out, report, costs)?;
    cost::share(&mut out, report, costs)?;
    tables::every_cell(&mut out, report);
    tables::reasons(&mut out, report);
    out.push_str("</body></html>\n");
    Ok(out)
}

/// Writes the settings of the run.
fn head(out: &mut String, report: &ExitsReport) {
    out.push_str("<h1>VM exits, and what they cost</h1>\n");
    out.push_str(
        "<p class=\"quiet\">The same guest runs the same workloads by each mechanism, in \
         turn.</p>\n",
    );
    let (host, origin) = (&report.host, &report.origin);
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
        ("host", origin.host_name.clone()),
        ("date", origin.time.clone()),
        ("duration", format!("{:.0} s", origin.duration_s)),
        ("load", format!("{} (mean of a minute)", origin.load_text())),
        (
            "causeway",
            format!("{} ({})", report.causeway, origin.revision),
        ),
        ("command", origin.command.join(" ")),
        ("samples", format!("{} of each cell", report.repetitions)),
        ("result", verdict(report)),
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
    out.push_str("</dl>\n");
    if !report.problems.is_empty() {
        out.push_str("<ul class=\"failed\">\n");
        for problem in &report.problems {
            let text = format!("{}: {}", problem.phase, problem.what);
            let _ = writeln!(out, "<li>{}</li>", escaped(&text));
        }
        out.push_str("</ul>\n");
    }
    key(out, report);
}

/// Returns the result of the run as text.
fn verdict(report: &ExitsReport) -> String {
    let problems = report.problems.len();
    match (report.passed, problems) {
        (true, _) if report.cells.is_empty() => String::from("nothing was measured"),
        (true, _) => {
            String::from("passed: all results were verified, and both exit counters agree")
        }
        (false, 0) => format!("not passed: {}", report.result),
        (false, _) => format!(
            "not passed: {}; {problems} counts or samples are wrong",
            report.result
        ),
    }
}

/// Writes the key of the colours.
fn key(out: &mut String, report: &ExitsReport) {
    out.push_str("<p class=\"key\">");
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

/// Returns the cells of each workload at its smallest size, which every mechanism supports.
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
        y_text: &|exits| count(*exits),
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
        // The native line is drawn first, because the mediated one covers it.
        let lines: Vec<Line> = KEY.into_iter().rev().map(line).collect();
        if lines.iter().all(|line| line.points.is_empty()) {
            continue;
        }
        let axes = Axes {
            x: "size",
            y: "time",
            x_text: &|size| table::size(*size as u64),
            y_text: &|ns| round(*ns),
        };
        figure(out, &plots::lines(&lines, &axes)?, caption);
    }
    out.push_str("</div>\n");
    Ok(())
}

/// Returns a power of ten nanoseconds as text for an axis.
fn round(ns: f64) -> String {
    match ns {
        n if n < 1e3 => format!("{n} ns"),
        n if n < 1e6 => format!("{:.0} µs", n / 1e3),
        n if n < 1e9 => format!("{:.0} ms", n / 1e6),
        n => format!("{:.0} s", n / 1e9),
    }
}

/// Returns text with HTML's special characters escaped.
fn escaped(text: &str) -> String {
    // First, because the others contain this character.
    let text = text.replace('&', "&amp;");
    let text = text.replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exits::report::Problem;
    use crate::exits::report::tests::empty;

    #[test]
    fn a_page_says_what_is_wrong_and_with_which_phase() {
        let mut report = empty();
        report.result = String::from("passed");
        report.problems.push(Problem {
            phase: String::from("load 65536 trap"),
            what: String::from("KVM counted <1>"),
        });
        let page = page(&report).unwrap();
        assert!(page.contains("not passed: passed; 1 counts or samples are wrong"));
        assert!(page.contains("<li>load 65536 trap: KVM counted &lt;1&gt;</li>"));
    }

    #[test]
    fn a_page_says_when_and_where_it_was_measured_and_by_which_build() {
        let report = empty();
        let page = page(&report).unwrap();
        for (name, value) in [
            ("date", &report.origin.time),
            ("host", &report.origin.host_name),
            ("causeway", &format!("{} (unknown)", report.causeway)),
        ] {
            assert!(!value.is_empty());
            assert!(
                page.contains(&format!("<dt>{name}</dt><dd>{value}</dd>")),
                "{page}"
            );
        }
    }

    #[test]
    fn what_was_typed_cannot_become_part_of_the_page() {
        let typed = "--json <script>\"&";
        assert_eq!(escaped(typed), "--json &lt;script&gt;&quot;&amp;");
    }
}
