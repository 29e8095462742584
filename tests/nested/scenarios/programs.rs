//! Linux guests that run one program.

use causeway_initramfs::{Archive, GuestPath, INIT};
use causeway_nested::Lease;

use crate::image::elf;
use crate::machines::{KERNEL, machine, run};
use crate::report::Report;

/// Where the program lies in the machine.
const PROGRAM: &str = "/tmp/program";
/// Where an initramfs lies in the machine.
const INITRAMFS: &str = "/tmp/initramfs";

// System calls of x86-64 Linux.
const WRITE: u8 = 1;
const ACCESS: u8 = 21;
const MKDIR: u8 = 83;
const EXIT_GROUP: u8 = 231;

/// Machine code that prints a text on standard output.
pub fn say(text: &str) -> Vec<u8> {
    let bytes = u8::try_from(text.len()).unwrap();
    // mov eax, WRITE; mov edi, 1; lea rsi, [rip + 9]; mov edx, bytes; syscall; jmp over the text
    let mut code = vec![0xb8, WRITE, 0, 0, 0, 0xbf, 1, 0, 0, 0];
    code.extend([0x48, 0x8d, 0x35, 9, 0, 0, 0, 0xba, bytes, 0, 0, 0]);
    code.extend([0x0f, 0x05, 0xeb, bytes]);
    code.extend(text.as_bytes());
    code
}

/// Machine code that ends the process with a status.
pub fn exit(status: u8) -> Vec<u8> {
    // mov eax, EXIT_GROUP; mov edi, status; syscall
    vec![0xb8, EXIT_GROUP, 0, 0, 0, 0xbf, status, 0, 0, 0, 0x0f, 0x05]
}

/// Machine code that makes a folder. What comes of it is ignored.
pub fn make_folder(path: &str) -> Vec<u8> {
    let bytes = u8::try_from(path.len() + 1).unwrap();
    // mov eax, MKDIR; lea rdi, [rip + 9]; mov esi, 0755; syscall; jmp over the path
    let mut code = vec![0xb8, MKDIR, 0, 0, 0, 0x48, 0x8d, 0x3d, 9, 0, 0, 0];
    code.extend([0xbe, 0xed, 1, 0, 0, 0x0f, 0x05, 0xeb, bytes]);
    code.extend(path.as_bytes());
    code.push(0);
    code
}

/// Machine code that ends the process with 0 if there is a file of this name, else with the number
/// of the error.
fn look_for(path: &str) -> Vec<u8> {
    // mov eax, ACCESS; lea rdi, [rip + 15]; xor esi, esi; syscall; mov edi, eax; neg edi; mov eax,
    // EXIT_GROUP; syscall
    let mut code = vec![0xb8, ACCESS, 0, 0, 0, 0x48, 0x8d, 0x3d, 15, 0, 0, 0];
    code.extend([0x31, 0xf6, 0x0f, 0x05, 0x89, 0xc7, 0xf7, 0xdf]);
    code.extend([0xb8, EXIT_GROUP, 0, 0, 0, 0x0f, 0x05]);
    code.extend(path.as_bytes());
    code.push(0);
    code
}

/// Machine code that stores to address 0.
fn crash() -> Vec<u8> {
    // xor eax, eax; mov [rax], eax
    vec![0x31, 0xc0, 0x89, 0x00]
}

/// Runs a program of this machine code, and checks the exit code.
#[track_caller]
fn ends_with(machine: &Lease, code: &[u8], status: i32) -> (String, Report) {
    let words = ["--kernel", KERNEL, "--program", PROGRAM];
    machine.write(PROGRAM, 0o755, &elf(code));
    let (outcome, report) = run(machine, &words);
    outcome.assert_code(status);
    assert_eq!(
        report.0["vms"][0]["program_status"],
        status,
        "{}",
        outcome.text()
    );
    (outcome.text(), report)
}

