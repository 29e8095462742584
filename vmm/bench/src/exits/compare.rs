//! `--compare`: finds differences beyond noise between two reports.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use causeway_bench_suites::Way;
use causeway_bench_workloads::{MechanismKind, WorkloadKind};

mod findings;
pub mod reports;

use super::cells::is_unsteady;
use causeway_bench_medians::figures::time as shown;
use causeway_bench_medians::{INTERVAL_SAMPLES_MIN, interval_among, interval_of};
use causeway_terminal::{self as terminal, Code, Failure, Origin, ReportFile};
use findings::{
    CellName, Change, Comparison, Figure, Findings, NotCompared, OnlyInOne, OutcomeChange, SCHEMA,
    Setting, Source, Verdict,
};
use reports::{Cell, Report, printable, read};

/// Medians that are closer than this, relative to the smaller one, count as equal: two runs of one
/// program differ by as much, depending on the addresses of its code and memory.
const CLOSE: f64 = 0.1;

/// Returns the JSON schema of comparisons.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    terminal::schema_of::<Comparison>(SCHEMA)
}

/// Compares the two reports of `--compare`, which have the format `schema`, prints their
/// differences, and writes them to the file `json`, if given. Returns the exit code, which is like
/// that of diff(1): 0 if nothing changed beyond noise, 1 if something did.
///
/// # Errors
/// A usage failure if a file cannot be read, is not a report of this format, or is that of a run
/// that failed without naming programs; also if nothing changed and no cell has times that can be
/// compared. A report failure if the result cannot be written.
pub fn run(
    schema: &str,
    [before, after]: [&Path; 2],
    json: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let origin = Origin::now();
    let read = |path| read(path, schema, "--compare");
    let [first, second] = [read(before)?, read(after)?];
    let file = ReportFile::prepare(json)?;
    let findings = compare(&first, &second);
    let mut printed = Ok(());
    if !file.is_output() {
        printed = terminal::print_results(&findings.text());
    }
    let comparison = Comparison {
        schema: SCHEMA,
        causeway: env!("CARGO_PKG_VERSION"),
        origin: origin.ended(),
        before: Source::of(before, &first),
        after: Source::of(after, &second),
        verdict: findings.verdict(),
        findings,
    };
    file.write(&comparison)?;
    printed?;
    match comparison.verdict {
        Verdict::Unchanged => Ok(ExitCode::SUCCESS),
        Verdict::Changed => Ok(Code::GuestFailed.into()),
        Verdict::NotComparable => Err(not_comparable(before, after, &comparison.findings)),
    }
}

/// Returns the failure of a comparison that says nothing about times.
fn not_comparable(before: &Path, after: &Path, findings: &Findings) -> Failure {
    let (before, after) = (before.display(), after.display());
    Failure::usage(match findings.cells_compared {
        0 => format!(
            "cannot compare {before} with {after}: no cell is in both; measure the same workloads \
             and mechanisms"
        ),
        _ => format!(
            "cannot compare {before} with {after}: no cell has times that are steady, of at least \
             {INTERVAL_SAMPLES_MIN} samples; measure again with --repetitions 12, beside no other \
             work"
        ),
    })
}

fn compare(before: &Report, after: &Report) -> Findings {
    let mut findings = cells(before, after);
    findings.settings = settings(before, after);
    let outcomes = outcomes(before, after);
    for (cells, others, report) in [
        (&before.cells, &after.cells, "first"),
        (&after.cells, &before.cells, "second"),
    ] {
        let is_alone = |cell: &&Cell| {
            let key = cell.key();
            others.iter().all(|other| other.key() != key)
                && outcomes
                    .iter()
                    .all(|change| change.cell != CellName::of(cell))
        };
        let alone = cells.iter().filter(is_alone).map(|cell| OnlyInOne {
            cell: CellName::of(cell),
            report,
        });
        findings.only_in_one.extend(alone);
    }
    findings.outcomes = outcomes;
    findings
}

/// Returns the programs that passed in one report only, and what the other says of them.
fn outcomes(before: &Report, after: &Report) -> Vec<OutcomeChange> {
    let passed = || String::from("passed");
    let mut changes = Vec::new();
    for (cells, other, is_before) in [(&before.cells, after, true), (&after.cells, before, false)] {
        for cell in cells {
            let Some((outcome, why)) = other.failing(&cell.workload, &cell.mechanism) else {
                continue;
            };
            let failed = printable(&format!("{outcome}: {why}"));
            let (before, after) = match is_before {
                true => (passed(), failed),
                false => (failed, passed()),
            };
            changes.push(OutcomeChange {
                cell: CellName::of(cell),
                before,
                after,
            });
        }
    }
    changes
}

