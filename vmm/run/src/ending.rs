//! How the results of VMs become the exit code and the messages of the command.

use std::process::ExitCode;

use causeway_init::NOT_RUN;
use causeway_mediator::SessionReport;
use causeway_vmm::outcome::{AtTimeout, VmOutcome, VmResult};
use causeway_vmm::vcpu_state::VcpuState;
use causeway_vmm::vm::Boot;

use crate::configuration::Run;
use crate::data_path::DataPath;
use crate::gpu::Gpu;
use crate::report::Report;
use causeway_terminal as terminal;
use causeway_terminal::Code;

/// Number of virtual CPUs of a VM of which messages tell what they did at the time-out.
const VCPUS_TOLD: usize = 8;

/// How the command reads the value that a guest stores to the exit port of the test device: as a
/// verdict (0 means that the guest passed), or as the exit status of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// A bare guest: zero means that it passed, any other value that it failed.
    Verdict,
    /// A Linux guest without `--program`: the value is the exit status of a program. The guest may
    /// end without storing a value.
    Status,
    /// A Linux guest of `--program`: the value is the exit status of that program. A guest that
    /// ends without storing a value has failed.
    Program,
}

/// An exit code of the command for a run that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunCode {
    /// One of the exit codes that `causeway --help` lists.
    Own(Code),
    /// The exit status of the guest's program, which the command passes on.
    Program(u8),
}

impl From<RunCode> for ExitCode {
    fn from(code: RunCode) -> Self {
        match code {
            RunCode::Own(code) => code.into(),
            RunCode::Program(status) => status.into(),
        }
    }
}

impl Promise {
    /// Returns how to read the value of a guest that boots `boot`. `has_program` says whether
    /// `--program` was given.
    pub fn of(boot: &Boot, has_program: bool) -> Self {
        match boot {
            Boot::Bare { .. } => Self::Verdict,
            Boot::Linux(_) if has_program => Self::Program,
            Boot::Linux(_) => Self::Status,
        }
    }

    /// Returns the exit status of the guest's program from the VM's `result`, or `None` if the
    /// guest reported none, as for every bare guest.
    pub fn program_status(self, result: &VmResult) -> Option<u8> {
        match (self, result) {
            (Self::Verdict, _) => None,
            (_, VmResult::Pass) => Some(0),
            (_, VmResult::Fail { code, .. }) => u8::try_from(*code).ok(),
            _ => None,
        }
    }

    /// Returns the exit code of the command for a VM that ended with `result`, or `None` if the VM
    /// passed: its guest reported 0 or, if `self` is not [`Self::Program`], turned off, restarted
    /// or halted its machine.
    pub fn code(self, result: &VmResult) -> Option<RunCode> {
        if let Some(status) = self.program_status(result) {
            return (status != 0).then_some(RunCode::Program(status));
        }
        let own = match result {
            VmResult::Pass => return None,
            VmResult::PoweredOff | VmResult::Reset | VmResult::Halted if self != Self::Program => {
                return None;
            }
            VmResult::Fail { .. } if self == Self::Verdict => Code::GuestFailed,
            VmResult::PoweredOff
            | VmResult::Reset
            | VmResult::Halted
            | VmResult::Fail { .. }
            | VmResult::TripleFault { .. }
            | VmResult::Crash { .. }
            | VmResult::GuestPanic { .. }
            | VmResult::Abandoned
            | VmResult::Error(_) => Code::Crashed,
            VmResult::DeviceWanted { .. } => Code::Device,
            VmResult::Timeout => Code::Timeout,
            VmResult::Signal(signal) => Code::of_signal(*signal),
        };
        Some(RunCode::Own(own))
    }

    /// Returns how a VM ended, as text to be printed after the name of the VM.
    pub fn describe(self, result: &VmResult) -> String {
        match (self, self.program_status(result), result) {
            // Its own words say more.
            (
                _,
                Some(status),
                VmResult::Fail {
                    reason: Some(_), ..
                },
            ) => {
                format!("{result} (status {status})")
            }
            (_, Some(0), _) => "the program ended with status 0".to_owned(),
            (_, Some(status @ 129..=192), _) => {
                let signal = status - 128;
                format!("the program was killed by signal {signal}, or ended with status {status}")
            }
            (_, Some(status), _) => format!("the program ended with status {status}"),
            (Self::Status | Self::Program, None, VmResult::Fail { code: NOT_RUN, .. }) => {
                "the guest could not run its program; its console says why".to_owned()
            }
            (Self::Program, None, VmResult::PoweredOff | VmResult::Reset | VmResult::Halted) => {
                format!("{result} before it reported how its program ended")
            }
            _ => result.to_string(),
        }
    }
}

