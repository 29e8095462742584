//! The report as text for people.

mod exits;

use std::fmt::Write as _;
use std::ops::Range;

use causeway_testdev::{EndedBy, Figure};
use causeway_vmm::counters::PAUSED;
use causeway_vmm::passthrough::DeviceReport;
use comfy_table::{CellAlignment, Row, Table, presets};

use crate::data_path::DataPath;
use crate::report::{BackendReport, KernelReport, PhaseReport, RatioReport, Report, VmReport};

/// Returns the whole report as text for people, in lines of at most `width` characters if `width`
/// is given.
pub fn render(report: &Report, width: Option<usize>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{} on {}\n{}\n",
        report.guest,
        backend(report),
        report.host
    );
    if !report.phases.is_empty() {
        let _ = writeln!(out, "{}\n", phases(report, width));
    }
    for vm in report.vms.iter().filter(|vm| !has_phases(report, vm)) {
        let _ = writeln!(out, "{}\n", exits::table(vm));
    }
    if !report.ratios.is_empty() {
        let _ = writeln!(out, "{}\n", ratios(report).trim_fmt());
    }
    if !report.kernels.is_empty() {
        let _ = writeln!(out, "{}\n", kernels(report).trim_fmt());
    }
    for vm in &report.vms {
        let _ = writeln!(
            out,
            "VM {}{}: {}, {} stray accesses",
            vm.vm,
            place(report, vm),
            vm.result,
            vm.strays.total()
        );
        for device in &vm.devices {
            let _ = writeln!(out, "  {}", passed_through(device));
        }
    }
    let boot = report
        .boot_us
        .map_or_else(|| "-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1e3));
    let _ = writeln!(
        out,
        "process start to first guest instruction {boot}, VMM memory beyond guest and GPU memory \
         {:.1} MiB per VM",
        report.vmm_rss_bytes_per_vm as f64 / f64::from(1 << 20)
    );
    out.push_str(&notes(report));
    if let Some(traced) = &report.tracepoints {
        let _ = writeln!(out, "{traced}");
    }
    out.push_str(&verdict(report));
    out
}

/// Returns on which of the run's GPUs a VM is that has one of several.
fn place(report: &Report, vm: &VmReport) -> String {
    match report.further_backends.is_empty() || !vm.further_gpus.is_empty() {
        true => String::new(),
        false => format!(" on GPU {}", vm.gpu),
    }
}

/// Returns whether the guest of `vm` marked phases.
fn has_phases(report: &Report, vm: &VmReport) -> bool {
    report.phases.iter().any(|phase| phase.vm == vm.vm)
}

/// Returns a line about the back end; one for each GPU if there are several.
fn backend(report: &Report) -> String {
    let line = |backend: &BackendReport| {
        format!(
            "{} ({} compute units, {} MiB per VM)",
            backend.name,
            backend.compute_units,
            backend.memory_bytes_per_vm >> 20
        )
    };
    let all = std::iter::once(&report.backend).chain(&report.further_backends);
    let lines: Vec<String> = all.map(line).collect();
    lines.join("\n")
}

/// Returns a line that says what one device that was passed through did: its BARs, interrupts and
/// exits.
pub fn passed_through(device: &DeviceReport) -> String {
    let bars = device.bars.iter().map(|bar| {
        let trapped = match bar.trapped_bytes {
            0 => String::new(),
            bytes => format!(" + {} trapped", size(bytes)),
        };
        format!("BAR {} {} mapped{trapped}", bar.bar, size(bar.mapped_bytes))
    });
    let bars: Vec<_> = bars.collect();
    let events = match &device.events[..] {
        [] => String::new(),
        events => format!("; {}", events.join(", ")),
    };
    format!(
        "{} ({}) by {}: {}; interrupts: {} ({} vectors); {} exits for configuration, {} for BARs; \
         BARs moved {} times{events}",
        device.address,
        device.id,
        device.held_by,
        bars.join(", "),
        device.interrupts.mode,
        device.interrupts.vectors,
        count(device.config_reads + device.config_writes),
        count(device.trapped_reads + device.trapped_writes),
        count(device.moved_bars),
    )
}

