//! How a run stands, as text for people.

use causeway_publisher::control::{DiskStanding, RunStanding, VmStanding};
use causeway_terminal::in_columns;

const TITLES: [&str; 7] = ["VM", "STATE", "VCPUS", "MEMORY", "RAN", "PAUSES", "PAUSED"];

const DISK_TITLES: [&str; 4] = ["VM", "DISK", "SIZE", "IMAGE"];

/// Returns a line about the run, a table of its VMs, and one of their disks that get their images
/// while they run, if there are such.
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
    head + &in_columns(&lines) + &disks(run)
}

fn disks(run: &RunStanding) -> String {
    let of = |vm: &VmStanding| {
        let disks = (0..).zip(&vm.disks);
        let lines: Vec<_> = disks
            .map(|(number, disk)| disk_line(vm, number, disk))
            .collect();
        lines
    };
    let lines: Vec<_> = run.vms.iter().flat_map(of).collect();
    if lines.is_empty() {
        return String::new();
    }
    let titles = DISK_TITLES.map(str::to_owned).to_vec();
    in_columns(&[&[titles], &lines[..]].concat())
}

fn disk_line(vm: &VmStanding, number: u32, disk: &DiskStanding) -> Vec<String> {
    let image = disk.image.as_deref().unwrap_or("none");
    let how = if disk.read_only { ",ro" } else { "" };
    vec![
        vm.vm.clone(),
        number.to_string(),
        format!("{} B", disk.bytes),
        format!("{image}{how}"),
    ]
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
            disks: Vec::new(),
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
        run.vms[1].disks = vec![
            DiskStanding {
                image: Some("/images/work.img".to_owned()),
                bytes: 4096,
                read_only: true,
            },
            DiskStanding::default(),
        ];
        let text = render(&run);
        assert_eq!(
            text.lines().skip(4).collect::<Vec<_>>(),
            [
                "VM    DISK    SIZE                IMAGE",
                "vm10     0  4096 B  /images/work.img,ro",
                "vm10     1     0 B                 none",
            ]
        );
        run.stopping = true;
        assert!(render(&run).starts_with("stream in process 4711, which is ending\n"));
    }
}