/// Returns the differences between the hosts and settings of the two runs.
fn settings(before: &Report, after: &Report) -> Vec<Setting> {
    let effort = |report: &Report| String::from(if report.quick { "quick" } else { "full" });
    let revision = |report: &Report| report.revision.clone().unwrap_or_default();
    let more = |report: &Report| {
        let more = report.host.more.iter();
        let more: Vec<String> = more
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        more.join(", ")
    };
    type Get<'s> = (&'static str, &'s dyn Fn(&Report) -> String);
    let settings: [Get<'_>; 9] = [
        ("KVM", &|report| report.host.kvm.clone()),
        ("kernel", &|report| report.host.kernel.clone()),
        ("processor", &|report| report.host.cpu.clone()),
        ("CPUs", &|report| report.host.cpus.to_string()),
        ("host", &more),
        ("back end", &|report| report.backend.clone()),
        ("effort", &effort),
        ("causeway", &|report| report.causeway.clone()),
        ("revision", &revision),
    ];
    let differing = settings.into_iter().filter_map(|(name, get)| {
        let [before, after] = [before, after].map(|report| printable(&get(report)));
        (before != after).then_some(Setting {
            name,
            before,
            after,
        })
    });
    differing.collect()
}

fn cells(before: &Report, after: &Report) -> Findings {
    let later: BTreeMap<_, &Cell> = after.cells.iter().map(|cell| (cell.key(), cell)).collect();
    let mut findings = Findings::default();
    let pairs = before.cells.iter();
    let pairs = pairs.filter_map(|cell| Some((cell, *later.get(&cell.key())?)));
    let pairs: Vec<(&Cell, &Cell)> = pairs.collect();
    findings.cells_compared = pairs.len();
    for (cell, other) in &pairs {
        let mut changed = |figure, [before, after]: [f64; 2]| {
            findings.changes.push(Change {
                cell: CellName::of(cell),
                figure,
                before,
                after,
            });
        };
        if cell.operations != other.operations {
            let operations = [cell, other].map(|cell| cell.operations as f64);
            changed(Figure::Operations, operations);
        }
        let times = time(cell, other, pairs.len());
        if let Times::Changed = times {
            changed(Figure::Time, [cell, other].map(|cell| cell.time.median_ns));
        }
        if let Some(exits) = exits(cell, other) {
            changed(Figure::Exits, exits);
        }
        if let Times::Unknown(reason) = times {
            let cell = CellName::of(cell);
            findings.not_compared.push(NotCompared { cell, reason });
        }
    }
    findings
}

/// Result of comparing two times of a cell.
enum Times {
    Same,
    Changed,
    Unknown(String),
}

/// Compares two times. They differ if the intervals of their medians are further apart than
/// [`CLOSE`]. The intervals are wide enough that none of `cells` cells differs by chance.
fn time(before: &Cell, after: &Cell, cells: usize) -> Times {
    let intervals = [before, after].map(|cell| interval_of(&cell.time.samples_ns));
    let [Some((low, high)), Some((other_low, other_high))] = intervals else {
        let [first, second] = [before, after].map(|cell| cell.time.samples_ns.len());
        return Times::Unknown(format!(
            "times are not compared: {first} and {second} samples, and each takes \
             {INTERVAL_SAMPLES_MIN}"
        ));
    };
    if intervals.into_iter().any(is_unsteady) {
        return Times::Unknown(format!(
            "times are too unsteady to be compared: {} to {}, and {} to {}",
            shown(low),
            shown(high),
            shown(other_low),
            shown(other_high)
        ));
    }
    let among = |cell: &Cell| interval_among(&cell.time.samples_ns, cells);
    let gap = among(before).zip(among(after)).map(|(a, b)| apart(a, b));
    let (first, second) = (before.time.median_ns, after.time.median_ns);
    if gap.is_none_or(|gap| gap <= CLOSE * first.min(second)) || host_did_too(before, after) {
        return Times::Same;
    }
    Times::Changed
}

/// Returns the distance of two intervals; negative if they overlap.
fn apart((low, high): (f64, f64), (other_low, other_high): (f64, f64)) -> f64 {
    (other_low - high).max(low - other_high)
}

/// Returns whether the host's own time has changed by as much. Then the speed of the machine has
/// changed, for example its clock frequency.
fn host_did_too(before: &Cell, after: &Cell) -> bool {
    let interval = |cell: &Cell| {
        let ratio = cell.over_native.as_ref()?;
        Some((ratio.median, (ratio.low?, ratio.high?)))
    };
    let pair = interval(before).zip(interval(after));
    pair.is_some_and(|((first, before), (second, after))| {
        apart(before, after) <= CLOSE * first.min(second)
    })
}

