//! Sockets between guests and the host, by its kernel.

use causeway_nested::{Command, Lease};

use crate::leftovers::{self, KILL};
use crate::machines::{KERNEL, assert_data_stays_inside, install, machine, refused, run};
use crate::network::listening;

/// What runs `packets` in a guest with the address 7.
fn guest<'a>(program: &'a str, orders: &[&'a str]) -> Vec<&'a str> {
    let words = ["--kernel", KERNEL, "--program", program, "--vsock", "7"];
    [&words, &["--"][..], orders].concat()
}

fn machine_and_program(test: &str) -> Option<(Lease, String)> {
    let machine = machine(test)?;
    let program = install(&machine, "packets");
    Some((machine, program))
}

#[test]
fn a_guest_and_its_host_reach_each_other_and_no_byte_is_an_exit() {
    let Some((machine, program)) = machine_and_program("sockets to the host") else {
        return;
    };
    let echo = Command::new(&program, &["--host", "echo", "7"]);
    let echoing = machine.start(&echo);
    machine.wait_for_text(&echo, echoing, "port 7 listens");
    let (outcome, report) = run(&machine, &guest(&program, &["stream", "vsock:2:7", "8"]));
    outcome.assert_code(0);
    assert_data_stays_inside(&report);
    machine.signal(echoing, KILL, false);
    machine.finish(&echo, echoing);
    let (command, running) = listening(&machine, &guest(&program, &["answer-vsock", "80"]));
    let visit = ["--host", "stream", "vsock:7:80", "1"];
    machine.run(&Command::new(&program, &visit)).assert_code(0);
    machine.finish(&command, running).assert_code(0);
}

#[test]
fn an_address_has_one_guest_and_is_free_when_its_vmm_is_killed() {
    let Some((machine, program)) = machine_and_program("an address of a guest") else {
        return;
    };
    let words = guest(&program, &["answer-vsock", "80"]);
    leftovers::after_a_first(&machine, || {
        for _ in 0..2 {
            let (command, running) = listening(&machine, &words);
            let taken = ["the address 7 of --vsock", "Address already in use"];
            refused(&machine, &words, 5, &taken);
            machine.signal(running, KILL, false);
            machine.finish(&command, running);
        }
    });
}