/// Returns the exit code for the worst result of all VMs, or `None` if the run passed. A signal is
/// worse than a timeout, a timeout is worse than a crash, and a crash is worse than a failure that
/// a guest reported; among equally bad results, the first VM's counts. If all VMs passed but
/// `counters_disagree` is true (KVM and the VMM counted different exits), the run fails.
pub fn exit_code(
    promise: Promise,
    outcomes: &[VmOutcome],
    counters_disagree: bool,
) -> Option<RunCode> {
    let worst = worst(promise, outcomes).map(|(code, _)| code);
    worst.or(counters_disagree.then_some(RunCode::Own(Code::GuestFailed)))
}

/// Returns the VM with the worst result, and the exit code for it, or `None` if all VMs passed.
fn worst(promise: Promise, outcomes: &[VmOutcome]) -> Option<(RunCode, &VmOutcome)> {
    let severity = |code: RunCode| match code {
        RunCode::Own(Code::HungUp | Code::Interrupted | Code::BrokenPipe | Code::Terminated) => 4,
        RunCode::Own(Code::Timeout) => 3,
        RunCode::Own(Code::Crashed | Code::Device) => 2,
        RunCode::Own(_) | RunCode::Program(_) => 1,
    };
    let failed = outcomes
        .iter()
        .filter_map(|outcome| Some((promise.code(&outcome.result)?, outcome)));
    failed.reduce(|worst, next| {
        if severity(next.0) > severity(worst.0) {
            next
        } else {
            worst
        }
    })
}

/// Whether a run passed, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The exit code of the command for a run that failed; `None` if the run passed.
    pub code: Option<RunCode>,
    /// Why the run passed or failed, as text for people.
    pub reason: String,
}

impl Verdict {
    fn failed(code: Code, reason: impl Into<String>) -> Self {
        Self {
            code: Some(RunCode::Own(code)),
            reason: reason.into(),
        }
    }
}

/// Returns whether a run passed whose VMs ended with `outcomes`, and why. A run fails if a VM
/// failed; else if KVM and the VMM counted different exits; else, if `requires_zero_exits` is true,
/// if its data path had exits, was not marked in every VM, or was not counted completely.
pub fn verdict(
    promise: Promise,
    outcomes: &[VmOutcome],
    report: &Report,
    requires_zero_exits: bool,
) -> Verdict {
    let how = |outcome: &VmOutcome| {
        let how = promise.describe(&outcome.result);
        format!("{}: {how}", outcome.name)
    };
    if let Some((code, outcome)) = worst(promise, outcomes) {
        return Verdict {
            code: Some(code),
            reason: how(outcome),
        };
    }
    if report.witnesses_disagree() {
        return Verdict::failed(Code::GuestFailed, "KVM and the VMM counted different exits");
    }
    match report.data_path {
        DataPath::Some if requires_zero_exits => Verdict::failed(
            Code::DataPathExits,
            format!(
                "the data path had exits: {}{}, but --require-zero-exits allows none",
                report.data_path_exits,
                by_pauses(report)
            ),
        ),
        DataPath::Unmarked if requires_zero_exits => Verdict::failed(
            Code::DataPathExits,
            "no data phase was marked, but --require-zero-exits needs one",
        ),
        DataPath::Incomplete if requires_zero_exits => Verdict::failed(
            Code::DataPathExits,
            format!(
                "{}, but --require-zero-exits needs all data phases of all VMs",
                report.uncounted().unwrap_or_default()
            ),
        ),
        _ => Verdict {
            code: None,
            reason: match outcomes {
                [only] => how(only),
                all => format!("all {} VMs passed", all.len()),
            },
        },
    }
}

