//! How a run stands, as text for people.

use causeway_publisher::control::{RunStanding, VmStanding};
use causeway_terminal::in_columns;

const TITLES: [&str; 7] = ["VM", "STATE", "VCPUS", "MEMORY", "RAN", "PAUSES", "PAUSED"];

/// Returns a line about the run, and a table of its VMs.
pub fn render(run: &RunStanding) -> String {
    let ending = if run.stopping {
        ", which is ending"
    } else {
        ""
    };
    let head = format!("{} in process {}{ending}\n", run.guest, run.pid);
    let titles = TITLES.map(str::to_owned).to_vec();
    let lines: Vec<_> = std::iter::once(titles)
        .chain(run.vms.iter().map(line))
        .collect();
    head + &in_columns(&lines)
}

fn line(vm: &VmStanding) -> Vec<String> {
    let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
    vec![
        vm.vm.clone(),
        vm.state.name().to_owned(),
        vm.vcpus.to_string(),
        format!("{} MiB", vm.memory_bytes >> 20),
        seconds(vm.ran_ns),
        vm.pauses.to_string(),
        seconds(vm.paused_ns),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_publisher::control::{SCHEMA, State};

    #[test]
    fn every_vm_has_a_line_under_the_titles() {
        let vm = |name: &str, state, paused_ns| VmStanding {
            vm: name.to_owned(),
            state,
            vcpus: 2,
            memory_bytes: 256 << 20,
            ran_ns: 12_340_000_000,
            pauses: 1,
            paused_ns,
        };
        let mut run = RunStanding {
            schema: SCHEMA.to_owned(),
            causeway: "0".to_owned(),
            pid: 4711,
            guest: "stream".to_owned(),
            stopping: false,
            vms: vec![
                vm("vm0", State::Running, 0),
                vm("vm10", State::Paused, 10_050_000_000),
            ],
        };
        let text = render(&run);
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "stream in process 4711",
                "VM      STATE  VCPUS   MEMORY     RAN  PAUSES  PAUSED",
                "vm0   running      2  256 MiB  12.3 s       1   0.0 s",
                "vm10   paused      2  256 MiB  12.3 s       1  10.1 s",
            ]
        );
        run.stopping = true;
        assert!(render(&run).starts_with("stream in process 4711, which is ending\n"));
    }
}