/// Formats a number of bytes in the largest unit in which it is whole, such as `64 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        b if b.is_multiple_of(1 << 30) => format!("{} GiB", b >> 30),
        b if b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// Returns the two lines that say whether the run passed, and how many exits the data path had.
fn verdict(report: &Report) -> String {
    let operations = report
        .data_phases()
        .map(|(phase, _)| phase.phase.operations);
    // Guests choose these numbers.
    let operations = operations.fold(0, u64::saturating_add);
    let data_path = match report.data_path {
        DataPath::None => "none",
        DataPath::Some => "SOME",
        DataPath::Unmarked => "no data phase was marked",
        DataPath::Incomplete => "INCOMPLETE",
    };
    let lacks = report.uncounted().map(|lacks| format!(" ({lacks})"));
    let lacks = lacks.unwrap_or_default();
    format!(
        "run: {} ({})\ndata path: {} operations, {} exits (0 wanted): {data_path}{lacks}\n",
        report.outcome.to_uppercase(),
        report.reason,
        count(operations),
        count(report.data_path_exits),
    )
}

/// Returns what has to be known to read the counts: lines about this KVM, and about each phase with
/// exits that it should not have, or whose counters disagree.
fn notes(report: &Report) -> String {
    let mut out = String::new();
    if !report.kvm_counts_ports() {
        out.push_str("this KVM counts port accesses as emulated instructions, not as io_exits\n");
    }
    if counts_doorbells_as_exits(report) {
        out.push_str(
            "the host does not tell how many doorbells KVM took (is /proc mounted?): on this KVM, \
             they count as exits\n",
        );
    }
    report
        .phases
        .iter()
        .for_each(|phase| out.push_str(&left_open(phase)));
    for (phase, exits) in report.data_phases().filter(|(_, exits)| *exits != 0) {
        let reasons = phase.phase.vmm_exits.iter();
        let reasons: Vec<_> = reasons.map(|(key, n)| format!("{key} {n}")).collect();
        let by_vmm = match &reasons[..] {
            [] => "none".to_owned(),
            reasons => reasons.join(", "),
        };
        let _ = writeln!(
            out,
            "VM {}: phase `{}` of the data path had exits: {exits} (by the VMM's count: {by_vmm})",
            phase.vm, phase.phase.name
        );
    }
    for phase in report.disagreements() {
        let _ = writeln!(
            out,
            "VM {}: the counters disagree in phase `{}`: KVM {:?}, VMM {:?}",
            phase.vm,
            phase.phase.name,
            phase.by_kvm(),
            phase.by_vmm()
        );
    }
    for vm in &report.vms {
        out.push_str(&crowded(vm, &report.phases));
        out.push_str(&paused(vm));
    }
    out
}

/// Returns a line if `vm` was paused.
fn paused(vm: &VmReport) -> String {
    let Some(pauses) = vm.pauses else {
        return String::new();
    };
    format!(
        "VM {}: it was paused {} times, for {:.3} s in all: times include that, and each virtual \
         CPU that ran then has an exit `{PAUSED}` more\n",
        vm.vm,
        count(pauses.count),
        pauses.duration_ns as f64 / 1e9
    )
}

/// Returns a line if no mark has ended `phase`.
fn left_open(phase: &PhaseReport) -> String {
    let by = match phase.phase.ended_by {
        EndedBy::Mark => return String::new(),
        EndedBy::Exit => "guest, by an exit that is not counted in it",
        EndedBy::Host => "host",
    };
    let name = &phase.phase.name;
    format!(
        "VM {}: phase `{name}` was open when the VM was ended by the {by}\n",
        phase.vm
    )
}

/// Returns whether the host does not tell doorbells from exits in a phase of the data path.
fn counts_doorbells_as_exits(report: &Report) -> bool {
    let mut phases = report.data_phases();
    let is_unknown = |phase: &PhaseReport| {
        phase.phase.kvm_doorbells.is_none() && phase.kvm("insn_emulation") != 0
    };
    !report.kvm_counts_ports() && phases.any(|(phase, _)| is_unknown(phase))
}

