//! The report of `bench exits` as a page in one file.

use std::fmt::Write as _;
use std::io::{self, Write};

mod axis;
mod cost;
pub mod figure;
pub(super) mod fit;
mod plots;
pub mod tables;

use super::cells::CellReport;
use super::report::ExitsReport;
use axis::Axis;
use causeway_bench_medians::figures::{count, time};
use causeway_run::table;
use figure::{Figure, distinct, escaped};
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

/// Returns the beginning of a page with this title.
pub fn begin_page(title: &str) -> String {
    let mut out =
        String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<title>{title}</title>\n<style>\n{STYLE}</style></head><body>\n"
    );
    out
}

/// What a page ends with.
pub const END_PAGE: &str = "</body></html>\n";

fn page(report: &ExitsReport) -> Result<String, PlotError> {
    let mut out = begin_page("VM exits, by mechanism");
    head(&mut out, report);
    workloads(&mut out, report)?;
    sizes(&mut out, report)?;
    let costs = Costs::of(&report.cells);
    cost::against_exits(&mut out, report, costs)?;
    cost::share(&mut out, report, costs)?;
    tables::every_cell(&mut out, report);
    tables::reasons(&mut out, report);
    out.push_str(END_PAGE);
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

/// Adds the plots of exits and times by workload.
fn workloads(out: &mut String, report: &ExitsReport) -> Result<(), PlotError> {
    out.push_str("<h2>Exits and time by workload</h2>\n<div class=\"pair\">\n");
    let exits = |cell: &CellReport| Some(cell.exits.as_ref()?.user_space_per_operation);
    let axes = Axes {
        x: "exits",
        y: "",
        x_text: &|exits| count(*exits),
        y_text: &|_| String::new(),
    };
    let groups = groups(report, exits);
    let caption =
        "Each workload at its smallest size; the scale is logarithmic, and 0 is below it.";
    let titles = ("Exits to the VMM for one operation", caption);
    bars(out, titles, &groups, &axes, &|exits| count(*exits))?;
    let axes = Axes {
        x: "time",
        x_text: &|ns| round(*ns),
        ..axes
    };
    let groups = self::groups(report, |cell| Some(cell.time.median_ns));
    let caption = "The same operations: medians, on a logarithmic scale.";
    let titles = ("Time of one operation", caption);
    bars(out, titles, &groups, &axes, &|ns| time(*ns))?;
    out.push_str("</div>\n");
    Ok(())
}

/// Returns a group for each workload at its smallest size, with a bar for each mechanism for which
/// `value` returns one.
fn groups(report: &ExitsReport, value: impl Fn(&CellReport) -> Option<f64>) -> Vec<Group> {
    let groups = smallest(report).into_iter().map(|(name, cells)| Group {
        name,
        bars: cells
            .iter()
            .filter_map(|cell| Some((cell.mechanism, value(cell)?)))
            .collect(),
    });
    groups.filter(|group| !group.bars.is_empty()).collect()
}

/// Adds a figure of bars on a logarithmic scale.
fn bars(
    out: &mut String,
    (title, caption): (&str, &str),
    groups: &[Group],
    axes: &Axes<'_>,
    shown: &dyn Fn(&f64) -> String,
) -> Result<(), PlotError> {
    let values = groups.iter().flat_map(|group| &group.bars);
    let x = Axis::decades(values.map(|(_, value)| *value));
    let figure = Figure {
        title,
        description: description(groups, shown),
        mechanisms: mechanisms(groups),
        svg: plots::bars(groups, &x, axes, shown)?,
        caption,
    };
    figure.write(out);
    Ok(())
}

fn mechanisms(groups: &[Group]) -> Vec<&'static str> {
    let bars = groups.iter().flat_map(|group| &group.bars);
    distinct(bars.map(|(mechanism, _)| *mechanism))
}

/// Returns the values of all bars as text.
fn description(groups: &[Group], text: &dyn Fn(&f64) -> String) -> String {
    let of_group = |group: &Group| {
        let bars = group.bars.iter();
        let bars = bars.map(|(mechanism, value)| format!("{mechanism} {}", text(value)));
        format!("{}: {}.", group.name, bars.collect::<Vec<_>>().join(", "))
    };
    groups.iter().map(of_group).collect::<Vec<_>>().join(" ")
}

