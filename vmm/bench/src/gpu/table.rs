//! The report of `bench gpu` as a table for people.

use std::fmt::Write as _;

use causeway_run::table::{self, aligned};
use comfy_table::Table;

use super::report::{BenchReport, LineReport, PeerReport};
use causeway_bench_medians::figures::{dash, ratio, short, time};
use causeway_bench_medians::{Distribution, Ratio, Singles, timers};

const COLUMNS: [&str; 11] = [
    "line",
    "size",
    "guest alone",
    "native alone",
    "guest / native",
    "guest in turn",
    "native in turn",
    "guest / native",
    "p99 guest",
    "p99 native",
    "exits per op",
];

/// Column before which a table of two GPUs has those of [`RATES`].
const RATES_AT: usize = 2;
const RATES: [&str; 2] = ["GB/s guest", "GB/s native"];

/// Returns the whole report of `bench gpu` as text for people.
pub fn render(report: &BenchReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for (number, device) in [Some(&report.device), report.peer.as_ref()]
        .iter()
        .flatten()
        .enumerate()
    {
        if report.peer.is_some() {
            let _ = write!(out, "GPU {number}: ");
        }
        let _ = writeln!(
            out,
            "{} ({} compute units, {} MiB)",
            device.name,
            device.compute_units,
            device.memory_bytes >> 20
        );
    }
    let _ = writeln!(
        out,
        "{}\n{}\n",
        report.host,
        report.origin.line(report.causeway)
    );
    let _ = writeln!(out, "{}\n", lines(&report.lines).trim_fmt());
    for figure in &report.figures {
        let _ = writeln!(out, "{}: {} {}", figure.name, figure.value, figure.unit);
    }
    let _ = writeln!(
        out,
        "times are medians of one operation; alone: the other side's process holds no context, and \
         the ratio is that of the medians; in turn: guest and host measure in turn, and the ratio \
         is the median of the ratios of neighbours; ratios have their 95 % interval; p99 is the \
         99th percentile of operations that a second pass times one by one (alone, if that was \
         measured), or why there is none"
    );
    let singles = report.lines.iter().flat_map(|line| {
        let native = line.native_single.as_ref();
        native.into_iter().chain([&line.guest_single])
    });
    if report.peer.is_some() {
        let _ = writeln!(
            out,
            "GB/s are bytes by median time, alone if that was measured"
        );
    }
    if let Some(timers) = timers(singles) {
        let _ = writeln!(out, "{timers} of these operations");
    }
    let _ = write!(out, "{}", summary(&report.lines));
    let _ = writeln!(out, "guest: {}", report.result);
    out
}

/// Returns for each line the less favourable of its ratios.
fn summary(lines: &[LineReport]) -> String {
    let mut out = String::new();
    for line in lines {
        let Some(quoted) = line.quoted else {
            continue;
        };
        if out.is_empty() {
            out.push_str("\nsummary: guest / native, the less favourable of alone and in turn\n");
        }
        let name = match line.bytes {
            0 => line.line.to_owned(),
            bytes => format!("{}, {}", line.line, size(bytes)),
        };
        let (ratio, measured) = (ratio(quoted.ratio), quoted.measured);
        let _ = writeln!(out, "  {name}: {ratio} {measured}");
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

fn lines(lines: &[LineReport]) -> Table {
    let median = |times: Option<&Distribution>| times.map_or_else(dash, |d| time(d.median_ns));
    let shown = |of: Option<Ratio>| of.map_or_else(dash, ratio);
    let row = |line: &LineReport| {
        let alone = line.alone.as_ref();
        let mut cells = vec![
            line.line.to_owned(),
            size(line.bytes),
            median(alone.map(|alone| &alone.guest)),
            median(alone.and_then(|alone| alone.native.as_ref())),
            shown(alone.and_then(|alone| alone.guest_over_native)),
            median(Some(&line.guest)),
            median(line.native.as_ref()),
            shown(line.guest_over_native),
            p99(alone.map_or(Some(&line.guest_single), |alone| Some(&alone.guest_single))),
            p99(alone.map_or(line.native_single.as_ref(), |alone| {
                alone.native_single.as_ref()
            })),
            format!("{:.3}", line.exits.user_space_per_operation),
        ];
        cells.splice(RATES_AT..RATES_AT, line.peers.iter().flat_map(rates));
        cells
    };
    let mut columns = COLUMNS.to_vec();
    if lines.iter().any(|line| line.peers.is_some()) {
        columns.splice(RATES_AT..RATES_AT, RATES);
    }
    let count = columns.len();
    aligned(columns, lines.iter().map(row), 1..count)
}

/// Returns the cells of the columns [`RATES`].
fn rates(peers: &PeerReport) -> [String; 2] {
    let rates = [peers.guest_gb_per_s, peers.native_gb_per_s];
    rates.map(|rate| rate.map_or_else(dash, short))
}

/// Returns the 99th percentile of single operations, or why there is none.
fn p99(singles: Option<&Singles>) -> String {
    match singles {
        None => dash(),
        Some(Singles::Timed(times)) => time(times.p99_ns),
        Some(Singles::NotTimed { reason }) => reason.to_string(),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        n => table::size(n),
    }
}
