//! Guests with a root in a folder, a shared folder and a network, beside QEMU's machine for small
//! guests: the same KVM, kernel, initramfs, virtiofsd and passt, in turn.

use std::path::Path;
use std::time::Duration;

use causeway_init::{Layer, Mac, Network, Root, Share, address_of};
use causeway_initramfs::{ModuleFolder, Needs, Workload, release_of};
use causeway_nested::{
    Command, Contents, ContentsError, Lease, Outcome, Requirements, Shape, shared,
};

use crate::machines::{CAUSEWAY, KERNEL, contents, install, shape, shell};
use crate::{leftovers, network, shares};

/// Runs of each, in turn.
const ROUNDS: usize = 5;
/// Files and packets pass the same processes, whose times vary: up to this ratio of Causeway's to
/// QEMU's in earlier series (docs/guests.md).
const NOISE: f64 = 1.25;
/// The initramfs of QEMU's guests. Those of Causeway have the same, which the command makes.
const INITRAMFS: &str = "/guest/measured.cpio";
const ROOT: &str = "/tmp/measured-root";
const SHARED: &str = "/tmp/measured-shared";
/// The program in the root, and what it does: a file there and back, then packets.
const PROGRAM: &str = "/bin/measured";
const SCRIPT: &str = "#!/bin/sh\necho 'measured: begun'\n\
                      files --host send /data/big 32 7 fetch /data/big 32 7 && \
                      packets --host exchange 10.0.2.2:7 1000 stream 10.0.2.2:7 32\n";
/// What it says, in this order, and what took the time since the last.
const STEPS: [(&str, &str); 5] = [
    ("measured: begun", "boot to a program of the root"),
    (
        "files: send: done",
        "32 MiB written to the share and synced",
    ),
    ("files: fetch: done", "32 MiB read from the share"),
    ("packets: exchange: done", "1,000 datagrams there and back"),
    ("packets: stream: done", "32 MiB by TCP there and back"),
];
/// What QEMU reads at run time, in `usr/share` of the tree that it lies in.
const FIRMWARE: [&str; 5] = [
    "qemu/qboot.rom",
    "qemu/linuxboot_dma.bin",
    "qemu/pvh.bin",
    "qemu/efi-virtio.rom",
    "seabios/bios-microvm.bin",
];

#[test]
#[ignore = "compares times: run it by name on a machine that does nothing else"]
fn guests_with_folders_and_network_are_no_slower_than_in_qemu() {
    let Some(machine) = machine_with_qemu("beside QEMU") else {
        return;
    };
    let packets = install(&machine, "packets");
    let files = install(&machine, "files");
    let made = format!(
        "rm -rf {ROOT} {SHARED} && mkdir {ROOT} {SHARED} && cd {ROOT} && cp -r /bin /lib /lib64 . \
         && rm bin/qemu* bin/causeway && cp {packets} {files} bin && mkdir dev etc proc sys run tmp"
    );
    machine.run(&shell(&made)).assert_code(0);
    machine.write(&format!("{ROOT}{PROGRAM}"), 0o755, SCRIPT.as_bytes());
    let echo = Command::new(&packets, &["--host", "echo", "7"]);
    let echoing = machine.start(&echo);
    machine.wait_for_text(&echo, echoing, "port 7 listens");
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        own.push(measured(&machine, &causeway()));
        others.push(measured(&machine, &qemu()));
    }
    machine.signal(echoing, leftovers::KILL, false);
    machine.finish(&echo, echoing);
    let mut slower = Vec::new();
    for (step, (_, what)) in STEPS.iter().enumerate() {
        let of = |times: &[[Duration; STEPS.len()]]| median(times.iter().map(|all| all[step]));
        let (own, others) = (of(&own), of(&others));
        let ratio = own.as_secs_f64() / others.as_secs_f64();
        println!("{what}: causeway {own:.2?}, QEMU {others:.2?}, {ratio:.2} of its time");
        if ratio > NOISE {
            slower.push(what);
        }
    }
    assert!(slower.is_empty(), "slower: {slower:?}");
}

/// Runs a guest, and returns what each step took.
#[track_caller]
fn measured(machine: &Lease, command: &Command) -> [Duration; STEPS.len()] {
    machine
        .run(&shell(&format!("rm -f {SHARED}/*")))
        .assert_code(0);
    let outcome = machine.run(command);
    let mut last = Duration::ZERO;
    STEPS.map(|(said, _)| {
        let time = time_of(&outcome, said);
        let took = time - last;
        last = time;
        took
    })
}

#[track_caller]
fn time_of(outcome: &Outcome, said: &str) -> Duration {
    let time = outcome.time_of(said);
    time.unwrap_or_else(|| panic!("`{said}` was never said: {}", outcome.text()))
}

pub fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut sorted: Vec<_> = times.collect();
    sorted.sort();
    sorted[sorted.len() / 2]
}

