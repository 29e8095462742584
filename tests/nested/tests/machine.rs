//! The harness itself: what it tells of programs that end well, badly, and not at all, and of a
//! machine that dies.

use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use causeway_nested::{Command, Contents, ContentsError, Lease, Process, Shape, devices, shared};

fn machine(test: &str) -> Option<Lease> {
    let shape = Shape {
        cpus: 1,
        memory_mib: 512,
        has_iommu: true,
        has_nodes: false,
    };
    shared(test, &shape, contents)
}

fn contents() -> Result<Contents, ContentsError> {
    Contents::default()
        .program("sh", Path::new("/bin/sh"))?
        .program("sleep", Path::new("/bin/sleep"))?
        .program("ls", Path::new("/bin/ls"))
        .map(|contents| contents.module("vfio_iommu_type1").module("vfio_pci"))
}

fn shell(script: &str) -> Command {
    Command::new("/bin/sh", &["-c", script])
}

/// The message of the panic that something ends in.
fn failure(of: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(of)).expect_err("it should have failed");
    *panic.downcast::<String>().expect("panics have messages")
}

#[test]
fn outputs_and_ends_of_programs_come_back() {
    let Some(machine) = machine("outputs and ends") else {
        return;
    };
    let outcome = machine.run(&shell("echo out; echo err >&2; exit 7"));
    assert_eq!(outcome.code, 7, "{}", outcome.text());
    assert_eq!((&*outcome.stdout, &*outcome.stderr), ("out\n", "err\n"));
    assert!(!outcome.outputs_held);
    let outcome = machine.run(&shell("echo $WORD; kill -9 $$").variable("WORD", "said"));
    assert_eq!((outcome.code, &*outcome.stdout), (-9, "said\n"));
    let lines = machine.run(&shell(
        "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done",
    ));
    assert_eq!(
        lines.stdout.lines().last(),
        Some("19999"),
        "in full and in order"
    );
    assert_eq!(lines.stdout.lines().count(), 20000);
}

#[test]
fn files_go_in_and_come_out() {
    let Some(machine) = machine("files") else {
        return;
    };
    let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i >> 3) as u8).collect();
    machine.write("/tmp/deep/file", 0o640, &content);
    assert!(machine.read("/tmp/deep/file").unwrap() == content);
    let error = machine.read("/tmp/nothing").unwrap_err().to_string();
    assert!(error.contains("/tmp/nothing"), "{error}");
}

#[test]
fn devices_are_where_they_should_be_and_change_drivers() {
    let Some(machine) = machine("devices") else {
        return;
    };
    devices::all().for_each(|device| device.assert_present(&machine));
    let device = devices::RANDOM;
    assert_eq!(device.driver(&machine).as_deref(), Some("virtio-pci"));
    device.bind(&machine, "vfio-pci");
    assert_eq!(device.driver(&machine).as_deref(), Some("vfio-pci"));
    device.unbind(&machine);
    assert_eq!(device.driver(&machine), None);
}

