//! Examples of docs/guests.md, as they are typed there.

use causeway_nested::Lease;

use crate::debian;
use crate::disks::has_programs;
use crate::machines::{DEBIAN_ROOT, KERNEL, shell};

const DOCUMENT: &str = include_str!("../../../docs/guests.md");

/// Returns the command of the document that begins so, with the lines that continue it.
fn typed(beginning: &str) -> String {
    let beginning = format!("    {beginning}");
    let mut lines = DOCUMENT
        .lines()
        .skip_while(|line| !line.starts_with(&beginning));
    let mut command = String::new();
    loop {
        let line = lines.next().expect("the document has it, and its end");
        command += &format!("{line}\n");
        if !line.ends_with('\\') {
            return command;
        }
    }
}

/// The machine, with what the examples begin with in the folder `/documented`.
fn machine(test: &str) -> Option<Lease> {
    let machine = debian::mounted(test)?;
    let files = format!(
        "[ -e /documented ] || {{ mkdir /documented && cd /documented && ln -s {DEBIAN_ROOT} \
         debian && ln -s {DEBIAN_ROOT}.img debian.img && ln -s {KERNEL} vmlinuz; }}"
    );
    machine.run(&shell(&files)).assert_code(0);
    Some(machine)
}

/// Types commands of the document that begin so, one after the other. The last one must print
/// `expected`.
#[track_caller]
fn types(machine: &Lease, beginnings: &[&str], expected: &str) {
    let commands: String = beginnings.iter().map(|it| typed(it)).collect();
    let script = format!("set -e; cd /documented\n{commands}");
    let command = shell(&script).limit(std::time::Duration::from_secs(480));
    let outcome = machine.run(&command);
    outcome.assert_code(0);
    // The guest's lines have the name of the VM in front.
    let is_printed = |line: &str| line.ends_with(&format!(" {expected}"));
    let printed = outcome.stderr.replace('\r', "");
    assert!(printed.lines().any(is_printed), "{}", outcome.text());
}

#[test]
fn a_debian_runs_from_its_folder_its_image_and_an_image_over_it() {
    let Some(machine) = machine("examples of docs/guests.md") else {
        return;
    };
    let folder = "causeway run --kernel vmlinuz --rootfs debian -- python3";
    types(&machine, &[folder], "hello");
    let script = b"import sys; print('script of', sys.argv[1])";
    machine.write("/documented/script.py", 0o644, script);
    let image = "causeway run --kernel vmlinuz --disk debian.img,ro --root";
    types(&machine, &[image], "script of Debian");
    if !has_programs("an image in format qcow2") {
        return;
    }
    let (made, over) = (
        "qemu-img create -f qcow2 -b debian.img",
        "causeway run --kernel vmlinuz --rootfs work.qcow2",
    );
    types(&machine, &[made, over], "changed");
}
