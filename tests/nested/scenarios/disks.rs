//! Disks and random numbers of Linux guests.

use std::path::PathBuf;

use causeway_embedded_linux::image;
use causeway_nested::{Command, Lease};

use crate::leftovers::{KILL, after_a_first, assert_nothing_left};
use crate::machines::{
    CAUSEWAY, KERNEL, has_program, host_programs, machine, refused, run, run_command, shell,
};

/// Where the program of the guests lies in the machine.
const PROGRAM: &str = "/tmp/disk";
const IMAGE: &str = "/tmp/written.img";
const OTHER: &str = "/tmp/read.img";
const IMAGE_BYTES: usize = 6 << 20;

/// The content of a disk that the program fills.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let byte = |place: u64| ((place + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..bytes as u64).map(byte).collect()
}

fn install(machine: &Lease) {
    let program = image("disk").expect("the program is built");
    machine.write(PROGRAM, 0o755, program);
    machine.write(IMAGE, 0o644, &vec![0; IMAGE_BYTES]);
    machine.write(OTHER, 0o644, &pattern(9, IMAGE_BYTES));
}

/// Words of a run of the program.
fn words(options: &[&str], orders: &str) -> Vec<String> {
    let fixed = ["--kernel", KERNEL, "--program", PROGRAM];
    let all = fixed.iter().chain(options).copied();
    let orders = orders.split(' ');
    all.chain(["--"]).chain(orders).map(str::to_owned).collect()
}

#[track_caller]
fn passes(machine: &Lease, options: &[&str], orders: &str) -> String {
    let words = words(options, orders);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (outcome, _) = run(machine, &words);
    outcome.assert_code(0);
    outcome.text()
}

#[test]
fn what_a_guest_writes_and_flushes_is_in_the_image_and_the_next_guest_reads_it() {
    let Some(machine) = machine("disks") else {
        return;
    };
    install(&machine);
    let read_only = format!("{OTHER},ro");
    let text = passes(
        &machine,
        &["--disk", IMAGE, "--disk", &read_only],
        "write /dev/vda 5 read /dev/vda 5 read /dev/vdb 9 refuse /dev/vdb random",
    );
    assert!(
        text.contains("random numbers come from virtio_rng"),
        "{text}"
    );
    assert!(machine.read(IMAGE).unwrap() == pattern(5, IMAGE_BYTES));
    assert!(machine.read(OTHER).unwrap() == pattern(9, IMAGE_BYTES));
    // Without messages, by the pin, and with several virtual CPUs.
    passes(
        &machine,
        &["--disk", IMAGE, "--append", "pci=nomsi", "--vcpus", "2"],
        "read /dev/vda 5 write /dev/vda 6 read /dev/vda 6 trim /dev/vda random",
    );
    assert!(machine.read(IMAGE).unwrap() == vec![0; IMAGE_BYTES]);
}

#[test]
fn an_image_in_use_or_missing_is_told_before_anything_starts_and_free_when_its_user_is_killed() {
    let Some(machine) = machine("disks in use") else {
        return;
    };
    install(&machine);
    let holding = words(&["--disk", IMAGE], "hold /dev/vda");
    let holding: Vec<&str> = holding.iter().map(String::as_str).collect();
    let command = run_command(&holding);
    let running = machine.start(&command);
    machine.wait_for_text(&command, running, "is held");
    let refused = |disks: &[&str]| {
        let options: Vec<&str> = disks.iter().flat_map(|disk| ["--disk", disk]).collect();
        let words = words(&options, "random");
        let all = ["run"].into_iter().chain(words.iter().map(String::as_str));
        let outcome = machine.run(&Command::new(CAUSEWAY, &all.collect::<Vec<_>>()));
        outcome.assert_code(2);
        outcome.text()
    };
    let text = refused(&[IMAGE]);
    assert!(
        text.contains(IMAGE) && text.contains("in use by process"),
        "{text}"
    );
    assert!(text.contains("(causeway)"), "{text}");
    machine.signal(running, 9, false);
    machine.finish(&command, running);
    // The first is had now, so that it is the second that is missed.
    let text = refused(&[IMAGE, "/tmp/nothing.img,ro"]);
    assert!(
        text.contains("/tmp/nothing.img") && text.contains("must exist"),
        "{text}"
    );
}

