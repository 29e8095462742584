//! `causeway limit`: limits of guests that are changed while they run.

use std::time::{Duration, Instant};

use causeway_protocol::message::Status;
use rustix::process::Signal;
use serde_json::Value;

use crate::command::{Outcome, Running, Scratch, alone, kvm, stop};
use crate::serve::client::Client;
use crate::serve::for_one_process;
use crate::standin::Machine;
use crate::stat::{await_published, end, records, start_exiting, stat};
use crate::workers::{await_output, workers};

const USAGE: i32 = 2;
const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `limit` for a process, or for one of its guests.
fn limit(scratch: &Scratch, running: &Running, guest: &str, pairs: &[&str]) -> Outcome {
    let target = format!("{}{guest}", running.id());
    Scratch::beside(scratch).run(&[&["limit", &target], pairs].concat())
}

/// The cells of the table that `limit` printed.
#[track_caller]
fn cells(outcome: &Outcome) -> Vec<Vec<&str>> {
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (0, ""),
        "{outcome:?}"
    );
    let mut lines = outcome
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect());
    let titles: Vec<&str> = lines.next().unwrap();
    let expected = [
        "GUEST",
        "MEMORY",
        "ALLOCATIONS",
        "QUEUES",
        "WEIGHT",
        "SHARE",
        "TIMEOUT",
        "REQUESTS",
    ];
    assert_eq!(titles, expected);
    lines.collect()
}

/// What each VM does in the next second and a half.
fn watch(scratch: &Scratch, running: &Running) -> Vec<Value> {
    let pid = running.id().to_string();
    let words = [&pid, "--json", "--interval-ms", "1500", "--count", "1"];
    records(&stat(scratch, &words))
}

fn device_ns_per_s(records: &[Value], vm: usize) -> f64 {
    let value = &records[vm]["session"]["per_s"]["device_ns"];
    value.as_f64().unwrap_or_else(|| panic!("{}", records[vm]))
}

#[test]
fn a_new_weight_shares_out_the_time_of_vms_that_are_always_busy() {
    if !kvm("new weights") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let gpu = "software,weight=10";
    let words = ["run", "--guest", "greedy", "--vms", "2", "--gpu", gpu];
    let running = scratch.start(&[&words[..], &["--arguments", "seconds=40,steps=300"]].concat());
    await_published(&scratch, &running);
    let deadline = Instant::now() + PATIENCE;
    let equal = loop {
        let seen = watch(&scratch, &running);
        if [0, 1].iter().all(|vm| device_ns_per_s(&seen, *vm) > 0.0) {
            break watch(&scratch, &running);
        }
        assert!(Instant::now() < deadline, "{}", running.stderr());
    };
    let [first, second] = [0, 1].map(|vm| device_ns_per_s(&equal, vm));
    // A host that does other things delays one or the other.
    assert!(
        first < 2.0 * second && second < 2.0 * first,
        "{first} and {second} ns/s"
    );
    assert_eq!(equal[1]["session"]["weight"], 10);

    let outcome = limit(&scratch, &running, "/vm1", &["weight=80"]);
    assert_eq!(
        cells(&outcome),
        [["vm1", "1GiB", "1024", "64", "80", "100", "none", "none"]]
    );
    let uneven = watch(&scratch, &running);
    let [light, heavy] = [0, 1].map(|vm| device_ns_per_s(&uneven, vm));
    assert!(heavy > 3.0 * light, "{light} and {heavy} ns/s");
    assert_eq!(uneven[0]["session"]["weight"], 10);
    assert_eq!(uneven[1]["session"]["weight"], 80);

    let outcome = limit(&scratch, &running, "", &["weight=none", "share=20"]);
    let rows = cells(&outcome);
    assert_eq!(
        rows[0],
        ["vm0", "1GiB", "1024", "64", "none", "20", "none", "none"]
    );
    assert_eq!(rows[1][..1], ["vm1"]);
    let capped = watch(&scratch, &running);
    for vm in [0, 1] {
        // What a VM may make up for counts once in the interval.
        let used = device_ns_per_s(&capped, vm);
        assert!(used > 0.0 && used < 0.3 * 1e9, "{used} ns/s");
        assert_eq!(capped[vm]["session"]["share_percent"], 20);
        assert_eq!(capped[vm]["session"]["weight"], 0);
    }
    end(running);
}