#[test]
fn each_device_is_alone_in_its_group_but_those_that_are_one() {
    let Some(machine) = machine("groups") else {
        return;
    };
    let group = |device: &devices::HostDevice| {
        let script = format!("ls {}", device.file("iommu_group/devices"));
        let outcome = machine.run(&shell(&script));
        outcome.assert_code(0);
        outcome
            .stdout
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let both = [devices::SHARED, devices::NEIGHBOUR];
    for device in devices::all() {
        match both.contains(&device) {
            true => assert_eq!(group(&device), both.map(|device| device.address)),
            false => assert_eq!(group(&device), [device.address]),
        }
    }
}

#[test]
fn the_kernels_log_can_be_read() {
    let Some(machine) = machine("kernel log") else {
        return;
    };
    machine.write("/dev/kmsg", 0o644, b"<5>a word; and another\n");
    let log = machine.kernel_log();
    assert_eq!(log.lines().last(), Some("a word; and another"), "{log}");
    assert!(
        log.contains("intel_iommu=on") && log.contains("DMAR: IOMMU enabled"),
        "{log}"
    );
}

#[test]
fn a_survey_shows_what_a_program_leaves() {
    let Some(machine) = machine("survey") else {
        return;
    };
    let before = machine.survey();
    let script =
        "echo x > /dev/shm/object; sleep 4321 >/dev/null 2>&1 </dev/null & echo $! > /tmp/pid";
    machine.run(&shell(script)).assert_code(0);
    let after = machine.survey();
    let new: Vec<_> = after
        .files
        .iter()
        .filter(|file| !before.files.contains(file))
        .collect();
    assert_eq!(new, ["/dev/shm/object", "/tmp/pid"]);
    let is_new = |process: &&Process| !before.processes.contains(process);
    let processes: Vec<_> = after.processes.iter().filter(is_new).collect();
    let commands: Vec<_> = processes.iter().map(|process| &*process.command).collect();
    assert_eq!(commands, ["sleep 4321"]);
    machine
        .run(&shell("kill $(/bin/sh -c 'read p < /tmp/pid; echo $p')"))
        .assert_code(0);
}

#[test]
fn a_program_that_holds_the_outputs_of_another_is_noticed() {
    let Some(machine) = machine("outputs held") else {
        return;
    };
    let outcome = machine.run(&shell("sleep 30 & exit 0"));
    assert!(outcome.outputs_held);
}

#[test]
fn a_program_that_takes_too_long_is_killed_and_told_with_what_it_said() {
    let Some(machine) = machine("time limit") else {
        return;
    };
    let endless = shell("echo begun; sleep 1000; echo never");
    let job = machine.start(&endless);
    machine.wait_for_text(&endless, job, "begun");
    let message = failure(|| {
        machine.finish(&endless.limit(Duration::from_secs(1)), job);
    });
    for part in [
        "took more than 1s and was killed",
        "begun",
        "ended with -9",
        "--- console ---",
    ] {
        assert!(message.contains(part), "`{part}` is not in {message}");
    }
    assert!(machine.is_up());
    machine.run(&shell("true")).assert_code(0);
    let short = shell("echo some");
    let message = failure(|| machine.wait_for_text(&short, machine.start(&short), "other"));
    assert!(
        message.contains("`other` was not printed") && message.contains("some"),
        "{message}"
    );
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let Some(machine) = machine("missing program") else {
        return;
    };
    let message = failure(|| {
        machine.run(&Command::new("/bin/nothing", &[]));
    });
    assert!(message.contains("cannot start /bin/nothing"), "{message}");
}

#[test]
fn a_kernel_that_panics_is_told_with_its_last_words_and_replaced() {
    let test = "kernel panic";
    let Some(dying) = machine(test) else {
        return;
    };
    let job = shell("sleep 1000");
    let started = dying.start(&job);
    let message = failure(|| {
        // proc(5): "c" crashes the kernel.
        dying.write("/proc/sysrq-trigger", 0o200, b"c");
        dying.finish(&job, started);
    });
    assert!(message.contains("the machine has ended"), "{message}");
    assert!(message.contains("Kernel panic"), "{message}");
    assert!(!dying.is_up());
    drop(dying);
    let replaced = machine(test).expect("there was one before");
    replaced.run(&shell("true")).assert_code(0);
}

/// Waits for the end that [`the_emulator_ends_with_the_process_that_started_it`] brings.
#[test]
#[ignore = "started by another test, which kills it"]
fn hold_a_machine() {
    if machine("to be held").is_some() {
        println!("{HELD}");
        std::thread::sleep(Duration::from_secs(600));
    }
}

const HELD: &str = "the machine is up";

#[test]
fn the_emulator_ends_with_the_process_that_started_it() {
    if machine("end of the process").is_none() {
        return;
    }
    let mut holder = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "hold_a_machine", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(HELD)));
    let emulators = children(holder.id());
    assert_eq!(emulators.len(), 1, "{emulators:?}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    let begun = Instant::now();
    while fs::exists(format!("/proc/{}/fd/0", emulators[0])).unwrap() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the emulator lives on"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes that any thread of a process has started.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let lists =
        threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("children")).unwrap());
    let text: String = lists.collect();
    text.split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect()
}