/// Returns the programs of this host that make, check and serve images in format qcow2, if it has
/// them.
pub fn programs() -> Option<[PathBuf; 2]> {
    host_programs(["qemu-img", "qemu-storage-daemon"])
}

/// Returns whether the machines have these programs; if not, what is skipped and why is printed.
#[track_caller]
pub fn has_programs(test: &str) -> bool {
    has_program("qemu-storage-daemon", "qemu-utils", test)
}

fn machine_with_qcow2(test: &str) -> Option<Lease> {
    has_programs(test).then(|| machine(test)).flatten()
}

const OVER: &str = "/tmp/over.qcow2";
const ALONE: &str = "/tmp/alone.qcow2";

#[track_caller]
fn qemu_img(machine: &Lease, words: &str) {
    let command = Command::new("/bin/qemu-img", &Vec::from_iter(words.split(' ')));
    machine.run(&command).assert_code(0);
}

/// Puts an image into the machine whose backing file is `OTHER`, and one without.
fn install_qcow2(machine: &Lease) {
    install(machine);
    qemu_img(
        machine,
        &format!("create -q -f qcow2 -b {OTHER} -F raw {OVER}"),
    );
    qemu_img(
        machine,
        &format!("create -q -f qcow2 {ALONE} {IMAGE_BYTES}"),
    );
}

/// Returns what an image contains, which must be without a fault.
#[track_caller]
fn content(machine: &Lease, image: &str) -> Vec<u8> {
    qemu_img(machine, &format!("check -q -f qcow2 {image}"));
    qemu_img(
        machine,
        &format!("convert -f qcow2 -O raw {image} /tmp/content"),
    );
    machine.read("/tmp/content").unwrap()
}

#[test]
fn images_in_format_qcow2_are_disks_and_their_backing_files_stay_as_they_are() {
    let Some(machine) = machine_with_qcow2("disks in format qcow2") else {
        return;
    };
    install_qcow2(&machine);
    let over = format!("{OVER},format=qcow2");
    for (disk, part) in [(OVER, ",format=qcow2"), (&over, ",backing")] {
        let words = words(&["--disk", disk], "random");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        refused(&machine, &words, 2, &[OVER, part]);
    }
    let (over, alone) = (over + ",backing", format!("{ALONE},format=qcow2"));
    passes(
        &machine,
        &["--disk", &over, "--disk", IMAGE, "--disk", &alone],
        "read /dev/vda 9 write /dev/vda 6 read /dev/vda 6 write /dev/vdb 5 write /dev/vdc 4",
    );
    assert!(machine.read(OTHER).unwrap() == pattern(9, IMAGE_BYTES));
    assert!(machine.read(IMAGE).unwrap() == pattern(5, IMAGE_BYTES));
    assert!(content(&machine, OVER) == pattern(6, IMAGE_BYTES));
    assert!(content(&machine, ALONE) == pattern(4, IMAGE_BYTES));
    let read_only = format!("{over},ro");
    passes(
        &machine,
        &["--disk", &read_only, "--disk", &alone],
        "read /dev/vda 6 refuse /dev/vda read /dev/vdb 4 trim /dev/vdb",
    );
    assert!(content(&machine, ALONE) == vec![0; IMAGE_BYTES]);
}

#[test]
fn a_killed_vmm_leaves_an_image_in_format_qcow2_whole_and_nobody_who_uses_it() {
    let Some(machine) = machine_with_qcow2("a disk in format qcow2 of a killed VMM") else {
        return;
    };
    install_qcow2(&machine);
    let alone = format!("{ALONE},format=qcow2");
    let once = |orders| drop(passes(&machine, &["--disk", &alone], orders));
    once("write /dev/vda 6");
    let before = after_a_first(&machine, || once("read /dev/vda 6"));
    let holding = words(&["--disk", &alone], "write /dev/vda 7 hold /dev/vda");
    let holding: Vec<&str> = holding.iter().map(String::as_str).collect();
    let command = run_command(&holding);
    let running = machine.start(&command);
    machine.wait_for_text(&command, running, "is held");
    let words = words(&["--disk", &alone], "random");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = refused(&machine, &words, 5, &[ALONE, "lock"]);
    assert!(!outcome.stderr.contains("blockdev"), "{}", outcome.text());
    machine.signal(running, KILL, false);
    machine.finish(&command, running);
    // The daemon writes what it has in memory, and ends.
    assert_nothing_left(&machine, &before);
    assert!(content(&machine, ALONE) == pattern(7, IMAGE_BYTES));
}