fn sizes(out: &mut String, report: &ExitsReport) -> Result<(), PlotError> {
    out.push_str("<h2>Time against size</h2>\n<div class=\"pair\">\n");
    let copies = [
        ("copy-in", "Time of copies to memory of the GPU"),
        ("copy-out", "Time of copies from memory of the GPU"),
    ];
    for (workload, title) in copies {
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
        let lines = KEY.into_iter().rev().map(line);
        let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
        if lines.is_empty() {
            continue;
        }
        let axes = Axes {
            x: "size",
            y: "time",
            x_text: &|size| table::size(*size as u64),
            y_text: &|ns| round(*ns),
        };
        let figure = Figure {
            title,
            description: lines.iter().map(spoken).collect::<Vec<_>>().join(" "),
            mechanisms: lines.iter().map(|line| line.mechanism).collect(),
            svg: plots::lines(&lines, &axes)?,
            caption: "Medians, on logarithmic scales.",
        };
        figure.write(out);
    }
    out.push_str("</div>\n");
    Ok(())
}

/// Returns the points of a line as text.
fn spoken(line: &Line) -> String {
    let points = line.points.iter();
    let points = points.map(|(size, ns)| format!("{} {}", table::size(*size as u64), time(*ns)));
    format!(
        "{}: {}.",
        line.mechanism,
        points.collect::<Vec<_>>().join(", ")
    )
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

#[cfg(test)]
mod tests {
    use super::fit::tests::cell;
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
    fn a_page_names_the_rows_whose_times_include_waits_for_a_processor() {
        let mut report = empty();
        assert!(!page(&report).unwrap().contains("processor taken"));
        report.crowded_waits = Some(1234);
        let page = page(&report).unwrap();
        assert!(page.contains("<p>rows of `mediated`: "), "{page}");
        assert!(page.contains(" 1234 times "), "{page}");
    }

    #[test]
    fn a_page_has_cells_alone_beside_the_same_in_turn() {
        use crate::exits::alone;
        let mut report = empty();
        report.cells = vec![
            cell("load", "mediated", None, [8.0; 6]),
            cell("load", "native", None, [10.0; 6]),
        ];
        assert!(!page(&report).unwrap().contains("Alone and in turn"));
        let measured = [
            cell("load", "mediated", None, [9.0; 6]),
            cell("load", "native", None, [6.0; 6]),
        ];
        alone::add(&mut report.cells, &measured);
        let page = page(&report).unwrap();
        assert!(
            page.contains("<caption>Alone and in turn</caption>"),
            "{page}"
        );
        assert!(
            page.contains("<td>9.00 ns</td><td>1.50 (1.50-1.50)</td><td>8.00 ns</td>"),
            "{page}"
        );
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
    fn times_are_plotted_by_workload_and_every_plot_has_a_legend_and_a_title() {
        let mut report = empty();
        report.cells = vec![
            cell("load", "mediated", Some([0.0, 0.0]), [10.0; 6]),
            cell("load", "trap", Some([1.0, 0.0]), [23_000.0; 6]),
            cell("load", "native", None, [10.0; 6]),
            cell("copy-in", "native", None, [50.0; 6]),
        ];
        let page = page(&report).unwrap();
        let plots = page.matches("<svg ").count();
        assert_eq!(plots, 5, "exits, times, copies, cost and its share");
        for part in [
            "role=\"img\"",
            "<title id=",
            "<desc id=",
            "<p class=\"key\"><span>",
        ] {
            let legends_of_page = usize::from(part.starts_with("<p"));
            assert_eq!(
                page.matches(part).count(),
                plots + legends_of_page,
                "{part}"
            );
        }
        for part in [
            "<html lang=\"en\">",
            "load: mediated 0, trap 1.</desc>",
            "load: mediated 10.0 ns, trap 23.0 µs, native 10.0 ns. copy-in: native 50.0 ns.</desc>",
            "<desc id=\"Time-of-copies-to-memory-of-the-GPU-values\">native: 64 B 50.0 ns.</desc>",
        ] {
            assert!(page.contains(part), "no {part} in {page}");
        }
        let tables = page.matches("<table").count();
        assert_eq!(page.matches("<caption>").count(), tables);
        assert!(!page.contains("<th>"), "headings say of what they are");
    }
}
