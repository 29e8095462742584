//! Memory of GPU 0, which kernels of GPU 1 reach where its owner allows it.
//!
//! A single VM, which has both GPUs, is owner and user of the memory. With more VMs, VM 0 is the
//! owner, on its first GPU, and VM 1 the user, on its second; or each is on its only GPU, if those
//! are different (`--gpu cuda:auto`).
//!
//! Where the two GPUs cannot be peers, copies do what kernels may not.
//!
//! Arguments: `mib=N` of memory (default 16) and `rounds=N` of taking the right back while a kernel
//! uses it (default 5), separated by a comma.
#![no_std]
#![no_main]

mod copies;
mod gpu;
mod mail;
mod owner;
mod user;

use causeway_bare::{Machine, println};
use causeway_guests::{CaseMemory, Required};

use gpu::Way;
use mail::{Token, Who, Word};
use owner::Owner;
use user::User;

causeway_bare::main!(run);

/// GPUs of the owner and of the user, by their places in the VM.
const OWNER: usize = 0;
const USER: usize = 1;

/// What the guest is asked to do.
#[derive(Clone, Copy)]
struct Plan {
    bytes: u64,
    rounds: u32,
}

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let plan = arguments(machine.arguments()).required("the arguments");
    match (machine.vms(), machine.vm()) {
        (1, _) => alone(machine, plan),
        (_, 0) => own(machine, plan),
        (_, 1) => r#use(machine, plan),
        _ => {}
    }
}

/// Both in turn, in one VM.
fn alone(machine: &Machine, plan: Plan) {
    let mut memory = CaseMemory::new(machine);
    let (of_owner, of_user) = (gpu::find(machine, OWNER), gpu::find(machine, USER));
    let way = gpu::way(&of_user, gpu::number(&of_owner));
    let device = gpu::open(&of_owner);
    let space = device.create_space().required("an address space");
    let user = gpu::number(&of_user);
    let mut owner = Owner::new(machine, &device, &space, &mut memory, (plan, user));
    let mut memory = CaseMemory::new(machine);
    let mut user = User::new(machine, &of_user, &mut memory, (plan, way));
    user.is_refused(owner.keep_to_itself());
    user.takes(&owner.show());
    owner.is_unchanged();
    user.gives(&owner.share());
    owner.has_been_written();
    for _ in 0..plan.rounds {
        let token = owner.share();
        user.is_stopped(&token, || owner.takes_back());
    }
    if way == Way::Copies {
        user.touches(&owner.share());
        owner.is_unchanged();
    }
    user.goes_too_far(&owner.show());
    owner.is_well();
    println!("peers: one VM, {} rounds{}", plan.rounds, by(way));
}

/// The owner's part of two VMs.
fn own(machine: &Machine, plan: Plan) {
    let mut memory = CaseMemory::new(machine);
    let transport = gpu::find(machine, OWNER);
    mail::tell_number(Who::Owner, gpu::number(&transport));
    let user = mail::number_of(Who::User);
    let way = gpu::way(&transport, user);
    let device = gpu::open(&transport);
    let space = device.create_space().required("an address space");
    let mut owner = Owner::new(machine, &device, &space, &mut memory, (plan, user));
    mail::send(Token::Own, owner.keep_to_itself());
    mail::send(Token::ReadOnly, owner.show());
    mail::hear(Word::Read);
    owner.is_unchanged();
    mail::send(Token::ReadWrite, owner.share());
    mail::hear(Word::Written);
    owner.has_been_written();
    for round in 1..=plan.rounds {
        mail::send(Token::Round(round), owner.share());
        mail::hear(Word::Counting(round));
        owner.takes_back();
        mail::tell(Word::TakenBack(round));
    }
    if way == Way::Copies {
        mail::send(Token::Touched, owner.share());
        mail::hear(Word::Touched);
        owner.is_unchanged();
    }
    mail::send(Token::Last, owner.show());
    mail::hear(Word::Faulted);
    owner.is_well();
    println!("peers: owner, {} rounds{}", plan.rounds, by(way));
}

/// The user's part of two VMs.
fn r#use(machine: &Machine, plan: Plan) {
    let mut memory = CaseMemory::new(machine);
    let transport = gpu::find_or_only(machine, USER);
    mail::tell_number(Who::User, gpu::number(&transport));
    let way = gpu::way(&transport, mail::number_of(Who::Owner));
    let mut user = User::new(machine, &transport, &mut memory, (plan, way));
    user.is_refused(mail::take(Token::Own));
    user.takes(&mail::take(Token::ReadOnly));
    mail::tell(Word::Read);
    user.gives(&mail::take(Token::ReadWrite));
    mail::tell(Word::Written);
    for round in 1..=plan.rounds {
        user.is_stopped(&mail::take(Token::Round(round)), || {
            mail::tell(Word::Counting(round));
            mail::hear(Word::TakenBack(round));
        });
    }
    if way == Way::Copies {
        user.touches(&mail::take(Token::Touched));
        mail::tell(Word::Touched);
    }
    user.goes_too_far(&mail::take(Token::Last));
    mail::tell(Word::Faulted);
    println!("peers: user, {} rounds{}", plan.rounds, by(way));
}

/// How the memory was reached, for the end.
fn by(way: Way) -> &'static str {
    match way {
        Way::Peer => "",
        Way::Copies => ", by copies",
    }
}

fn arguments(text: &str) -> Option<Plan> {
    let mut plan = Plan {
        bytes: 16 << 20,
        rounds: 5,
    };
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=')?;
        let value: u32 = value.parse().ok().filter(|n| *n != 0)?;
        match key {
            "mib" => plan.bytes = u64::from(value) << 20,
            "rounds" => plan.rounds = value,
            _ => return None,
        }
    }
    Some(plan)
}
