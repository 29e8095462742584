//! Examples of docs/guests.md, as they are typed there.

use causeway_nested::Lease;

use crate::debian;
use crate::disks::has_programs;
use crate::machines::{DEBIAN_ROOT, KERNEL, UMOCI, has_program, shell};

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

/// Makes what `skopeo` fetches from a registry: an image in format OCI in the folder `boxes`. Its
/// second layer takes away a file of the first one.
const MAKE_CONTAINER_IMAGE: &str = "
    umoci init --layout boxes
    umoci new --image boxes:debian
    umoci unpack --image boxes:debian made
    cd made/rootfs
    mkdir -p dev proc sys tmp usr/bin usr/lib/x86_64-linux-gnu usr/lib64
    ln -s usr/bin usr/lib usr/lib64 .
    cp ../../debian/usr/bin/dash usr/bin/sh
    cp ../../debian/usr/lib/x86_64-linux-gnu/libc.so.6 usr/lib/x86_64-linux-gnu
    cp ../../debian/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 usr/lib64
    cp usr/bin/sh usr/bin/gone
    cd ../..
    umoci repack --image boxes:debian made
    rm made/rootfs/usr/bin/gone
    umoci repack --image boxes:debian made";

#[test]
fn a_container_image_runs_once_it_is_unpacked() {
    let test = "an unpacked container image";
    let Some(machine) = has_program(UMOCI, UMOCI, test)
        .then(|| machine(test))
        .flatten()
    else {
        return;
    };
    let make = format!("set -e; cd /documented; {MAKE_CONTAINER_IMAGE}");
    machine.run(&shell(&make)).assert_code(0);
    let run = "causeway run --kernel vmlinuz --rootfs box/rootfs";
    types(&machine, &["umoci unpack", run], "a box in /tmp");
    let gone =
        "[ -e /documented/box/rootfs/usr/bin/sh ] && [ ! -e /documented/box/rootfs/bin/gone ]";
    machine.run(&shell(gone)).assert_code(0);
}