/// Returns how many exits of the data path pauses have brought about, in parentheses; nothing if
/// none.
fn by_pauses(report: &Report) -> String {
    match report.data_path_pauses() {
        0 => String::new(),
        exits => format!(" ({exits} of them by pauses)"),
    }
}

/// Prints to standard error why a run failed whose VMs all passed, and what to do: `code` is its
/// exit code. Prints nothing if a VM failed, of which [`explain`] says why.
pub fn explain_counts(code: Option<RunCode>, report: &Report) {
    if code.is_none() || report.vms.iter().any(|vm| !vm.passed) {
        return;
    }
    let reason = &report.reason;
    terminal::say(&match code {
        Some(RunCode::Own(Code::DataPathExits)) if report.data_path == DataPath::Unmarked => {
            format!("causeway: {reason}: mark one in the guest (docs/guests.md, \"Phases\")")
        }
        Some(RunCode::Own(Code::DataPathExits)) if report.data_path == DataPath::Incomplete => {
            format!("causeway: {reason}: --json has the verdict on each VM (docs/guests.md)")
        }
        Some(RunCode::Own(Code::DataPathExits)) => {
            format!("causeway: {reason}: the table names the phases, and --json has all counts")
        }
        _ => format!("causeway: {reason}: the table names the phases (docs/decisions/0005)"),
    });
}

/// Prints to standard error why each failed VM of `run` failed. The last lines of its console
/// follow, unless a program ended with a status other than 0, because it has printed its own
/// messages.
pub fn explain(run: &Run, outcomes: &[VmOutcome]) {
    for (vm, outcome) in (0..).zip(outcomes) {
        match run.promise.code(&outcome.result) {
            None => {}
            // The program has printed its own messages.
            Some(RunCode::Program(_)) => say_how(run, vm, outcome),
            Some(RunCode::Own(_)) => explain_one(run, vm, outcome),
        }
    }
}

fn say_how(run: &Run, vm: u32, outcome: &VmOutcome) {
    let how = run.promise.describe(&outcome.result);
    terminal::say(&format!("causeway: {}: {how}", outcome.name));
    for ((gpu, ..), session) in run.gpus_of(vm).zip(&outcome.sessions) {
        if let Some(fault) = &session.fault {
            let which = match run.further.len() {
                0 => String::new(),
                _ => format!(" on GPU {gpu}"),
            };
            terminal::say(&format!("  the guest lost its GPU session{which}: {fault}"));
        }
    }
}

fn explain_one(run: &Run, vm: u32, outcome: &VmOutcome) {
    if matches!(outcome.result, VmResult::Timeout) {
        terminal::say(&format!(
            "causeway: {}: the guest did not end within {} s: give it more time with --timeout",
            outcome.name, run.settings.timeout_s
        ));
        if outcome.pauses.at_end {
            terminal::say(&format!(
                "  {}: it was paused, which does not stop the time: `causeway control PATH resume`",
                outcome.name
            ));
        }
        let doings = outcome.at_timeout.iter().flat_map(doings);
        doings.for_each(|doing| terminal::say(&format!("  {}: {doing}", outcome.name)));
    } else {
        say_how(run, vm, outcome);
    }
    // A guest whose requests were refused most often exceeded its limits.
    if matches!(outcome.result, VmResult::Fail { .. }) {
        let with_limits = run.gpus_of(vm).zip(&outcome.sessions);
        for ((_, gpu, text), session) in with_limits {
            if session.statistics.failed_messages != 0 {
                terminal::say(&limits(run, (gpu, text), session));
            }
        }
    }
    for line in outcome.console_tail.iter().rev().take(8).rev() {
        terminal::say(&format!("  {}| {line}", outcome.name));
    }
}

/// Returns a line for each virtual CPU of a VM that the time limit ended, and one for its GPU work.
fn doings(at_timeout: &AtTimeout) -> Vec<String> {
    let AtTimeout { vcpus, gpu } = at_timeout;
    let told = &vcpus[..vcpus.len().min(VCPUS_TOLD)];
    let mut lines: Vec<_> = told.iter().map(VcpuState::to_string).collect();
    match vcpus.len() - told.len() {
        0 => {}
        more => lines.push(format!("{more} more virtual CPUs: --json has all")),
    }
    if gpu.command_buffers != 0 {
        lines.push(gpu.to_string());
    }
    lines
}

