//! `bench exits`: ways to virtualize a GPU side by side, where each exit is what the manuals say.

use std::time::Duration;

use causeway_nested::{Command, Lease, Outcome};
use serde_json::Value;

use crate::machines::{CAUSEWAY, REPORT, machine};

/// Measures on the software back end, and reads the report.
#[track_caller]
pub fn measure(machine: &Lease, words: &[&str]) -> (Outcome, Measured) {
    let always = ["bench", "exits", "--quick", "--gpu", "software"];
    let outputs = ["--repetitions", "1", "--memory", "256", "--json", REPORT];
    let words = [&always, &outputs[..], words].concat();
    let command = Command::new(CAUSEWAY, &words).limit(Duration::from_secs(500));
    let outcome = machine.run(&command);
    outcome.assert_code(0);
    let text = machine.read(REPORT);
    let text = text.unwrap_or_else(|error| panic!("{error}: {}", outcome.text()));
    let report = serde_json::from_slice(&text).expect("the report is JSON");
    (outcome, Measured(report))
}

/// What was measured.
pub struct Measured(pub Value);

impl Measured {
    /// The cells of a mechanism: workload and size, and the cell.
    pub fn cells(&self, mechanism: &str) -> Vec<(String, &Value)> {
        let cells = self.0["cells"].as_array().expect("cells").iter();
        let cells = cells.filter(|cell| cell["mechanism"] == mechanism);
        let named = cells.map(|cell| {
            let workload = cell["workload"].as_str().expect("a name");
            (format!("{workload} {}", cell["size"]), cell)
        });
        named.collect()
    }

    /// Asserts how many exits to the VMM one operation takes in a cell, by either count, and that
    /// they are all of one kind.
    #[track_caller]
    pub fn assert_exits(&self, mechanism: &str, name: &str, count: f64, kind: &str) {
        let cells = self.cells(mechanism);
        let found = cells.iter().find(|(other, _)| other == name);
        let exits = &found
            .unwrap_or_else(|| panic!("no {name} by {mechanism}"))
            .1["exits"];
        let each = |figure: &str| exits[figure].as_f64().expect("a figure");
        let seen = [
            "user_space_per_operation",
            "user_space_per_operation_by_kvm",
        ]
        .map(each);
        assert_eq!(seen, [count; 2], "{name} by {mechanism}: {exits}");
        let all = count * each("operations");
        let of_kind = exits["kvm"][kind].as_f64().unwrap_or(0.0);
        assert!(of_kind == all, "{all} of {kind} by {mechanism}: {exits}");
    }
}

/// Measures these workloads at a privilege level: none of what is mediated exits, and each
/// forwarded operation of them does once.
#[track_caller]
fn measure_at(machine: &Lease, level: &str, workloads: &str) -> Measured {
    let (_, report) = measure(machine, &["--only", workloads, "--cpl", level]);
    assert_eq!(report.0["passed"], true);
    assert_eq!(report.0["host"]["kvm"], "nested", "{}", report.0["host"]);
    let natively = report.cells("native").len();
    for (mechanism, count, kind) in [
        ("mediated", 0.0, "mmio_exits"),
        ("forward", 1.0, "io_exits"),
    ] {
        let cells = report.cells(mechanism);
        assert_eq!(cells.len(), natively, "{mechanism}");
        for (name, _) in cells {
            report.assert_exits(mechanism, &name, count, kind);
        }
    }
    // Three words, a kick, and a look at what is done, which it is: the thread that is kicked does
    // it.
    report.assert_exits("trap", "launch-and-wait 1", 5.0, "mmio_exits");
    report.assert_exits("trap", "load 65536", 1.0, "mmio_exits");
    report
}

#[test]
fn each_mechanism_exits_as_often_as_its_model_says_by_both_counters() {
    let Some(machine) = machine("bench exits") else {
        return;
    };
    let report = measure_at(&machine, "3", "load,copy-out,launch-and-wait");
    // A load of 8 bytes each.
    report.assert_exits("trap", "copy-out 64", 8.0, "mmio_exits");
    report.assert_exits("trap", "copy-out 4096", 512.0, "mmio_exits");
}

#[test]
fn exits_of_each_mechanism_are_the_same_at_the_level_of_kernels() {
    let Some(machine) = machine("bench exits at CPL 0") else {
        return;
    };
    measure_at(&machine, "0", "load,launch-and-wait");
}