/// Fewest waits on a processor that others had which are worth a line. Some are on every host.
const CROWDED_WAITS_MIN: u64 = 10;

/// Returns how often other threads had the processor on which the consumers of `vm` waited; `None`
/// if that is too seldom to tell.
#[must_use]
pub fn crowded_waits(vm: &VmReport) -> Option<u64> {
    let waits = vm.session.statistics.get("crowded_waits").copied();
    waits.filter(|waits| *waits >= CROWDED_WAITS_MIN)
}

/// Returns a line if other threads often had the processor on which the consumers of `vm` waited.
/// It names the rows of `phases` that this touches: those whose operations consumers execute.
fn crowded(vm: &VmReport, phases: &[PhaseReport]) -> String {
    let Some(waits) = crowded_waits(vm) else {
        return String::new();
    };
    let touched = phases.iter().filter(|phase| phase.vm == vm.vm);
    let touched = touched.filter(|phase| phase.phase.path == "data");
    let names: Vec<_> = touched
        .map(|phase| format!("`{}`", phase.phase.name))
        .collect();
    let rows = match &names[..] {
        [] => "times of launches and of waits".to_owned(),
        names => format!("the times of {}", names.join(", ")),
    };
    format!(
        "VM {}: consumers found their processor taken by other threads {} times (the guest's, or \
         other load): {rows} include that\n",
        vm.vm,
        count(waits)
    )
}

/// Columns of the phases. A terminal that is too narrow omits the columns in [`SPARED`], the first
/// one first.
const COLUMNS: [&str; 12] = [
    "phase",
    "path",
    "operations",
    "time",
    "per op",
    "mmio",
    "io",
    "emulated",
    "VMM's count",
    "doorbells",
    "all exits",
    "faults",
];

/// Columns that a narrow table omits.
const SPARED: [&str; 6] = [
    "time",
    "all exits",
    "VMM's count",
    "faults",
    "path",
    "doorbells",
];

fn phases(report: &Report, width: Option<usize>) -> String {
    let limit = width.unwrap_or(usize::MAX);
    let widest = |text: &str| text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
    let mut text = phase_table(report, &[]);
    for spared in 1..=SPARED.len() {
        if widest(&text) <= limit {
            return text;
        }
        text = phase_table(report, &SPARED[..spared]);
        let _ = write!(text, "\n(a wider terminal or --json shows more)");
    }
    text
}

fn phase_table(report: &Report, hidden: &[&str]) -> String {
    let many = report.vms.len() > 1;
    let shown = |row: Vec<String>, vm: String| {
        let cells = COLUMNS.iter().zip(row);
        let cells = cells.filter(|(name, _)| !hidden.contains(name));
        let vm = many.then_some(vm).into_iter();
        vm.chain(cells.map(|(_, cell)| cell)).collect::<Vec<_>>()
    };
    let header = shown(COLUMNS.map(str::to_owned).into(), "VM".to_owned());
    let phases = report.phases.iter();
    let rows = phases.map(|phase| shown(phase_row(phase), phase.vm.to_string()));
    let texts = 1 + usize::from(many) + usize::from(!hidden.contains(&"path"));
    aligned(header, rows, texts..usize::MAX).trim_fmt()
}

/// Returns a table of `header` and `rows`, without lines between cells. The columns whose indices
/// (from 0) are in `figures` are right-aligned, the others left-aligned.
pub fn aligned<R: Into<Row>>(
    header: impl Into<Row>,
    rows: impl IntoIterator<Item = R>,
    figures: Range<usize>,
) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        if figures.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn phase_row(phase: &PhaseReport) -> Vec<String> {
    let counted = &phase.phase;
    let per_operation = match counted.operations {
        0 => "-".to_owned(),
        n => duration(counted.duration_ns as f64 / n as f64),
    };
    vec![
        counted.name.clone(),
        counted.path.to_owned(),
        count(counted.operations),
        duration(counted.duration_ns as f64),
        per_operation,
        count(phase.kvm("mmio_exits")),
        count(phase.kvm("io_exits")),
        count(phase.kvm("insn_emulation")),
        count(phase.by_vmm().mmio + phase.by_vmm().io),
        count(counted.kvm_doorbells.unwrap_or(counted.doorbells)),
        count(phase.kvm("exits")),
        count(phase.kvm("pf_taken")),
    ]
}