/// Compares exits, and returns both if they differ. They are exact counts, but for those of polls
/// for the end of launches, and of whole guests.
fn exits(before: &Cell, after: &Cell) -> Option<[f64; 2]> {
    let count = |cell: &Cell| Some(cell.exits.as_ref()?.user_space_per_operation);
    let (first, second) = (count(before)?, count(after)?);
    let distance = (second - first).abs();
    let differs = match depends_on_time(before) {
        true => (first == 0.0) != (second == 0.0) || distance > CLOSE * first.min(second),
        false => first != second,
    };
    differs.then_some([first, second])
}

/// Returns whether the number of exits depends on time: where the guest polls a register for the
/// end of work, and where a whole guest is counted.
fn depends_on_time(cell: &Cell) -> bool {
    let launches = |workload: WorkloadKind| workload.description().launches;
    // All exits of a guest's kernel are in those of a program.
    let is_whole_guest = cell.mechanism == Way::Guest.name();
    let traps = cell.mechanism == MechanismKind::Trap.name();
    is_whole_guest || traps && WorkloadKind::named(&cell.workload).is_none_or(launches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reports::{Exits, Host, Missing, Ratio, Time};

    fn report(samples: &[f64], exits: f64) -> Report {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Report {
            causeway: "1".to_owned(),
            revision: None,
            time: None,
            host: Host {
                kvm: "svm".to_owned(),
                kernel: "Linux 6.1".to_owned(),
                cpu: "a processor".to_owned(),
                cpus: 2,
                more: serde_json::Map::new(),
            },
            backend: "software".to_owned(),
            quick: true,
            passed: true,
            result: "passed".to_owned(),
            cells: vec![Cell {
                workload: "copy-in".to_owned(),
                size: 64,
                mechanism: "trap".to_owned(),
                operations: 10,
                time: Time {
                    median_ns: sorted[sorted.len() / 2],
                    samples_ns: samples.to_vec(),
                },
                over_native: None,
                exits: Some(Exits {
                    user_space_per_operation: exits,
                }),
            }],
            missing: Vec::new(),
        }
    }

    /// The text about the differences of two reports.
    fn compare(before: &Report, after: &Report) -> String {
        super::compare(before, after).text()
    }

    const FIRST: [f64; 6] = [100.0, 104.0, 110.0, 103.0, 101.0, 103.0];

    #[test]
    fn what_overlaps_or_lies_close_is_noise() {
        let before = report(&FIRST, 8.0);
        for samples in [
            [109.0, 130.0, 150.0, 140.0, 135.0, 136.0],
            [111.0; 6],
            [92.0; 6],
        ] {
            let text = compare(&before, &report(&samples, 8.0));
            assert_eq!(text, "1 cells compared, 0 changes beyond noise\n");
        }
    }

    #[test]
    fn what_lies_apart_is_named_with_both_values_whichever_comes_first() {
        let (slow, fast) = (report(&[206.0; 6], 8.0), report(&FIRST, 8.0));
        let text = compare(&fast, &slow);
        assert!(
            text.contains("copy-in 64 by trap: time 103 ns → 206 ns (2.00×)"),
            "{text}"
        );
        let text = compare(&slow, &fast);
        assert!(text.contains("206 ns → 103 ns (0.500×)"), "{text}");
        // 110 is the end of the first; a tenth of the smaller median, 103, lies between.
        for (time, count) in [(120.0, 0), (121.0, 1)] {
            let other = report(&[time; 6], 8.0);
            for text in [compare(&fast, &other), compare(&other, &fast)] {
                assert!(text.contains(&format!("{count} changes")), "{text}");
            }
        }
    }

    #[test]
    fn what_the_host_does_too_is_the_machines() {
        let report = |time: f64, ratio: f64| {
            let mut report = report(&[time; 6], 0.0);
            report.cells[0].over_native = Some(Ratio {
                median: ratio,
                low: Some(ratio),
                high: Some(ratio),
            });
            report
        };
        for (ratio, count) in [(1.05, 0), (1.5, 1)] {
            let text = compare(&report(100.0, 1.0), &report(150.0, ratio));
            assert!(text.contains(&format!("{count} changes")), "{text}");
        }
    }

    #[test]
    fn of_many_cells_none_differs_by_chance() {
        // Apart by their intervals of 95 %, of which two of twelve samples may be beyond either
        // end.
        let mut slow = [150.0; 12];
        slow[..2].fill(100.0);
        let report = |samples: &[f64], cells: u64| {
            let all = (0..cells).map(|size| {
                let mut cell = report(samples, 8.0).cells.remove(0);
                cell.size = size;
                cell
            });
            Report {
                cells: all.collect(),
                ..report(samples, 8.0)
            }
        };
        for (cells, changes) in [(1, 1), (100, 0)] {
            let text = compare(&report(&[100.0; 12], cells), &report(&slow, cells));
            assert!(text.contains(&format!("{changes} changes")), "{text}");
        }
    }

    #[test]
    fn exits_are_exact_but_where_the_guest_asks_whether_launches_are_done() {
        let change = |mechanism: &str, workload: &str, exits: f64| {
            let mut pair = [report(&FIRST, 8.0), report(&FIRST, exits)];
            for report in &mut pair {
                report.cells[0].mechanism = mechanism.to_owned();
                report.cells[0].workload = workload.to_owned();
            }
            compare(&pair[0], &pair[1]).contains("1 changes")
        };
        assert!(change("mediated", "allocate", 8.001));
        assert!(change("forward", "submit", 8.001));
        assert!(change("trap", "copy-in", 8.001));
        assert!(!change("trap", "submit", 8.001));
        assert!(change("trap", "submit", 9.0));
        assert!(!change("mediated", "allocate", 8.0));
    }

    #[test]
    fn times_of_few_or_unsteady_samples_are_not_compared() {
        let text = compare(&report(&[100.0; 5], 1.0), &report(&[900.0; 6], 1.0));
        assert!(text.contains("5 and 6 samples"), "{text}");
        assert!(text.contains("0 changes"), "{text}");
        let unsteady = [100.0, 110.0, 120.0, 150.0, 190.0, 201.0];
        let text = compare(&report(&unsteady, 1.0), &report(&[900.0; 6], 1.0));
        assert!(text.contains("too unsteady"), "{text}");
        assert!(
            text.ends_with("the times of 1 could not be compared\n"),
            "{text}"
        );
    }

    #[test]
    fn a_verdict_is_that_of_times_that_could_be_compared_or_of_any_change() {
        let verdict = |after: &Report| super::compare(&report(&FIRST, 8.0), after).verdict();
        assert_eq!(verdict(&report(&FIRST, 8.0)), Verdict::Unchanged);
        assert_eq!(verdict(&report(&[206.0; 6], 8.0)), Verdict::Changed);
        // Of five samples, only the exits can be compared.
        assert_eq!(verdict(&report(&[103.0; 5], 9.0)), Verdict::Changed);
        assert_eq!(verdict(&report(&[103.0; 5], 8.0)), Verdict::NotComparable);
        let mut other = report(&FIRST, 8.0);
        other.cells[0].size = 128;
        assert_eq!(verdict(&other), Verdict::NotComparable, "no cell in both");
    }

    #[test]
    fn what_was_not_the_same_is_said() {
        let (before, mut after) = (report(&FIRST, 8.0), report(&FIRST, 8.0));
        after.host.kernel = "Linux\x1b 6.2".to_owned();
        after.quick = false;
        after.cells[0].operations = 20;
        let text = compare(&before, &after);
        assert!(
            text.contains("differs: kernel: Linux 6.1 → Linux 6.2\n"),
            "{text}"
        );
        assert!(text.contains("differs: effort: quick → full\n"), "{text}");
        assert!(text.contains("10 → 20 operations in a sample"), "{text}");
    }

    #[test]
    fn a_program_that_passes_in_one_report_only_has_changed() {
        let before = report(&FIRST, 1.0);
        let mut after = report(&FIRST, 1.0);
        after.cells.clear();
        after.missing.push(Missing {
            workload: Some("copy-in".to_owned()),
            mechanism: None,
            outcome: Some("failed".to_owned()),
            reason: "wrong\x1b result".to_owned(),
        });
        let text = compare(&before, &after);
        let line = "copy-in 64 by trap: passed → failed: wrong result\n";
        assert!(
            text.starts_with(line) && text.contains("1 changes"),
            "{text}"
        );
        assert!(!text.contains("report only"), "{text}");
        let text = compare(&after, &before);
        assert!(text.contains("failed: wrong result → passed\n"), "{text}");
        assert_eq!(super::compare(&before, &after).verdict(), Verdict::Changed);
        after.missing[0].mechanism = Some("mediated".to_owned());
        let text = compare(&before, &after);
        assert!(text.contains("in the first report only"), "{text}");
    }

    #[test]
    fn cells_of_one_report_only_are_named() {
        let before = report(&FIRST, 1.0);
        let mut after = report(&FIRST, 1.0);
        after.cells[0].size = 128;
        let text = compare(&before, &after);
        assert!(
            text.contains("copy-in 64 by trap: in the first report only"),
            "{text}"
        );
        assert!(
            text.contains("copy-in 128 by trap: in the second report only"),
            "{text}"
        );
        assert!(text.contains("0 cells compared"), "{text}");
    }
}