/// A machine with QEMU, virtiofsd and passt, of the tree that has passt. If the host does not say
/// where these are, what is skipped and why is printed.
pub fn machine_with_qemu(test: &str) -> Option<Lease> {
    let tree = std::env::var_os(network::VARIABLE);
    let (Some(tree), Some(_)) = (tree, std::env::var_os(shares::VARIABLE)) else {
        let names = [network::VARIABLE, shares::VARIABLE].join(" and ");
        let why = format!("{names} must be set (tests/nested/newer-emulator makes the tree)");
        assert!(!causeway_nested::is_required(), "no QEMU to compare: {why}");
        eprintln!("skipped: no QEMU to compare ({test}): {why}");
        return None;
    };
    // Another shape than that of the scenarios without QEMU, whose machine is not to be taken.
    let memory_mib = shape().memory_mib + 1024;
    let shape = Shape {
        memory_mib,
        ..shape()
    };
    shared(test, &shape, || with_qemu(contents()?, Path::new(&tree)))
}

fn with_qemu(mut contents: Contents, tree: &Path) -> Result<Contents, ContentsError> {
    let emulator = |name| tree.join("usr/bin").join(name);
    contents = contents
        .program_of(tree, "qemu", &emulator("qemu-system-x86_64"))?
        // It has less in it, and no devices for folders or networks of other processes.
        .program_of(
            tree,
            "qemu-microvm",
            &emulator("qemu-system-x86_64-microvm"),
        )?
        .bytes(INITRAMFS, initramfs());
    for name in FIRMWARE {
        let file = tree.join("usr/share").join(name);
        let place = Path::new("/firmware").join(file.file_name().unwrap_or_default());
        contents = contents.file(&place.display().to_string(), &file);
    }
    Ok(contents)
}

/// What `causeway run` makes for the same guest.
fn initramfs() -> Vec<u8> {
    let kernel = Requirements::find()
        .expect("a machine has been booted")
        .kernel;
    let image = std::fs::read(&kernel).expect("the kernel can be read");
    let release = release_of(&image).expect("it has a release");
    let folder = ModuleFolder::find(&kernel, release).expect("it has modules");
    let root = Root::Share(Share::new("causeway-root", true), Layer::Memory);
    let needs = Needs {
        root: Some(&root),
        has_shares: true,
        has_network: true,
        has_vsock: false,
    };
    let modules = folder.wanted(&needs).expect("modules can be read");
    let address = |text: &str| text.parse().ok();
    let workload = Workload {
        program: PROGRAM.into(),
        root: Some(root),
        shares: vec![Share::new("data", false)],
        network: Some(Network {
            mac: Mac([2, 0, 0, 0, 0, 1]),
            address: address_of("10.0.2.15/24"),
            gateway: address("10.0.2.2"),
            nameserver: address("10.0.2.3"),
        }),
        modules,
        ..Workload::default()
    };
    workload.initramfs().expect("it is what the command makes")
}

fn causeway() -> Command {
    let share = format!("{SHARED}:data");
    let words = [
        "run",
        "--kernel",
        KERNEL,
        "--rootfs",
        ROOT,
        "--share",
        &share,
        "--net",
        "user,loopback",
        "--",
        PROGRAM,
    ];
    Command::new(CAUSEWAY, &words)
}

/// QEMU with PCI and ACPI, as the guest's modules want it, and the processes that `causeway run`
/// starts, with the same options. It begins when the three of them listen (`__SO_ACCEPTCON` among
/// the kernel's flags of their sockets).
fn qemu() -> Command {
    let script = format!(
        "cd /tmp; rm -f r.sock d.sock n.sock
         virtiofsd --socket-path r.sock --shared-dir {ROOT} --readonly --log-level error &
         virtiofsd --socket-path d.sock --shared-dir {SHARED} --log-level error &
         passt --vhost-user --foreground --quiet --one-off --socket /tmp/n.sock \
            --address 10.0.2.15 --netmask 24 --gateway 10.0.2.2 --dns-forward 10.0.2.3 \
            --map-host-loopback 10.0.2.2 --mtu 65520 --tcp-ports none --udp-ports none &
         n=0
         while [ $n -lt 3 ]; do
            n=0; sleep 0.01
            while read -r _ _ _ flags rest; do
               case $flags$rest in 00010000*[rdn].sock) n=$((n + 1));; esac
            done </proc/net/unix
         done
         exec qemu -M microvm,pcie=on,memory-backend=ram -accel kvm -cpu host -m 256 \
            -object memory-backend-memfd,id=ram,size=256M,share=on -L /firmware \
            -kernel {KERNEL} -initrd {INITRAMFS} \
            -append 'console=ttyS0 quiet panic=-1 reboot=t' \
            -nodefaults -no-user-config -display none -serial stdio -no-reboot \
            -chardev socket,id=r,path=r.sock -device vhost-user-fs-pci,chardev=r,tag=causeway-root \
            -chardev socket,id=d,path=d.sock -device vhost-user-fs-pci,chardev=d,tag=data \
            -chardev socket,id=n,path=n.sock -netdev vhost-user,id=n,chardev=n \
            -device virtio-net-pci,netdev=n,mac=02:00:00:00:00:01,romfile="
    );
    shell(&script)
}