#[test]
fn a_memory_limit_below_what_is_used_refuses_until_it_is_raised_or_enough_is_free() {
    for gpu in [
        "software,cores=1,memory=64M,isolation=none",
        "software,cores=1,memory=64M,isolation=process",
    ] {
        let scratch = Scratch::new();
        let running = scratch.start(&for_one_process(gpu));
        await_output(&running, "causeway: serving", 1);
        await_published(&scratch, &running);
        let nobody = limit(&scratch, &running, "", &["memory=1M"]);
        nobody.assert_refused(USAGE, &["nothing to change", "has no guest that runs"]);

        let mut client = Client::connect(&scratch.path("socket")).unwrap();
        client.hello();
        let held = client.allocate(8 * MIB);
        let change = |pair: &str| {
            let outcome = limit(&scratch, &running, "/process1", &[pair]);
            let value = pair.split_once('=').unwrap().1;
            assert!(cells(&outcome)[0].contains(&value), "{outcome:?}");
        };
        change("memory=4MiB");
        assert_eq!(client.attributes().memory_bytes, 4 * MIB);
        assert_eq!(client.try_allocate(MIB), Err(Status::QuotaBytes), "{gpu}");
        change("memory=16MiB");
        let more = client.try_allocate(MIB).unwrap();
        change("memory=2MiB");
        client.free(held);
        client.allocate(MIB);
        assert_eq!(client.try_allocate(MIB), Err(Status::QuotaBytes), "{gpu}");
        client.free(more);
        change("allocations=1");
        assert_eq!(client.try_allocate(4096), Err(Status::QuotaAllocations));
        assert_eq!(client.attributes().allocations_max, 1);

        let beyond = limit(&scratch, &running, "", &["memory=65M", "queues=1"]);
        let has = [
            "process1: invalid value 65 MiB for memory",
            "has 64 MiB",
            "--gpu",
        ];
        beyond.assert_refused(USAGE, &has);
        assert_eq!(
            client.attributes().command_buffers_max,
            64,
            "nothing changed"
        );
        drop(client);
        running.signal(Signal::TERM);
        assert_eq!(running.finish().code, 0);
    }
}

#[test]
fn limits_of_a_vm_whose_session_is_in_a_worker_follow_it_to_the_next_worker() {
    if !kvm("limits of a VM with a worker") {
        return;
    }
    let scratch = Scratch::new();
    let gpu = "software,cores=1,isolation=process";
    let running = scratch.start(&["run", "--guest", "lost", "--gpu", gpu]);
    await_output(&running, "computing", 1);
    let changes = [
        "memory=512MiB",
        "queues=9",
        "weight=2",
        "share=50",
        "timeout=60000",
    ];
    let changed = limit(&scratch, &running, "/vm0", &changes);
    let shown = cells(&changed);
    assert_eq!(shown[0][4..7], ["2", "50", "60000"], "{shown:?}");
    let memory_limit = || {
        let seen = watch(&scratch, &running);
        seen[0]["session"]["memory_limit_bytes"].as_u64().unwrap()
    };
    assert_eq!(memory_limit(), 512 * MIB);

    let worker = workers(&running)[0];
    stop(worker);
    let late = limit(&scratch, &running, "", &["memory=256MiB"]);
    assert_eq!(late.code, 0, "{late:?}");
    assert!(
        late.stderr
            .contains("the worker process of vm0 does not answer"),
        "{late:?}"
    );
    rustix::process::kill_process(worker, Signal::CONT).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while memory_limit() != 256 * MIB {
        assert!(Instant::now() < deadline, "{}", running.stderr());
    }
    // The guest loses the device, resets it and goes on with another worker.
    rustix::process::kill_process(worker, Signal::KILL).unwrap();
    let outcome = running.finish();
    outcome.assert_passed();
}

#[test]
fn every_guest_of_a_process_is_shown_and_changed() {
    if !kvm("limits of several VMs") {
        return;
    }
    let scratch = Scratch::new();
    let gpu = "software,memory=512,queues=5,weight=3,share=50";
    let running = start_exiting(&scratch, &["--vms", "2", "--gpu", gpu]);
    let shown = limit(&scratch, &running, "", &[]);
    let row = |guest| [guest, "512MiB", "1024", "5", "3", "50", "none", "none"];
    assert_eq!(cells(&shown), [row("vm0"), row("vm1")]);
    assert_eq!(cells(&limit(&scratch, &running, "/vm1", &[])), [row("vm1")]);
    limit(&scratch, &running, "/vm0", &["share=100", "memory=1G"]);
    limit(&scratch, &running, "", &["timeout=60000", "requests=1000"]);
    limit(&scratch, &running, "/vm1", &["timeout=none"]);
    let changed = limit(&scratch, &running, "", &["allocations=4096"]);
    assert_eq!(
        cells(&changed),
        [
            ["vm0", "1GiB", "4096", "5", "3", "100", "60000", "1000"],
            ["vm1", "512MiB", "4096", "5", "3", "50", "none", "1000"]
        ]
    );
    for words in [&[][..], &["queues=1"]] {
        let pid = running.id().to_string();
        let unknown = limit(&scratch, &running, "/vm7", words);
        let told = [
            &format!("process {pid} has no guest vm7"),
            "it has vm0, vm1",
        ];
        unknown.assert_refused(USAGE, &told);
    }
    running.stop();
    let silent = limit(&scratch, &running, "", &[]);
    silent.assert_refused(
        USAGE,
        &["cannot ask for limits", "does not answer within 1 s"],
    );
    running.signal(Signal::CONT);
    end(running);
}