/// Returns a line with the limits of a guest's session on `gpu`, its use of the GPU, and the way to
/// raise the limits.
fn limits(run: &Run, (gpu, text): (&Gpu, &str), session: &SessionReport) -> String {
    let quota = gpu.quota(run.sessions());
    format!(
        "  {} requests were refused; the limits are {} MiB of GPU memory (peak use: {} MiB), {} \
         allocations and {} command buffers: raise them with --gpu \
         {},memory=MIB,allocations=N,queues=N",
        session.statistics.failed_messages,
        quota.memory_bytes >> 20,
        session.statistics.memory_peak_bytes >> 20,
        quota.allocations,
        quota.command_buffers,
        text.split(',').next().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::report::VmReport;
    use crate::report::tests::{phase, report, vm};
    use causeway_mediator::SessionReport;
    use causeway_vmm::bus::StrayCounts;
    use causeway_vmm::outcome::GpuWork;
    use causeway_vmm::pause::Pauses;
    use causeway_vmm::vcpu_state::Doing;
    use std::collections::BTreeMap;
    use std::time::Instant;

    fn fail(code: u32) -> VmResult {
        VmResult::Fail { code, reason: None }
    }

    #[test]
    fn a_bare_guests_value_is_a_verdict_and_a_linux_guests_is_passed_on() {
        let own = |code| Some(RunCode::Own(code));
        assert_eq!(Promise::Verdict.code(&fail(7)), own(Code::GuestFailed));
        assert_eq!(Promise::Verdict.code(&VmResult::Pass), None);
        for promise in [Promise::Status, Promise::Program] {
            assert_eq!(promise.code(&VmResult::Pass), None);
            assert_eq!(promise.code(&fail(7)), Some(RunCode::Program(7)));
            assert_eq!(promise.code(&fail(255)), Some(RunCode::Program(255)));
            assert_eq!(promise.code(&fail(NOT_RUN)), own(Code::Crashed));
            assert_eq!(promise.code(&VmResult::Timeout), own(Code::Timeout));
        }
    }

    #[test]
    fn a_guest_that_promised_a_status_and_gives_none_has_not_passed() {
        let off = VmResult::PoweredOff;
        assert_eq!(Promise::Status.code(&off), None);
        assert_eq!(Promise::Verdict.code(&off), None);
        let code = Promise::Program.code(&off);
        assert_eq!(code, Some(RunCode::Own(Code::Crashed)));
        assert!(
            Promise::Program
                .describe(&off)
                .contains("before it reported")
        );
    }

    fn outcome(name: &str, result: VmResult) -> VmOutcome {
        VmOutcome {
            name: name.to_owned(),
            result,
            at_timeout: None,
            kvm_exits: BTreeMap::new(),
            vmm_exits: BTreeMap::new(),
            first_instruction: None,
            ended: Instant::now(),
            sessions: vec![SessionReport::of(1, name)],
            strays: StrayCounts::default(),
            console_tail: Vec::new(),
            memory_bytes: 0,
            pauses: Pauses::default(),
            devices: Vec::new(),
        }
    }

    #[test]
    fn what_a_vm_did_at_its_timeout_is_told_for_its_first_virtual_cpus() {
        let state = |vcpu| VcpuState {
            vcpu,
            doing: Doing::Running,
            rip: 0x10_0000,
            cpl: 3,
            exits: 0,
            last_exit: None,
        };
        let mut seen = AtTimeout {
            vcpus: (0..10).map(state).collect(),
            gpu: GpuWork {
                command_buffers: 1,
                packets: 2,
                queued_units: 3,
            },
        };
        let lines = doings(&seen);
        assert_eq!(lines.len(), VCPUS_TOLD + 2);
        assert!(lines[7].starts_with("virtual CPU 7 ran at rip 0x100000"));
        assert_eq!(lines[8], "2 more virtual CPUs: --json has all");
        assert!(lines[9].starts_with("command buffers: 1; packets executed: 2;"));
        seen.gpu = GpuWork::default();
        assert_eq!(doings(&seen).len(), VCPUS_TOLD + 1);
    }

    /// The verdict of a run with these results, whose data phases had `exits` each.
    fn verdict_of(results: Vec<VmResult>, exits: &[u64], requires_zero: bool) -> Verdict {
        let vms = results.into_iter().zip(["vm0", "vm1"]);
        let outcomes: Vec<_> = vms.map(|(result, name)| outcome(name, result)).collect();
        let mut report = report();
        report.vms.push(vm());
        let phases = exits.iter().map(|exits| phase([0, 0, *exits], [0, *exits]));
        report.phases = phases.collect();
        report.count_data_path();
        verdict(Promise::Program, &outcomes, &report, requires_zero)
    }

    #[test]
    fn exits_on_the_data_path_fail_a_run_only_if_none_are_wanted() {
        let one = || vec![VmResult::Pass];
        for (exits, requires_zero, code, part) in [
            (
                &[0, 0][..],
                true,
                None,
                "vm0: the program ended with status 0",
            ),
            (&[0, 3], false, None, "vm0: the program ended"),
            (&[], false, None, "vm0: the program ended"),
            (&[0, 3], true, Some(Code::DataPathExits), "exits: 3"),
            (
                &[],
                true,
                Some(Code::DataPathExits),
                "no data phase was marked",
            ),
        ] {
            let Verdict {
                code: found,
                reason,
            } = verdict_of(one(), exits, requires_zero);
            assert_eq!(found, code.map(RunCode::Own), "{exits:?} {requires_zero}");
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn exits_by_pauses_fail_a_run_that_wants_none_and_are_named() {
        let outcomes = [outcome("vm0", VmResult::Pass)];
        let mut report = report();
        report.vms.push(vm());
        report.phases.push(phase([0, 0, 1], [0, 1]));
        let exits = &mut report.phases[0].phase.vmm_exits;
        exits.insert("signal:pause".to_owned(), 2);
        report.count_data_path();
        let Verdict { code, reason } = verdict(Promise::Program, &outcomes, &report, true);
        assert_eq!(code, Some(RunCode::Own(Code::DataPathExits)));
        assert!(
            reason.contains("exits: 3 (2 of them by pauses), but"),
            "{reason}"
        );
    }

    #[test]
    fn a_vm_that_marks_nothing_fails_a_run_that_wants_no_exits() {
        let outcomes = ["vm0", "vm1"].map(|name| outcome(name, VmResult::Pass));
        let mut report = report();
        report.vms = [0, 1].map(|index| VmReport { vm: index, ..vm() }).into();
        report.phases.push(phase([0, 0, 0], [0, 0]));
        report.count_data_path();
        let verdict = |requires| verdict(Promise::Program, &outcomes, &report, requires);
        assert_eq!(verdict(false).code, None);
        let Verdict { code, reason } = verdict(true);
        assert_eq!(code, Some(RunCode::Own(Code::DataPathExits)));
        assert!(
            reason.starts_with("1 of 2 VMs marked no data phase, but"),
            "{reason}"
        );
    }

    #[test]
    fn a_failed_vm_is_the_reason_before_any_count_of_exits() {
        let Verdict { code, reason } = verdict_of(vec![VmResult::Pass, fail(7)], &[3], true);
        assert_eq!(code, Some(RunCode::Program(7)));
        assert_eq!(reason, "vm1: the program ended with status 7");
        let both = verdict_of(vec![VmResult::Pass, VmResult::Pass], &[0], true);
        assert_eq!(both.reason, "all 2 VMs passed");
    }

    #[test]
    fn statuses_are_said_in_words() {
        let said = |code| Promise::Program.describe(&fail(code));
        assert_eq!(said(7), "the program ended with status 7");
        assert!(said(139).contains("killed by signal 11"));
        assert_eq!(said(128), "the program ended with status 128");
        assert!(said(NOT_RUN).contains("could not run its program"));
        assert_eq!(Promise::Verdict.describe(&fail(7)), "failed with code 7");
        let panicked = VmResult::Fail {
            code: 101,
            reason: Some("at main.rs:7: sum is 3".to_owned()),
        };
        let said = Promise::Program.describe(&panicked);
        assert_eq!(said, "failed at main.rs:7: sum is 3 (status 101)");
        assert_eq!(
            Promise::Program.program_status(&VmResult::Pass),
            Some(0),
            "zero is a status, too"
        );
    }
}