fn ratios(report: &Report) -> Table {
    let row = |ratio: &RatioReport| {
        let Figure { name, value, unit } = &ratio.figure;
        let name = if report.vms.len() > 1 {
            format!("VM {}: {name}", ratio.vm)
        } else {
            name.clone()
        };
        [name, figure(*value), unit.clone()]
    };
    let rows = report.ratios.iter().map(row);
    aligned(["figure", "value", "unit"], rows, 1..2)
}

/// Returns the table of kernels with their launches and speed. The software back end counts them.
fn kernels(report: &Report) -> Table {
    let header = [
        "kernel",
        "launches",
        "thread-instructions",
        "million/s per core",
    ];
    let row = |kernel: &KernelReport| {
        [
            kernel.count.name.clone(),
            count(kernel.count.launches),
            count(kernel.count.thread_instructions),
            format!("{:.0}", kernel.per_core_per_s / 1e6),
        ]
    };
    aligned(header, report.kernels.iter().map(row), 1..4)
}

fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Digits in groups of three.
fn count(n: u64) -> String {
    let digits = n.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(" ")
}

fn duration(ns: f64) -> String {
    match ns {
        n if n < 1e3 => format!("{n:.1} ns"),
        n if n < 1e6 => format!("{:.1} µs", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{phase, report, vm};
    use crate::report::{GpuReport, PauseReport};
    use causeway_mediator::SessionReport;

    fn last_lines(report: &Report) -> [String; 2] {
        let text = render(report, None);
        let lines: Vec<_> = text.lines().rev().take(2).map(str::to_owned).collect();
        let [data_path, run] = lines.try_into().unwrap();
        [run, data_path]
    }

    #[test]
    fn consumers_without_a_processor_of_their_own_are_noted() {
        let mut vm = vm();
        assert_eq!(crowded(&vm, &[]), "");
        vm.session.statistics.insert("crowded_waits", 9);
        assert_eq!(crowded(&vm, &[]), "");
        vm.session.statistics.insert("crowded_waits", 1234);
        let line = crowded(&vm, &[]);
        assert!(line.starts_with("VM 0: consumers found"), "{line}");
        assert!(line.contains("1 234 times"), "{line}");
        assert!(line.contains("times of launches"), "{line}");
        let mut phases = [
            phase([0; 3], [0; 2]),
            phase([0; 3], [0; 2]),
            phase([0; 3], [0; 2]),
        ];
        for (phase, name) in phases.iter_mut().zip(["mine", "set up", "another's"]) {
            phase.phase.name = name.to_owned();
        }
        phases[1].phase.path = "setup";
        phases[2].vm = 1;
        let line = crowded(&vm, &phases);
        assert!(line.contains("): the times of `mine` include"), "{line}");
    }

    #[test]
    fn a_vm_that_was_paused_is_noted() {
        let mut vm = vm();
        assert_eq!(paused(&vm), "");
        vm.pauses = Some(PauseReport {
            count: 2,
            duration_ns: 1_500_000_000,
            at_end: false,
        });
        let line = paused(&vm);
        let told = "VM 0: it was paused 2 times, for 1.500 s in all: ";
        assert!(
            line.starts_with(told) && line.contains("`signal:pause`"),
            "{line}"
        );
    }

    #[test]
    fn the_last_lines_say_how_the_run_ended_and_apart_from_that_what_the_data_path_had() {
        let mut report = report();
        report.reason = "vm0: the program ended with status 7".to_owned();
        report.vms.push(vm());
        report.count_data_path();
        let unmarked = "data path: 0 operations, 0 exits (0 wanted): no data phase was marked";
        assert_eq!(last_lines(&report)[1], unmarked);
        report.phases.push(phase([0, 0, 0], [0, 0]));
        report.phases[0].phase.operations = 1234;
        report.count_data_path();
        assert_eq!(
            last_lines(&report),
            [
                "run: FAIL (vm0: the program ended with status 7)",
                "data path: 1 234 operations, 0 exits (0 wanted): none",
            ]
        );
        report.outcome = "pass";
        report.phases.push(phase([1, 0, 1], [1, 0]));
        report.count_data_path();
        let [run, data_path] = last_lines(&report);
        assert!(run.starts_with("run: PASS ("), "{run}");
        assert!(
            data_path.ends_with("1 exits (0 wanted): SOME"),
            "{data_path}"
        );
        let text = render(&report, None);
        assert!(text.contains("mmio:registers:magic 1)"), "{text}");
    }

    #[test]
    fn the_last_line_says_what_was_not_counted() {
        let mut report = report();
        report
            .vms
            .extend([0, 1].map(|index| VmReport { vm: index, ..vm() }));
        report.phases.push(phase([0, 0, 0], [0, 0]));
        report.count_data_path();
        let line = "data path: 0 operations, 0 exits (0 wanted): INCOMPLETE (1 of 2 VMs marked no \
                    data phase)";
        assert_eq!(last_lines(&report)[1], line);
        report.vms.truncate(1);
        report.vms[0].phases_refused = 7;
        report.phases.push(phase([0, 0, 0], [1, 0]));
        report.count_data_path();
        let line = &last_lines(&report)[1];
        assert!(line.contains(": SOME (VM 0 marked 7 phases more"), "{line}");
    }

    #[test]
    fn a_phase_that_was_left_open_is_noted_and_so_are_doorbells_of_unknown_number() {
        let mut report = report();
        report.vms.push(vm());
        report.phases.push(phase([0, 0, 2], [0, 0]));
        assert_eq!(notes(&report).lines().count(), 2, "{}", notes(&report));
        report.phases[0].phase.ended_by = EndedBy::Host;
        report.phases[0].phase.kvm_doorbells = None;
        let notes = notes(&report);
        assert!(
            notes.contains("was open when the VM was ended by the host"),
            "{notes}"
        );
        assert!(
            notes.contains("does not tell how many doorbells"),
            "{notes}"
        );
    }

    #[test]
    fn a_vm_without_phases_shows_its_exits_and_one_with_phases_shows_those() {
        let mut report = report();
        report.vms.push(vm());
        report.vms.push(VmReport { vm: 1, ..vm() });
        report.phases.push(phase([0, 0, 0], [0, 0]));
        let text = render(&report, None);
        assert!(text.contains("exits of VM 1"), "{text}");
        assert!(!text.contains("exits of VM 0"), "{text}");
    }

    #[test]
    fn a_vm_says_which_of_several_gpus_it_has() {
        let mut report = report();
        report.vms.push(VmReport { gpu: 1, ..vm() });
        let line = "VM 0 on GPU 1: passed";
        assert!(!render(&report, None).contains(line), "there is one");
        report.further_backends.push(BackendReport {
            name: "cuda".to_owned(),
            compute_units: 1,
            memory_bytes_per_vm: 1,
        });
        assert!(render(&report, None).contains(line));
        report.vms[0]
            .further_gpus
            .push(GpuReport::of(1, &SessionReport::of(1, "vm0")));
        assert!(render(&report, None).contains("VM 0: passed"), "it has all");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(100_000_000), "100 000 000");
        assert_eq!(duration(12.34), "12.3 ns");
        assert_eq!(duration(1.5e6), "1.5 ms");
        assert_eq!(figure(0.9876), "0.988");
        assert_eq!(figure(12345.6), "12346");
        let sizes = [0, 256, 4096, 3 << 20, 64 << 30].map(size);
        assert_eq!(sizes, ["0 B", "256 B", "4 KiB", "3 MiB", "64 GiB"]);
    }
}
