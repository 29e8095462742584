//! VMs on NUMA nodes: where their memory comes from, and where their threads may run.

use std::thread::sleep;
use std::time::Instant;

use causeway_nested::nodes::{NODE_OF_PROCESSOR_0, NODE_OF_PROCESSOR_1, WITHOUT_PROCESSORS};
use causeway_nested::{Command, Job, Lease};

use crate::image::elf;
use crate::leftovers::PATIENCE;
use crate::machines::{CAUSEWAY, STANDIN, STANDIN_STATE, machine_with_nodes, shell};

const USAGE: i32 = 2;
const SIGTERM: i32 = 15;
const TERMINATED: i32 = 143;
/// A jump to itself.
const SPINNING: [u8; 2] = [0xeb, 0xfe];
const IMAGE: &str = "/tmp/spinning";

/// The command with the stand-in driver, whose devices have the addresses of ports near nodes:
/// devices 0 and 2 are on nodes 1 and 0, the host does not tell that of device 4, and device 6 is
/// on the node without processors. The others are there for the sake of their numbers, and have no
/// memory.
fn command(words: &[&str]) -> Command {
    Command::new(CAUSEWAY, words)
        .limit(PATIENCE)
        .variable("LD_LIBRARY_PATH", STANDIN)
        .variable("CAUSEWAY_STANDIN_DEVICES", "7")
        .variable("CAUSEWAY_STANDIN_MEMORY", "1073741824,0,1073741824,0")
        .variable("CAUSEWAY_STANDIN_STATE", STANDIN_STATE)
        .variable("CAUSEWAY_SANDBOX_WRITABLE", STANDIN_STATE)
}

/// Runs VMs that spin while `look` looks at them, and ends them.
fn while_spinning(machine: &Lease, words: &[&str], vcpus: &[&str], look: impl FnOnce()) -> String {
    machine.write(IMAGE, 0o644, &elf(&SPINNING));
    let words = [&["run", "--kernel", IMAGE, "--memory", "64"], words].concat();
    let command = command(&words);
    let job: Job = machine.start(&command);
    let begun = Instant::now();
    while !vcpus
        .iter()
        .all(|vcpu| threads(machine).iter().any(|it| it.name == *vcpu))
    {
        if begun.elapsed() > PATIENCE {
            machine.signal(job, SIGTERM, false);
            panic!("{}", machine.finish(&command, job).text());
        }
        sleep(std::time::Duration::from_millis(100));
    }
    look();
    machine.signal(job, SIGTERM, false);
    let outcome = machine.finish(&command, job);
    outcome.assert_code(TERMINATED);
    outcome.stderr
}

/// A thread, as `/proc` shows it.
#[derive(Debug)]
struct Thread {
    process: u32,
    name: String,
    cpus: String,
}

fn threads(machine: &Lease) -> Vec<Thread> {
    let script = "for task in /proc/[0-9]*/task/[0-9]*; do \
                    read -r name < $task/comm && while read -r key value; do \
                      [ $key != Cpus_allowed_list: ] || echo $task $value $name; \
                    done < $task/status; done 2>/dev/null; true";
    let outcome = machine.run(&shell(script));
    let thread = |line: &str| {
        let (task, rest) = line.split_once(' ')?;
        let (cpus, name) = rest.split_once(' ')?;
        Some(Thread {
            process: task.split('/').nth(2)?.parse().ok()?,
            name: name.to_owned(),
            cpus: cpus.to_owned(),
        })
    };
    outcome.stdout.lines().filter_map(thread).collect()
}

/// The processes of the command whose first word is this one.
fn processes(machine: &Lease, word: &str) -> Vec<u32> {
    let survey = machine.survey();
    let processes = survey.processes.iter();
    let has = |command: &str| command.split(' ').nth(1) == Some(word);
    let found = processes.filter(|process| has(&process.command));
    found.map(|process| process.pid).collect()
}

/// The pages of each node that a process has in mappings with a memory policy, such as `bind:1`,
/// whose lines have `text`.
fn pages(machine: &Lease, process: u32, policy: &str, text: &str) -> Vec<(u32, u64)> {
    let maps = machine.read(&format!("/proc/{process}/numa_maps")).unwrap();
    let maps = String::from_utf8_lossy(&maps).into_owned();
    let mut found: Vec<(u32, u64)> = Vec::new();
    for line in maps.lines().filter(|line| line.contains(text)) {
        let mut words = line.split(' ').skip(1);
        if words.next() != Some(policy) {
            continue;
        }
        let counts = words.filter_map(|word| word.strip_prefix('N')?.split_once('='));
        for (node, pages) in counts.filter_map(|(n, p)| Some((n.parse().ok()?, p.parse().ok()?))) {
            match found.iter_mut().find(|(it, _)| *it == node) {
                Some((_, all)) => *all += pages,
                None => found.push((node, pages)),
            }
        }
    }
    found
}

/// Checks that memory of a VM is bound to a node, that some is there, and none elsewhere.
#[track_caller]
fn assert_bound(machine: &Lease, process: u32, node: u32, name: &str) {
    let found = pages(machine, process, &format!("bind:{node}"), name);
    let all_there = matches!(found[..], [(on, pages)] if on == node && pages != 0);
    assert!(all_there, "{name} on node {node}: {found:?}");
}