/// A guest that reads a line of a disk again and again, past its page cache, and ends a while after
/// the first time.
const READS: &str = "now() { read -r now rest </proc/uptime; now=${now%.*}; }
    { while read -r line </dev/vda && [ \"$line\" = text ]; do
        echo 3 >/proc/sys/vm/drop_caches; [ -e /seen ] || { >/seen; echo is read; }
    done; echo cannot be read; } &
    until [ -e /seen ]; do :; done
    now; end=$((now + 15)); while [ $now -lt $end ]; do now; done; echo goes on; exit 7";
/// Kills the daemons of a machine.
const KILLS: &str = "for it in /proc/[0-9]*; do
        read -r name <$it/comm; [ $name = qemu-storage-da ] && kill -KILL ${it#/proc/}
    done 2>/dev/null; true";

#[test]
fn a_guest_whose_daemon_is_killed_goes_on_without_the_disk() {
    let Some(machine) = machine_with_qcow2("a killed daemon of a disk") else {
        return;
    };
    install_qcow2(&machine);
    machine.write("/tmp/text", 0o644, b"text\n");
    qemu_img(
        &machine,
        &format!("convert -f raw -O qcow2 /tmp/text {ALONE}"),
    );
    let disk = format!("{ALONE},format=qcow2,ro");
    let words = ["--kernel", KERNEL, "--program", "/bin/sh", "--disk", &disk];
    let command = run_command(&[&words[..], &["--", "-c", READS]].concat());
    let running = machine.start(&command);
    machine.wait_for_text(&command, running, "is read");
    machine.run(&shell(KILLS)).assert_code(0);
    let outcome = machine.finish(&command, running);
    outcome.assert_code(7);
    let ended = format!("qemu-storage-daemon of {ALONE} has ended");
    for said in [&ended, "goes on", "has not answered for 30 s"] {
        assert!(outcome.stderr.contains(said), "{}", outcome.text());
    }
}

/// Where the images of a run lie in the machine, and its control socket.
const IMAGES: &str = "/tmp/images";
const SOCKET: &str = "/tmp/control-of-disks";
/// A guest that waits for an image, reads a line of it, writes another one, and waits until the
/// image has gone.
const WAITS: &str =
    "await() { until read size < /sys/block/vda/size && [ $1 $size = $2 ]; do :; done; }
    await '' 0; echo waiting; await '! ' 0; read -r line < /dev/vda; echo \"read: $line, $size\"
    echo answer > /dev/vda; echo written; await '' 0; echo gone; exit 7";

#[test]
fn an_image_comes_and_goes_while_the_guest_runs() {
    let Some(machine) = machine("images that come and go") else {
        return;
    };
    let control = |words: &[&str]| {
        let words = [&["control", SOCKET][..], words].concat();
        machine.run(&Command::new(CAUSEWAY, &words))
    };
    let image = format!("{IMAGES}/work.img");
    let mut content = b"question\n".to_vec();
    content.resize(8192, 0);
    machine.write(&image, 0o644, &content);
    let folder = format!("{IMAGES},slots=1");
    let fixed = ["--kernel", KERNEL, "--program", "/bin/sh", "--disk-folder"];
    let more = [&folder, "--control", SOCKET, "--", "-c", WAITS];
    let command = run_command(&[&fixed[..], &more].concat());
    let job = machine.start(&command);
    machine.wait_for_text(&command, job, "waiting");
    let outcome = control(&["add-disk", "../control-of-disks"]);
    outcome.assert_code(2);
    let outcome = control(&["add-disk", "work.img"]);
    outcome.assert_code(0);
    assert!(outcome.stdout.contains(&image), "{}", outcome.text());
    let outcome = control(&["add-disk", "work.img"]);
    outcome.assert_code(2);
    assert!(outcome.stderr.contains("slots=N"), "{}", outcome.text());
    machine.wait_for_text(&command, job, "written");
    control(&["remove-disk", &image]).assert_code(0);
    let outcome = machine.finish(&command, job);
    outcome.assert_code(7);
    for said in ["read: question, 16", "gone"] {
        assert!(outcome.stderr.contains(said), "{}", outcome.text());
    }
    content[..7].copy_from_slice(b"answer\n");
    assert!(machine.read(&image).unwrap() == content);
    // Nobody has locked it any more.
    install(&machine);
    passes(&machine, &["--disk", &image], "random");
}
