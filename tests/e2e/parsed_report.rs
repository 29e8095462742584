//! The JSON report: its schema, and what the tests ask of it.

use serde_json::Value;

/// A parsed report.
pub struct Report(pub Value);

/// One phase of the report, and whether KVM counts port accesses as such.
#[derive(Clone, Copy, Debug)]
pub struct Phase<'a>(&'a Value, bool);

impl<'a> Phase<'a> {
    pub fn name(self) -> &'a str {
        text(self.0, "name")
    }

    pub fn is_data(self) -> bool {
        text(self.0, "path") == "data"
    }

    pub fn operations(self) -> u64 {
        number(self.0, "operations")
    }

    pub fn doorbells(self) -> u64 {
        number(self.0, "doorbells")
    }

    /// The doorbells that KVM took, as the host counts them.
    pub fn kvm_doorbells(self) -> u64 {
        number(self.0, "kvm_doorbells")
    }

    /// What ended the phase.
    pub fn ended_by(self) -> &'a str {
        text(self.0, "ended_by")
    }

    /// KVM's count of one statistic; one that did not change is left out of the report.
    pub fn kvm(self, statistic: &str) -> u64 {
        self.0["kvm_exits"]
            .get(statistic)
            .map_or(0, |count| count.as_u64().unwrap())
    }

    /// The VMM's own count of emulated port and memory accesses.
    pub fn vmm(self, reason: &str) -> u64 {
        counts(&self.0["vmm_exits"])
            .filter(|(key, _)| key.starts_with(reason))
            .map(|(_, count)| count)
            .sum()
    }

    /// KVM's count of port accesses. Where KVM emulates them like any other instruction (PVM does),
    /// it counts them with the accesses to memory that it emulated, and none as `io_exits`.
    /// Elsewhere what it emulates need be no access.
    fn kvm_ports(self) -> u64 {
        match self.1 {
            true => self.kvm("io_exits"),
            false => self
                .kvm("insn_emulation")
                .saturating_sub(self.kvm("mmio_exits")),
        }
    }

    /// Asserts that both counters saw exactly these exits.
    #[track_caller]
    pub fn assert_exits(self, mmio: u64, io: u64) {
        let own = (self.vmm("mmio:"), self.vmm("io:"));
        assert_eq!(own, (mmio, io), "the VMM's count: {}", self.0);
        let kvm = (self.kvm("mmio_exits"), self.kvm_ports());
        assert_eq!(kvm, (mmio, io), "KVM's count: {}", self.0);
    }
}

