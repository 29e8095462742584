//! Description files: `causeway run --config` and `--print-config`.

use serde_json::Value;

use crate::bare_images::{elf, exit};
use crate::command::{Scratch, alone, kvm};
use crate::report::Report;
use crate::schema;
use crate::standin::Machine;

const USAGE: i32 = 2;
const IMAGE: i32 = 4;
const REPORT: i32 = 7;

/// What `--print-config` prints for these words, which must be valid.
fn printed(scratch: &Scratch, words: &[&str]) -> String {
    let outcome = scratch.run(&[&["run", "--print-config"], words].concat());
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (0, ""),
        "{outcome:?}"
    );
    outcome.stdout
}

fn parsed(text: &str) -> Value {
    toml::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The blocks of TOML in docs/guests.md.
fn examples() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guests.md");
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```toml\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap().to_owned());
    blocks.collect()
}

#[test]
fn the_examples_of_the_document_mean_what_it_says() {
    let scratch = Scratch::new();
    let examples = examples();
    let [first, as_printed, linux] = &examples[..] else {
        panic!("not three examples: {examples:?}");
    };
    scratch.file("vm.toml", first.as_bytes());
    let text = printed(&scratch, &["--config", "vm.toml", "--vms", "3"]);
    let folder = scratch.path("");
    let folder = folder.to_str().unwrap().trim_end_matches('/');
    assert_eq!(text, as_printed.replace("/home/me/vms", folder));
    for example in &examples {
        schema::assert_valid_for("config", &parsed(example));
    }
    scratch.file("linux.toml", linux.as_bytes());
    let text = printed(&scratch, &["--config", "linux.toml"]);
    assert!(
        text.contains(&format!("program = \"{folder}/app\"\n")),
        "{text}"
    );
}

#[test]
fn the_first_example_of_the_document_runs() {
    if !kvm("an example of docs/guests.md") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    scratch.file("vm.toml", examples()[0].as_bytes());
    let outcome = scratch.run(&["run", "--config", "vm.toml"]);
    outcome.assert_passed();
    let text = std::fs::read_to_string(scratch.path("report.json")).unwrap();
    let report = Report::parse(&text);
    assert_eq!(report.0["guest"], "compute");
    let vms = report.0["vms"].as_array().unwrap();
    let memory: Vec<_> = vms
        .iter()
        .map(|vm| vm["memory_bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(memory, [128 << 20; 2]);
}

/// The process executes the program again for the driver, and then reads the file again.
#[test]
fn a_run_on_a_gpu_is_described_in_a_file_confined_as_always() {
    if !kvm("a description on CUDA") {
        return;
    }
    let machine = Machine::new();
    let image = elf(&exit(0));
    machine.scratch().file("guest.elf", &image);
    let content = "kernel = 'guest.elf'\nmemory = 64\ngpu = 'cuda'\nsandbox = 'on'\n\
                   json = 'report.json'\ntimeout = 120\n";
    machine.scratch().file("vm.toml", content.as_bytes());
    let outcome = machine.run(&["run", "--config", "vm.toml"]);
    outcome.assert_passed();
    let report = machine.json("report.json");
    assert_eq!(report["vms"][0]["isolation"], "process");
}

#[test]
fn paths_of_a_description_begin_at_its_folder() {
    if !kvm("a description in another folder") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path("vms.1");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("guest.elf"), elf(&exit(0))).unwrap();
    let content = "kernel = 'guest.elf'\nmemory = 64\njson = 'report.json'\nquiet = 1\n";
    std::fs::write(folder.join("vm.toml"), content).unwrap();
    scratch
        .run(&["run", "--config", "vms.1/vm.toml"])
        .assert_passed();
    let text = std::fs::read_to_string(folder.join("report.json")).unwrap();
    Report::parse(&text);
    // What is typed begins at the working directory, and takes the place of what the file says.
    let words = ["run", "--config", "vms.1/vm.toml", "--kernel", "guest.elf"];
    let outcome = scratch.run(&words);
    outcome.assert_refused(IMAGE, &["cannot read the guest image guest.elf"]);
    assert!(!outcome.stderr.contains("vm.toml"), "{outcome:?}");
    // What is printed means the same in every folder.
    let text = printed(&scratch, &["--config", "vms.1/vm.toml"]);
    schema::assert_valid_for("config", &parsed(&text));
    let moved = scratch.file("moved.toml", text.as_bytes());
    assert_eq!(printed(&scratch, &["--config", &moved]), text);
    scratch.run(&["run", "--config", &moved]).assert_passed();
}

#[test]
fn options_of_all_subcommands_are_keys_too() {
    let scratch = Scratch::new();
    scratch.file("vm.toml", b"verbose = 2\nlog-file = \"vm.log\"\n");
    let text = printed(&scratch, &["--config", "vm.toml", "--quiet"]);
    let log = format!("log-file = \"{}\"\n", scratch.path("vm.log").display());
    assert!(
        text.contains("quiet = 1\n") && text.contains(&log),
        "{text}"
    );
    assert!(!text.contains("verbose"), "{text}");
    assert!(scratch.path("vm.log").exists());
}

/// The log is opened before the subcommand begins.
#[test]
fn a_log_that_cannot_be_written_is_named_with_its_place_too() {
    let scratch = Scratch::new();
    scratch.file("vm.toml", b"\nlog-file = 'nowhere/vm.log'\n");
    let outcome = scratch.run(&["run", "--config", "vm.toml"]);
    let place = "vm.toml, line 2 (log-file): cannot write the log file nowhere/vm.log";
    outcome.assert_refused(REPORT, &[place]);
}

/// The message about a file with this content, which must be the only line.
#[track_caller]
fn refused(content: &[u8], parts: &[&str]) {
    let scratch = Scratch::new();
    scratch.file("vm.toml", content);
    let outcome = scratch.run(&["run", "--config", "vm.toml"]);
    outcome.assert_refused(USAGE, parts);
}

#[test]
fn a_mistake_in_a_file_is_one_line_with_file_line_key_value_and_way_out() {
    for (content, parts) in [
        (
            &b"vms = 1\nmemroy = 1\n"[..],
            &["vm.toml, line 2: ", "memroy: did you mean memory?"][..],
        ),
        (
            b"wombat = 1",
            &["vm.toml, line 1: ", "key wombat: ", "`causeway run --help`"],
        ),
        (
            b"memory = true",
            &["vm.toml, line 1: ", "value true for memory: choose a text"],
        ),
        (
            b"memory = 'lots'",
            &[
                "vm.toml, line 1 (memory): ",
                "lots for --memory: choose a size",
            ],
        ),
        (
            b"\nvcpus = 0",
            &["vm.toml, line 2 (vcpus): ", "0 for --vcpus: choose 1 to 64"],
        ),
        (
            b"vcpus = -1",
            &[
                "vm.toml, line 1 (vcpus): ",
                "-1 for --vcpus: choose 1 to 64",
            ],
        ),
        (
            b"boot = 'grub'",
            &["vm.toml, line 1 (boot): ", "grub for --boot: choose bare, "],
        ),
        (
            b"gpu = ['software', 'hardware']",
            &["vm.toml, line 1 (gpu): ", "`hardware`"],
        ),
        (
            b"memory = '200T'",
            &[
                "vm.toml, line 1 (memory): ",
                "209715200 for --memory: choose 32",
            ],
        ),
        (
            b"guest = 'nobody'",
            &[
                "vm.toml, line 1 (guest): ",
                "nobody for --guest: choose compute",
            ],
        ),
        (
            b"program-arguments = ['x']",
            &["vm.toml, line 1 (program-arguments): ", "--program"],
        ),
        (
            b"disk = 'x.img'",
            &["vm.toml, line 1 (disk): ", "--disk", "--kernel FILE"],
        ),
        (
            b"guest = 'compute'\nkernel = 'k'",
            &["line 1 (guest) and line 2 (kernel): ", "either"],
        ),
        (
            b"metrics-any-address = true",
            &["vm.toml: ", "--metrics", "missing"],
        ),
        (
            b"sandbox = 'maybe'",
            &[
                "vm.toml, line 1 (sandbox): ",
                "maybe for --sandbox: choose on",
            ],
        ),
        (
            b"memory = 2G",
            &["vm.toml, line 1: this is not TOML (", "text in quotes"],
        ),
        (
            b"vms = 1\nvms = 2",
            &["vm.toml, line 2: this is not TOML (duplicate key)"],
        ),
        (
            b"\xff\xfev\0m\0",
            &["vm.toml, line 1: this is not UTF-8: save"],
        ),
        (
            b"append = \"\\u0000\"",
            &["vm.toml, line 1: ", "\\u0000", "append", "zero byte"],
        ),
        (
            b"[gpu]\nmemory = 1",
            &["vm.toml, line 1: ", "for gpu: choose a text"],
        ),
    ] {
        refused(content, parts);
    }
}

#[test]
fn memory_of_two_machines_is_refused_with_the_keys_that_ask_for_it() {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib = told
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap();
    // No VM may have more than 128 GiB.
    let each_mib = (kib >> 10).min(128 << 10);
    let vms = 2 * (kib >> 10).div_ceil(each_mib);
    let content = format!("# large\nmemory = {each_mib}\nvms = {vms}\n");
    let needed = format!("needs {} MiB of RAM", each_mib * vms);
    let place = "vm.toml, line 2 (memory) and line 3 (vms): ";
    refused(
        content.as_bytes(),
        &[place, &needed, "choose fewer or smaller VMs"],
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_way_out() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("folder")).unwrap();
    scratch.file("large", &vec![b'#'; (1 << 20) + 1]);
    for (path, why) in [
        ("missing.toml", "No such file"),
        ("folder", "directory"),
        ("large", "larger"),
        ("/dev/zero", "not a regular file"),
    ] {
        let outcome = scratch.run(&["run", &format!("--config={path}")]);
        let file = format!("cannot read {path} of --config, which takes a file in TOML format");
        outcome.assert_refused(USAGE, &[&file, "1024 KiB", why]);
    }
    for words in [["run", "--config"], ["run", "--config="]] {
        let outcome = scratch.run(&words);
        outcome.assert_refused(USAGE, &["--config needs a value"]);
    }
}

#[test]
fn mistakes_that_were_typed_are_not_said_of_the_file() {
    let scratch = Scratch::new();
    scratch.file("vm.toml", b"memory = 64\nvms = 1\n");
    for (words, part) in [
        (["--memory", "lots"], "invalid value lots for --memory"),
        (["--vcpus", "0"], "invalid value 0 for --vcpus"),
        (["--wombat", "1"], "unknown option --wombat"),
        (["--guest", "nobody"], "invalid value nobody for --guest"),
        (
            ["--config", "other.toml"],
            "--config is given more than once",
        ),
    ] {
        let outcome = scratch.run(&[&["run", "--config", "vm.toml"], &words[..]].concat());
        outcome.assert_refused(USAGE, &[part]);
        assert!(!outcome.stderr.contains("vm.toml"), "{outcome:?}");
    }
}

#[test]
fn what_would_run_is_checked_before_it_is_printed_and_nothing_is_opened() {
    let scratch = Scratch::new();
    let words = [
        "run",
        "--print-config",
        "--kernel",
        "missing",
        "--guest",
        "compute",
    ];
    scratch
        .run(&words)
        .assert_refused(USAGE, &["--guest", "--kernel"]);
    let text = printed(
        &scratch,
        &[
            "--kernel",
            "missing",
            "--disk",
            "missing,ro",
            "--vcpus",
            "2",
        ],
    );
    let value = parsed(&text);
    let here = scratch.path("missing");
    assert_eq!(value["kernel"], here.to_str().unwrap());
    assert_eq!(value["disk"][0], format!("{},ro", here.display()));
    assert_eq!(
        (&value["vcpus"], &value["memory"]),
        (&2.into(), &256.into())
    );
    schema::assert_valid_for("config", &value);
    for wrong in [
        "wombat = 1",
        "vcpus = true",
        "boot = 'grub'",
        "disk = [1, true]",
    ] {
        assert_ne!(
            schema::problems("config", &parsed(wrong)),
            [""; 0],
            "{wrong}"
        );
    }
}
