//! Guests with a network, by passt or on a tap device.

use causeway_nested::{Command, Job, Lease};

use crate::leftovers::{self, KILL};
use crate::machines::{
    KERNEL, REPORT, assert_data_stays_inside, install, machine, refused, run, run_command, shell,
};
use crate::report::Report;

/// Names the folder with a file system tree that has passt (`usr/bin/passt`) and its libraries.
pub const VARIABLE: &str = "CAUSEWAY_NESTED_PASST";
/// How many datagrams a guest exchanges.
const DATAGRAMS: &str = "1000";
/// How many MiB go there and back.
const MIB: &str = "8";

/// The machine with passt in it, and the place of the program `packets`; if the host has no passt,
/// what is skipped and why is printed.
fn machine_with_passt(test: &str) -> Option<(Lease, String)> {
    if std::env::var_os(VARIABLE).is_none() {
        let why = format!("{VARIABLE} must name a tree (tests/nested/newer-emulator makes one)");
        assert!(!causeway_nested::is_required(), "no passt: {why}");
        eprintln!("skipped: no passt ({test}): {why}");
        return None;
    }
    let machine = machine(test)?;
    let program = install(&machine, "packets");
    Some((machine, program))
}

/// What runs `packets` in a guest with a network.
fn guest<'a>(program: &'a str, net: &'a str, orders: &[&'a str]) -> Vec<&'a str> {
    let words = ["--kernel", KERNEL, "--program", program, "--net", net, "--"];
    [&words, orders].concat()
}

/// Starts a guest whose program answers at port 80, and waits until it does.
pub fn listening(machine: &Lease, words: &[&str]) -> (Command, Job) {
    let command = run_command(words);
    let running = machine.start(&command);
    machine.wait_for_text(&command, running, "port 80 listens");
    (command, running)
}

#[test]
fn a_guest_reaches_the_loopback_address_if_it_may_and_no_packet_is_an_exit() {
    let Some((machine, program)) = machine_with_passt("a guest's packets") else {
        return;
    };
    let echo = Command::new(&program, &["--host", "echo", "7"]);
    let echoing = machine.start(&echo);
    machine.wait_for_text(&echo, echoing, "port 7 listens");
    let orders = [
        "nameserver",
        "10.0.2.3",
        "exchange",
        "10.0.2.2:7",
        DATAGRAMS,
        "stream",
        "10.0.2.2:7",
        MIB,
    ];
    let (outcome, report) = run(&machine, &guest(&program, "user,loopback", &orders));
    outcome.assert_code(0);
    assert_data_stays_inside(&report);
    // A guest that may not reach it gets no answer.
    let orders = ["unreachable", "10.0.2.2:7"];
    let (outcome, _) = run(&machine, &guest(&program, "user", &orders));
    outcome.assert_code(0);
    machine.signal(echoing, KILL, false);
    machine.finish(&echo, echoing);
}

#[test]
fn a_port_of_the_host_leads_to_one_of_the_guest() {
    let Some((machine, program)) = machine_with_passt("a forwarded port") else {
        return;
    };
    let words = guest(&program, "user,forward=8080:80", &["answer", "80"]);
    leftovers::after_a_first(&machine, || {
        let (command, running) = listening(&machine, &words);
        // Another guest cannot have the same port.
        let taken = ["forward=8080:80", "passt"];
        refused(&machine, &words, 5, &taken);
        let visit = ["--host", "stream", "127.0.0.1:8080", "1"];
        machine.run(&Command::new(&program, &visit)).assert_code(0);
        machine.finish(&command, running).assert_code(0);
    });
}

#[test]
fn a_killed_vmm_leaves_no_network_behind() {
    let Some((machine, program)) = machine_with_passt("a killed VMM with a network") else {
        return;
    };
    let words = guest(&program, "user,forward=8080:80", &["answer", "80"]);
    leftovers::after_a_first(&machine, || {
        let (command, running) = listening(&machine, &words);
        machine.signal(running, KILL, false);
        machine.finish(&command, running);
    });
}