impl Report {
    /// Parses a report, and checks its schema.
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        let report = serde_json::from_str(text);
        let report = Self(report.unwrap_or_else(|error| panic!("no report: {error}: {text}")));
        report.check_schema();
        report
    }

    pub fn outcome(&self) -> &str {
        text(&self.0, "outcome")
    }

    pub fn phases(&self) -> impl Iterator<Item = Phase<'_>> {
        let ports = self.counts_ports();
        let phases = self.0["phases"].as_array().unwrap().iter();
        phases.map(move |phase| Phase(phase, ports))
    }

    /// Whether this KVM counts port accesses as such. Every bare guest makes some.
    fn counts_ports(&self) -> bool {
        let mut vms = self.0["vms"].as_array().unwrap().iter();
        vms.any(|vm| vm["kvm_exits"]["io_exits"].as_u64().unwrap_or(0) != 0)
    }

    /// The phase with a name.
    #[track_caller]
    pub fn phase(&self, name: &str) -> Phase<'_> {
        let found = self.phases().find(|phase| phase.name() == name);
        found.unwrap_or_else(|| panic!("there is no phase `{name}` in {}", self.0))
    }

    /// The counts over the life of one VM, which are named like those of a phase.
    pub fn vm(&self, index: usize) -> Phase<'_> {
        Phase(&self.0["vms"][index], self.counts_ports())
    }

    /// The counts over the life of the program of one VM, likewise.
    pub fn program(&self, index: usize) -> Phase<'_> {
        Phase(&self.0["vms"][index]["program"], self.counts_ports())
    }

    /// How each VM ended, in words, and whether it passed.
    pub fn results(&self) -> Vec<(&str, bool)> {
        let vms = self.0["vms"].as_array().unwrap().iter();
        vms.map(|vm| (text(vm, "result"), vm["passed"].as_bool().unwrap()))
            .collect()
    }

    /// Asserts a pass in which no phase of the data path exited, by either counter.
    #[track_caller]
    pub fn assert_exit_free(&self) {
        assert_eq!(self.outcome(), "pass", "{}", self.0);
        assert_eq!(self.0["data_path"], "none", "{}", self.0);
        let mut operations = 0;
        for phase in self.phases() {
            if phase.is_data() {
                phase.assert_exits(0, 0);
                operations += phase.operations();
            }
        }
        assert!(
            operations > 0,
            "nothing was done on the data path: {}",
            self.0
        );
    }

    /// Checks the verdict on the data path of each VM, and that on the run.
    fn check_data_path(&self) {
        let report = &self.0;
        let vms = report["vms"].as_array().unwrap();
        let mut verdicts = vms.iter().map(|vm| {
            let of_vm = |phase: &Phase<'_>| phase.is_data() && phase.0["vm"] == vm["vm"];
            let marked = self.phases().any(|phase| of_vm(&phase));
            let exits = number(vm, "data_path_exits");
            let verdict = match (marked, exits, number(vm, "phases_refused")) {
                (_, 1.., _) => "some",
                (_, 0, 1..) => "incomplete",
                (false, 0, 0) => "unmarked",
                (true, 0, 0) => "none",
            };
            assert_eq!(text(vm, "data_path"), verdict, "{report}");
            (verdict, exits)
        });
        let first = verdicts.next().unwrap_or(("unmarked", 0));
        let (of_run, exits) = verdicts.fold(first, |(all, sum), (one, exits)| {
            let both = match (all, one) {
                ("some", _) | (_, "some") => "some",
                _ if all == one => all,
                _ => "incomplete",
            };
            (both, sum + exits)
        });
        assert_eq!(text(report, "data_path"), of_run, "{report}");
        assert_eq!(number(report, "data_path_exits"), exits, "{report}");
    }

    fn check_schema(&self) {
        let report = &self.0;
        assert_eq!(text(report, "schema"), "causeway.report/1");
        assert!(!text(report, "guest").is_empty());
        assert!(
            ["pass", "fail"].contains(&self.outcome()),
            "{}",
            self.outcome()
        );
        assert!(!text(report, "reason").is_empty(), "{report}");
        self.check_data_path();
        for object in ["host", "backend"] {
            assert!(report[object].is_object(), "{object}: {report}");
        }
        assert!(!text(&report["backend"], "name").is_empty());
        assert!(
            report["boot_us"].is_null() || report["boot_us"].is_u64(),
            "{}",
            report["boot_us"]
        );
        let vms = report["vms"].as_array().unwrap().len() as u64;
        let resident = number(report, "vmm_rss_bytes");
        assert!(resident > 0);
        assert_eq!(number(report, "vmm_rss_bytes_per_vm"), resident / vms);
        for vm in report["vms"].as_array().unwrap() {
            counts(&vm["kvm_exits"])
                .chain(counts(&vm["vmm_exits"]))
                .for_each(drop);
        }
        for ratio in report["ratios"].as_array().unwrap() {
            assert!(
                !text(ratio, "name").is_empty() && ratio["value"].is_f64(),
                "{ratio}"
            );
        }
        self.phases().for_each(check_phase);
    }
}

fn check_phase(phase: Phase<'_>) {
    assert!(!phase.name().is_empty());
    assert!(
        ["setup", "control", "data"].contains(&text(phase.0, "path")),
        "{}",
        phase.0
    );
    for field in ["operations", "bytes", "doorbells", "duration_ns"] {
        number(phase.0, field);
    }
    counts(&phase.0["kvm_exits"])
        .chain(counts(&phase.0["vmm_exits"]))
        .for_each(drop);
}

#[track_caller]
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field]
        .as_str()
        .unwrap_or_else(|| panic!("`{field}` is no text in {object}"))
}

#[track_caller]
fn number(object: &Value, field: &str) -> u64 {
    object[field]
        .as_u64()
        .unwrap_or_else(|| panic!("`{field}` is no number in {object}"))
}

#[track_caller]
fn counts(object: &Value) -> impl Iterator<Item = (&String, u64)> {
    let counts = object
        .as_object()
        .unwrap_or_else(|| panic!("no counts: {object}"));
    counts
        .iter()
        .map(|(key, count)| (key, count.as_u64().unwrap()))
}
