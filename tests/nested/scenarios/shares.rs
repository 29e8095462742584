//! Folders of the machine that its guests share, by virtiofsd.

use std::time::Duration;

use causeway_nested::{Command, Lease};

use crate::leftovers;
use crate::machines::{
    KERNEL, LIMIT_S, assert_data_stays_inside, install, machine, refused, run, run_command,
    run_within, shell,
};

/// Names the virtiofsd to put into the machine.
pub const VARIABLE: &str = "CAUSEWAY_NESTED_VIRTIOFSD";
/// The folder that guests share, in the machine.
const FOLDER: &str = "/tmp/shared";
/// Ends a process at once.
const KILL: i32 = 9;
/// Names how many files a guest writes and reads, and how many they are without it.
const FILES_VARIABLE: &str = "CAUSEWAY_NESTED_FILES";
const FILES: &str = "300";

/// The machine with virtiofsd in it and an empty folder to share, and the place of the program
/// `files`; if the host has no virtiofsd, what is skipped and why is printed.
fn machine_with_folder(test: &str) -> Option<(Lease, String)> {
    if std::env::var_os(VARIABLE).is_none() {
        let why = format!("{VARIABLE} must name one (cargo install virtiofsd)");
        assert!(!causeway_nested::is_required(), "no virtiofsd: {why}");
        eprintln!("skipped: no virtiofsd ({test}): {why}");
        return None;
    }
    let machine = machine(test)?;
    machine
        .run(&shell("rm -rf /tmp/shared; mkdir /tmp/shared"))
        .assert_code(0);
    let program = install(&machine, "files");
    Some((machine, program))
}

#[test]
fn what_a_guest_writes_is_in_the_folder_and_back_without_an_exit() {
    let Some((machine, program)) = machine_with_folder("shared folders") else {
        return;
    };
    let files = std::env::var(FILES_VARIABLE).unwrap_or_else(|_| FILES.to_owned());
    let share = [FOLDER, ":data"].concat();
    let words = ["--kernel", KERNEL, "--program", &program, "--share", &share];
    let orders = [
        "--", "write", "/data", &files, "3", "check", "/data", &files, "3",
    ];
    // A fifth of a second for each file: beside other work, all steps together took a third of it.
    let limit_s = LIMIT_S + files.parse::<u64>().expect("a number of files") / 5;
    let (outcome, report) = run_within(limit_s, &machine, &[&words[..], &orders].concat());
    outcome.assert_code(0);
    assert_data_stays_inside(&report);
    // The machine sees them all, byte for byte, and makes others for the guest.
    let own = |order: &str, seed: &str| {
        let words = ["--host", order, FOLDER, &files, seed];
        let command = Command::new(&program, &words).limit(Duration::from_secs(limit_s));
        machine.run(&command).assert_code(0);
    };
    own("check", "3");
    own("write", "4");
    let read_only = [FOLDER, ":data,ro"].concat();
    let words = [
        "--kernel",
        KERNEL,
        "--program",
        &program,
        "--share",
        &read_only,
    ];
    let orders = ["--", "check", "/data", &files, "4", "refuse", "/data"];
    let (outcome, report) = run_within(limit_s, &machine, &[&words[..], &orders].concat());
    outcome.assert_code(0);
    assert_data_stays_inside(&report);
}

#[test]
fn a_guest_runs_in_a_folder_that_stays_as_it_is_unless_it_may_change_it() {
    let Some((machine, _)) = machine_with_folder("a folder as the root") else {
        return;
    };
    let made = "mkdir -m 777 /tmp/root && cd /tmp/root && cp -r /bin /lib /lib64 . && \
                mkdir dev etc proc sys run tmp && \
                echo me:x:1000:100::/tmp:/bin/sh >etc/passwd && echo video:x:44:me >etc/group";
    machine.run(&shell(made)).assert_code(0);
    // There is no `id` in the machine.
    let script = "echo written >/file && read -r text </file && [ $text = $NAME ] || exit 1; \
                  while read -r key value rest; do \
                  case $key in Uid:|Gid:|Groups:) who=\"$who$value \";; esac; \
                  done </proc/self/status; \
                  [ \"$who$HOME\" = \"$WHO\" ] && exit 7";
    for (root, user, who, is_there) in [
        ("/tmp/root", "me", "WHO=1000 100 44 /tmp", false),
        ("/tmp/root,rw", "0", "WHO=0 0  /", true),
    ] {
        let words = ["--kernel", KERNEL, "--rootfs", root, "--user", user];
        let more = ["--env", "NAME=written", "--env", who];
        let program = ["--", "sh", "-c", script];
        let (outcome, _) = run(&machine, &[&words[..], &more, &program].concat());
        outcome.assert_code(7);
        let found = machine.read("/tmp/root/file");
        assert_eq!(found.is_ok(), is_there, "{root}: {found:?}");
    }
}

#[test]
fn what_cannot_be_shared_is_told_before_a_guest_boots() {
    let Some((machine, program)) = machine_with_folder("folders that cannot be shared") else {
        return;
    };
    let with = |words: &[&'static str], code, parts: &[&str]| {
        let first = ["--kernel", KERNEL];
        refused(&machine, &[&first[..], words].concat(), code, parts);
    };
    with(&["--share", "/nowhere"], 2, &["/nowhere", "No such file"]);
    with(
        &["--share", "/tmp/shared", "--vms", "2"],
        2,
        &["/tmp/shared", "add ,ro"],
    );
    let missing = ["--share", "/tmp/shared", "--virtiofsd", "/nowhere"];
    with(&missing, 5, &["/nowhere", "--virtiofsd"]);
    let other = ["--share", "/tmp/shared", "--virtiofsd", "/bin/sh"];
    with(&other, 5, &["/bin/sh", "/tmp/shared"]);
    let absent = ["--rootfs", "/tmp/shared", "--", "python3"];
    with(&absent, 4, &["/tmp/shared", "python3"]);
    drop(program);
}

#[test]
fn synced_files_survive_the_vmm_and_nothing_else_does() {
    let Some((machine, program)) = machine_with_folder("a killed VMM") else {
        return;
    };
    let share = [FOLDER, ":data"].concat();
    let words = ["--kernel", KERNEL, "--program", &program, "--share", &share];
    let words = [&words[..], &["--", "hold", "/data"]].concat();
    leftovers::after_a_first(&machine, || {
        let command = run_command(&words);
        let running = machine.start(&command);
        machine.wait_for_text(&command, running, "files: synced 5");
        machine.signal(running, KILL, false);
        machine.finish(&command, running);
        let checked = "for i in 0 1 2 3 4 5; do [ -e /tmp/shared/file-$i ] || exit 1; done";
        machine.run(&shell(checked)).assert_code(0);
        machine.run(&shell("rm -rf /tmp/shared/*")).assert_code(0);
    });
}