/// Wrong arguments of `limit`, and parts of what it says.
const WRONG: &[(&[&str], &[&str])] = &[
    (&[], &["PID", "causeway limit --help"]),
    (&["vm1"], &["invalid value vm1 for PID", "4711/vm1"]),
    (&["0"], &["invalid value 0 for PID", "4711/vm1"]),
    (&["-1"], &["invalid value -1 for PID"]),
    (&["7/"], &["invalid value 7/ for PID"]),
    (&["4294967296"], &["invalid value 4294967296 for PID"]),
    (
        &["5000000"],
        &["process 5000000 does not exist", "causeway stat --all"],
    ),
    (
        &["5000000/vm0", "queues=1"],
        &["process 5000000 does not exist"],
    ),
    (
        &["7", "memory"],
        &["key `memory` has no value", "memory=VALUE"],
    ),
    (
        &["7", "fast"],
        &["`fast` is not of the form KEY=VALUE", "weight, share"],
    ),
    (
        &["7", "speed=11"],
        &["unknown key `speed`", "memory, allocations"],
    ),
    (
        &["7", "timeout=9"],
        &["invalid value 9 for timeout", "10 to 3600000, or none"],
    ),
    (
        &["7", "share=1", "share=2"],
        &["`share` is given more than once"],
    ),
    (
        &["7", "memory=0"],
        &["invalid value 0 for memory", "1 to 1048576"],
    ),
    (
        &["7", "memory=4GB"],
        &["invalid value 4GB for memory", "suffix"],
    ),
    (&["7", "memory="], &["invalid value `` for memory"]),
    (
        &["7", "allocations=0"],
        &["invalid value 0 for allocations", "65536"],
    ),
    (
        &["7", "queues=257"],
        &["invalid value 257 for queues", "1 to 256"],
    ),
    (
        &["7", "weight=10001"],
        &["invalid value 10001 for weight", "or none"],
    ),
    (&["7", "weight=1:2"], &["invalid value 1:2 for weight"]),
    (
        &["7", "share=0"],
        &["invalid value 0 for share", "1 to 100"],
    ),
    (&["7", "share=101"], &["invalid value 101 for share"]),
    (&["7", "--memory", "1"], &["unknown option --memory"]),
];

#[test]
fn what_cannot_be_a_limit_is_refused_with_the_value_and_the_way_out() {
    let scratch = Scratch::new();
    let own = std::process::id().to_string();
    let refused = |words: &[&str], parts: &[&str]| {
        let outcome = Scratch::beside(&scratch).run(&[&["limit"], words].concat());
        outcome.assert_refused(USAGE, parts);
    };
    for (words, parts) in WRONG {
        refused(words, parts);
    }
    refused(
        &[&own],
        &["has no guests of Causeway", "causeway stat --all"],
    );
    let help = Scratch::beside(&scratch).run(&["limit", "--help"]);
    assert_eq!(help.code, 0);
    for part in [
        "causeway limit <PID>[/VM] [KEY=VALUE]...",
        "memory=SIZE",
        "weight=N|none",
    ] {
        assert!(help.stdout.contains(part), "{help:?}");
    }
}

#[test]
fn a_timeout_that_comes_later_ends_a_kernel_that_is_under_way() {
    if !kvm("a timeout of a running guest") {
        return;
    }
    let words = ["run", "--guest", "greedy", "--vms", "2", "--timeout", "300"];
    let arguments = ["--arguments", "seconds=2,steps=300,endless=1", "--gpu"];
    let words = [&words[..], &arguments].concat();
    let ends = |scratch: &Scratch, running: Running| {
        await_published(scratch, &running);
        // VM 0 has a kernel that nothing else would end, or is about to launch it.
        let changed = limit(scratch, &running, "/vm0", &["timeout=200"]);
        assert_eq!(changed.code, 0, "{changed:?}");
        running.finish().assert_passed();
    };
    for gpu in ["software", "software,isolation=process"] {
        let scratch = Scratch::new();
        let running = scratch.start(&[&words[..], &[gpu]].concat());
        ends(&scratch, running);
    }
    let machine = Machine::new();
    let running = machine.start(&[&words[..], &["cuda"]].concat());
    ends(machine.scratch(), running);
}

#[test]
fn more_allocations_than_the_host_can_keep_are_warned_of() {
    if !kvm("limits of the host") {
        return;
    }
    // Five mappings for each.
    let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    if mappings.trim().parse::<u64>().unwrap() > 5 * 65536 {
        eprintln!("skipped: this host allows more mappings than a guest may have");
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &[]);
    let outcome = limit(&scratch, &running, "/vm0", &["allocations=65536"]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(outcome.stdout.contains("65536"), "{outcome:?}");
    assert!(outcome.stderr.contains("vm.max_map_count"), "{outcome:?}");
    let fewer = limit(&scratch, &running, "/vm0", &["allocations=100"]);
    assert_eq!(cells(&fewer)[0][2], "100");
    end(running);
}