/// Returns the processor of a node that has one.
fn processor(node: u32) -> String {
    assert!([NODE_OF_PROCESSOR_0, NODE_OF_PROCESSOR_1].contains(&node));
    // As the constants' names say.
    node.to_string()
}

#[test]
fn each_vm_is_on_the_node_of_its_gpu() {
    let Some(machine) = machine_with_nodes("a NUMA node for each VM") else {
        return;
    };
    let words = [
        "--vms",
        "2",
        "--small-pages",
        "--gpu",
        "cuda:auto,memory=64M",
        "--numa",
        "gpu",
    ];
    let said = while_spinning(&machine, &words, &["vm0/vcpu0", "vm1/vcpu0"], || {
        let vmm = processes(&machine, "run")[0];
        let threads = threads(&machine);
        for (vm, node) in [("vm0", NODE_OF_PROCESSOR_1), ("vm1", NODE_OF_PROCESSOR_0)] {
            // Its virtual CPU, and what answers its worker's calls.
            for name in ["vcpu0", "calls"] {
                let name = format!("{vm}/{name}");
                let found = threads.iter().find(|thread| thread.name == name);
                let found = found.map(|thread| (thread.process, &*thread.cpus));
                assert_eq!(found, Some((vmm, &*processor(node))), "{name}");
            }
            assert_bound(&machine, vmm, node, &format!("memfd:{vm}"));
        }
        // The VMM serves both.
        let main = threads
            .iter()
            .find(|it| it.process == vmm && it.name == "causeway");
        assert_eq!(main.unwrap().cpus, "0-1");
        let mut nodes = Vec::new();
        for worker in processes(&machine, "worker") {
            let own: Vec<_> = threads.iter().filter(|it| it.process == worker).collect();
            let is_on = |node: &u32| own.iter().all(|it| it.cpus == processor(*node));
            let mut nodes_of_vms = [NODE_OF_PROCESSOR_0, NODE_OF_PROCESSOR_1].into_iter();
            let node = nodes_of_vms.find(is_on);
            let node = node.unwrap_or_else(|| panic!("on no node: {own:?}"));
            let policy = format!("prefer:{node}");
            let there = pages(&machine, worker, &policy, "heap");
            assert!(
                matches!(there[..], [(on, _)] if on == node),
                "{node}: {there:?}"
            );
            nodes.push(node);
        }
        nodes.sort_unstable();
        assert_eq!(nodes, [NODE_OF_PROCESSOR_0, NODE_OF_PROCESSOR_1]);
    });
    for (vm, node) in [("vm0", NODE_OF_PROCESSOR_1), ("vm1", NODE_OF_PROCESSOR_0)] {
        let line = format!("--numa gpu places {vm} on NUMA node {node} (1 processor, ");
        assert!(said.contains(&line), "{said}");
    }
}

#[test]
fn vms_without_a_gpu_are_on_the_node_that_is_named() {
    let Some(machine) = machine_with_nodes("a NUMA node by number") else {
        return;
    };
    for node in [NODE_OF_PROCESSOR_0, NODE_OF_PROCESSOR_1] {
        let number = node.to_string();
        let words = ["--gpu", "software,cores=2", "--numa", &number];
        while_spinning(&machine, &words, &["vm0/vcpu0"], || {
            let vmm = processes(&machine, "run")[0];
            assert_bound(&machine, vmm, node, "");
            let threads = threads(&machine);
            for name in ["vm0/vcpu0", "gpu-core-0"] {
                let thread = threads.iter().find(|thread| thread.name == name).unwrap();
                assert_eq!(thread.cpus, processor(node), "{name}");
            }
        });
    }
}

#[test]
fn nodes_that_cannot_be_had_are_refused() {
    let Some(machine) = machine_with_nodes("NUMA nodes that are refused") else {
        return;
    };
    let empty = WITHOUT_PROCESSORS.to_string();
    for (words, parts) in [
        (
            &["--numa", "7"][..],
            ["no NUMA node 7", "it has the nodes 0, 1, 2"],
        ),
        (
            &["--numa", &empty],
            ["node 2 has no processors", "the nodes 0, 1 have some"],
        ),
        (
            &["--numa", "gpu", "--gpu", "cuda:4,memory=64M"],
            [
                "does not tell the NUMA node of --gpu cuda:4",
                "0000:05:00.0",
            ],
        ),
        (
            &["--numa", "gpu", "--gpu", "cuda:6,memory=64M"],
            [
                "--gpu cuda:6,memory=64M, which is on NUMA node 2",
                "no processors",
            ],
        ),
        // More than a node has, and less than the host.
        (
            &["--numa", "1", "--memory", "4G"],
            ["needs 4096 MiB of NUMA node 1 for 1 VM", "leave --numa out"],
        ),
    ] {
        let outcome = machine.run(&command(&[&["run"], words].concat()));
        outcome.assert_code(USAGE);
        for part in parts {
            assert!(outcome.stderr.contains(part), "{part}: {}", outcome.text());
        }
    }
}