#[test]
fn the_exit_status_of_a_program_is_the_commands() {
    let Some(machine) = machine("programs on Linux") else {
        return;
    };
    // The function reaches programs through the driver that makes this file.
    let code = [say("all is well\n"), look_for("/dev/uio0")].concat();
    let (text, report) = ends_with(&machine, &code, 0);
    assert!(text.contains("all is well"), "{text}");
    assert_eq!(report.outcome(), "pass");
    // It marks no phases, so the exits of its life are told.
    for part in ["program's life", "no data phase was marked", "run: PASS"] {
        assert!(text.contains(part), "`{part}`: {text}");
    }
    assert_ne!(report.program(0).vmm("io:console"), 0, "what it prints");
    assert!(report.program(0).vmm("") < report.vm(0).vmm(""), "{text}");
    assert!(!text.contains("causeway-init"), "it complains: {text}");
    let code = [say("not so well\n"), exit(7)].concat();
    let (text, report) = ends_with(&machine, &code, 7);
    assert!(text.contains("not so well"), "{text}");
    assert!(text.contains("the program ended with status 7"), "{text}");
    assert_eq!(report.outcome(), "fail");
    let (text, _) = ends_with(&machine, &crash(), 139);
    assert!(text.contains("killed by signal 11"), "{text}");
}

#[test]
fn the_statuses_of_several_guests_are_told_and_the_first_is_the_commands() {
    let Some(machine) = machine("programs of two guests") else {
        return;
    };
    machine.write(PROGRAM, 0o755, &elf(&exit(7)));
    let words = ["--kernel", KERNEL, "--program", PROGRAM, "--vms", "2"];
    let (outcome, report) = run(&machine, &words);
    outcome.assert_code(7);
    for vm in 0..2 {
        let said = format!("vm{vm}: the program ended with status 7");
        assert!(outcome.stderr.contains(&said), "{}", outcome.text());
        assert_eq!(report.0["vms"][vm]["program_status"], 7);
    }
}

/// An initramfs whose init gets these orders, and nothing else.
fn ordered(orders: &[u8]) -> Vec<u8> {
    let path = |text| GuestPath::new(text).unwrap();
    let mut archive = Archive::new();
    archive.file(&path("/init"), 0o755, INIT).unwrap();
    archive
        .file(&path("/causeway/run"), 0o644, orders.to_vec())
        .unwrap();
    archive
        .file(&path("/odd.ko"), 0o644, b"odd".to_vec())
        .unwrap();
    archive
        .character_device(&path("/dev/console"), 0o600, 5, 1)
        .unwrap();
    archive.to_vec()
}

/// The kernel would panic if the first process ended.
#[test]
fn orders_that_cannot_be_carried_out_end_the_guest_and_not_its_init() {
    let Some(machine) = machine("odd orders") else {
        return;
    };
    let orders = b"module=/missing.ko\0module=/odd.ko\0program=/bin/missing\0";
    for (orders, complaints) in [
        (
            &orders[..],
            &[
                "causeway-init: cannot load /missing.ko",
                "causeway-init: cannot load /odd.ko",
                "causeway-init: cannot run /bin/missing",
            ][..],
        ),
        (b"colour=red\0", &["invalid record `colour=red`"]),
    ] {
        machine.write(INITRAMFS, 0o644, &ordered(orders));
        let words = [
            "--kernel",
            KERNEL,
            "--initramfs",
            INITRAMFS,
            "--append",
            "quiet",
        ];
        let (outcome, report) = run(&machine, &words);
        outcome.assert_code(5);
        let text = outcome.text();
        for complaint in complaints {
            assert!(text.contains(complaint), "{complaint} is not in {text}");
        }
        assert!(text.contains("could not run its program"), "{text}");
        assert!(!text.contains("Kernel panic"), "{text}");
        assert_eq!(
            report.0["vms"][0]["program_status"],
            serde_json::Value::Null
        );
    }
}