#[test]
fn what_cannot_be_a_network_is_told_before_a_guest_boots() {
    let Some((machine, program)) = machine_with_passt("networks that are refused") else {
        return;
    };
    let with = |words: &[&str], code, parts: &[&str]| {
        let first = ["--kernel", KERNEL, "--program", &program];
        refused(&machine, &[&first[..], words].concat(), code, parts);
    };
    with(&["--net", "bridge"], 2, &["bridge", "write user"]);
    let twice = ["--net", "user,forward=1:1", "--vms", "2"];
    with(&twice, 2, &["--vms 2", "without forward="]);
    let missing = ["--net", "user", "--passt", "/nowhere"];
    with(&missing, 5, &["/nowhere", "--passt"]);
    let other = ["--net", "user", "--passt", "/bin/setpriv"];
    with(&other, 5, &["/bin/setpriv", "--net user"]);
}

/// Makes a tap device of this name, with the address 192.168.7.1.
fn make_tap(machine: &Lease, name: &str) {
    let made = format!(
        "ip tuntap add dev {name} mode tap && ip address add 192.168.7.1/24 dev {name} && \
         ip link set {name} up"
    );
    machine.run(&shell(&made)).assert_code(0);
}

#[test]
fn a_guest_on_a_tap_device_and_its_host_reach_each_other_without_an_exit() {
    let Some(machine) = machine("a tap device") else {
        return;
    };
    let program = install(&machine, "packets");
    make_tap(&machine, "tap7");
    let net = "tap=tap7,address=192.168.7.2/24,gateway=192.168.7.1,nameserver=192.168.7.1";
    let words = guest(
        &program,
        net,
        &["nameserver", "192.168.7.1", "answer", "80"],
    );
    let (command, running) = listening(&machine, &words);
    // Nobody else has its packets.
    refused(&machine, &words, 5, &["tap7", "use by another VM"]);
    let visit = ["--host", "stream", "192.168.7.2:80", MIB];
    machine.run(&Command::new(&program, &visit)).assert_code(0);
    machine.finish(&command, running).assert_code(0);
    let text = machine.read(REPORT).expect("the run has written it");
    assert_data_stays_inside(&Report::parse(&String::from_utf8_lossy(&text)));
    machine.run(&shell("ip link delete tap7")).assert_code(0);
    refused(
        &machine,
        &words,
        5,
        &["no tap device tap7", "sudo ip tuntap add dev tap7"],
    );
    let loopback = guest(&program, "tap=lo", &["answer", "80"]);
    refused(&machine, &loopback, 5, &["no tap device lo"]);
}

/// Runs of a guest with a folder and a network, one after the other.
const RUNS: u64 = 100;
/// Each of so many is killed.
const KILLED_OF: u64 = 5;
/// The longest life of those in milliseconds: as long as the others take.
const LIFE_MS: u64 = 4000;

#[test]
#[ignore = "takes ten minutes: run it by name"]
fn a_hundred_runs_of_which_some_are_killed_leave_nothing() {
    let Some((machine, _)) = machine_with_passt("a hundred runs") else {
        return;
    };
    let files = install(&machine, "files");
    let folder = "rm -rf /tmp/many; mkdir /tmp/many";
    let net = "user,forward=8080:80";
    let words = [
        "--kernel",
        KERNEL,
        "--program",
        &files,
        "--share",
        "/tmp/many:data",
        "--net",
        net,
        "--vsock",
        "7",
        "--",
        "write",
        "/data",
        "20",
        "1",
    ];
    let run_once = |number: u64| {
        machine.run(&shell(folder)).assert_code(0);
        // A number that looks like chance, and is the same each time.
        let life_ms = ((number * 0x9e37_79b9) >> 7) % LIFE_MS;
        match number % KILLED_OF {
            0 => leftovers::kill_after(&machine, &words, life_ms),
            _ => {
                let outcome = machine.run(&leftovers::plain(&words));
                outcome.assert_code(0);
            }
        }
        machine.run(&shell("rm -rf /tmp/many")).assert_code(0);
    };
    let before = leftovers::after_a_first(&machine, || run_once(1));
    for number in 0..RUNS {
        run_once(number);
        leftovers::assert_nothing_left(&machine, &before);
        println!("run {} of {RUNS} left nothing", number + 1);
    }
}
