//! What a worker that its guest has taken over cannot do: show its guest memory of others, or more
//! than its own quota. And what happens to workers when the VMM has no descriptors.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_mediator::host::{Host, RingPlace};
use causeway_mediator::share::TokenBytes;
use causeway_mediator::{GuestSession, Quota};
use causeway_mediator_testing::FakeHost;
use causeway_memory::{Backing, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::registers::status;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use vmm_sys_util::eventfd::EventFd;

use super::puppet::{Act, Outcome, Puppet, workers};
use super::rig::{PAGE, eventually, is_alone};
use crate::socket::Socket;
use crate::wire;

/// Returns guests with puppets, which can share memory.
fn puppets<const COUNT: usize>() -> [Puppet; COUNT] {
    let workers = workers();
    std::array::from_fn(|_| Puppet::open(&workers, Quota::default()))
}

fn is_done(outcome: Outcome) -> bool {
    (outcome.outcome, outcome.errno) == (wire::Outcome::Done as u32, 0)
}

#[track_caller]
fn assert_errno(outcome: Outcome, errno: Errno) {
    let expected = errno.raw_os_error().unsigned_abs();
    assert_eq!(outcome.errno, expected, "{outcome:?}");
}

fn access_at(host: &FakeHost, offset: u64) -> Access {
    host.placements()[&offset].access
}

#[test]
fn what_is_taken_back_is_gone_whatever_the_importers_worker_says() {
    let [owner, importer] = puppets();
    let token = owner.export(2 * PAGE, Access::ReadWrite);
    importer.import(token, Access::ReadWrite);
    let placed = importer.tell(Act::Place, PAGE);
    assert!(is_done(placed) && is_done(importer.tell(Act::Bind, 0)));
    assert_eq!(access_at(&importer.host, placed.value), Access::ReadWrite);
    assert_eq!(importer.host.doorbells(), [0]);
    let published = importer.tell(Act::Publish, PAGE);
    let refused = Status::AccessDenied as u32;
    assert_eq!(published.outcome, refused, "it is another's memory");

    let withdrawn = owner.act(Act::Withdraw, 0, Access::None, token);
    assert_eq!(withdrawn.outcome, Status::Ok as u32);
    assert_eq!(access_at(&importer.host, placed.value), Access::None);
    assert!(importer.host.doorbells().is_empty());
    assert_errno(importer.tell(Act::SetAccess, placed.value), Errno::ACCESS);
    assert_errno(importer.tell(Act::Place, PAGE), Errno::ACCESS);
    assert_errno(importer.tell(Act::Bind, 0), Errno::ACCESS);
    let published = importer.tell(Act::Publish, PAGE);
    assert_ne!(
        published.outcome,
        Status::Ok as u32,
        "it is another's memory"
    );
    assert!(is_done(importer.tell(Act::Remove, placed.value)));
    assert!(
        is_done(owner.tell(Act::Place, PAGE)),
        "it is its own memory"
    );
}

#[test]
fn what_is_taken_back_leaves_an_importer_its_own_memory() {
    let [owner, importer] = puppets();
    let token = owner.export(PAGE, Access::ReadWrite);
    importer.tell(Act::Make, PAGE);
    let own = importer.tell(Act::Place, PAGE);
    importer.import(token, Access::ReadWrite);
    let imported = importer.tell(Act::Place, PAGE);
    assert!(is_done(own) && is_done(imported));
    owner.act(Act::Withdraw, 0, Access::None, token);
    let rights = [own, imported].map(|placed| access_at(&importer.host, placed.value));
    assert_eq!(rights, [Access::ReadWrite, Access::None]);
}

#[test]
fn what_an_owner_that_ends_has_exported_is_gone_and_nobodys() {
    let [owner, importer] = puppets();
    let token = owner.export(2 * PAGE, Access::ReadWrite);
    importer.import(token, Access::ReadWrite);
    let placed = importer.tell(Act::Place, PAGE);
    assert!(is_done(placed) && is_done(importer.tell(Act::Bind, 0)));
    owner.session.close();
    assert_eq!(access_at(&importer.host, placed.value), Access::None);
    assert!(importer.host.doorbells().is_empty());
    assert_errno(importer.tell(Act::SetAccess, placed.value), Errno::ACCESS);
    assert_errno(importer.tell(Act::Place, PAGE), Errno::ACCESS);
    importer.tell(Act::Remove, placed.value);
    assert!(
        is_done(importer.tell(Act::Place, PAGE)),
        "it counts as its own"
    );
}

#[test]
fn memory_is_published_as_what_it_is() {
    let [owner] = puppets();
    owner.export(2 * PAGE, Access::ReadWrite);
    let host = MemoryKind::Host as u32;
    for (made_of, kind) in [
        // Visible to CPUs by the driver of another GPU.
        (MemoryKind::DeviceVisible, MemoryKind::DeviceVisible),
        (MemoryKind::Host, MemoryKind::DeviceVisible),
        // On a GPU, and given out as memory of the host, which all GPUs reach.
        (MemoryKind::Device, MemoryKind::Host),
    ] {
        let mut changed = TokenBytes::default();
        changed[0] = (host ^ made_of as u32) as u8;
        changed[1] = (host ^ kind as u32) as u8;
        let published = owner.act(Act::Publish, PAGE, Access::ReadWrite, changed);
        let refused = Status::BadMemory as u32;
        assert_eq!(published.outcome, refused, "{made_of:?} {kind:?}");
    }
    assert!(is_done(owner.tell(Act::Place, PAGE)));
}

#[test]
fn memory_that_grows_is_refused() {
    let [owner, importer] = puppets();
    let token = owner.export(PAGE, Access::ReadWrite);
    let placed = owner.tell(Act::Place, PAGE);
    importer.import(token, Access::ReadWrite);
    owner.tell(Act::Resize, 3 << 30);
    for puppet in [&owner, &importer] {
        let grown = puppet.tell(Act::Place, 3 << 30);
        assert!(!is_done(grown), "{grown:?}");
        let bound = puppet.tell(Act::Bind, 0);
        assert!(!is_done(bound), "{bound:?}");
    }
    assert_eq!(owner.host.placements().len(), 1);
    assert!(is_done(owner.tell(Act::Remove, placed.value)));
}

#[test]
fn memory_of_another_is_shown_with_no_more_rights_than_an_import_has() {
    let [owner, importer, other] = puppets();
    let token = owner.export(PAGE, Access::Read);
    other.import(token, Access::Read);
    let fetched = importer.act(Act::Fetch, 0, Access::Read, token);
    assert_eq!(fetched.outcome, Status::Ok as u32);
    let place = |access| importer.act(Act::Place, PAGE, access, token);
    assert_errno(place(Access::Read), Errno::ACCESS);
    importer.act(Act::Register, 0, Access::Read, token);
    assert_errno(place(Access::ReadWrite), Errno::ACCESS);
    let placed = place(Access::Read);
    assert!(is_done(placed));
    assert_errno(importer.tell(Act::SetAccess, placed.value), Errno::ACCESS);
    assert_errno(importer.tell(Act::Bind, 0), Errno::ACCESS);
    assert_eq!(access_at(&importer.host, placed.value), Access::Read);
    importer.act(Act::Forget, 7, Access::Read, token);
    let kept = access_at(&importer.host, placed.value);
    assert_eq!(kept, Access::Read, "that is another import");
    importer.act(Act::Forget, 0, Access::Read, token);
    assert_eq!(access_at(&importer.host, placed.value), Access::None);
}

#[test]
fn one_of_two_imports_keeps_the_rights_of_the_other() {
    let [owner, importer] = puppets();
    let wide = owner.export(PAGE, Access::ReadWrite);
    let narrow = owner.act(Act::Publish, PAGE, Access::Read, [0; 32]).token;
    importer.import(wide, Access::ReadWrite);
    importer.import(narrow, Access::Read);
    let placed = importer.tell(Act::Place, PAGE);
    owner.act(Act::Withdraw, 0, Access::None, wide);
    assert_eq!(access_at(&importer.host, placed.value), Access::Read);
}

#[test]
fn what_a_worker_has_not_placed_or_bound_is_not_its_to_change() {
    let puppet = Puppet::open(&workers(), Quota::default());
    let memory = SharedMemory::new("other", PAGE, PageSize::Small).unwrap();
    let backing = Backing::from(Arc::new(memory));
    let placed = puppet.host.place(&backing, 0, PAGE, Access::Read).unwrap();
    let (event, memory) = (EventFd::new(0).unwrap(), backing.host().unwrap().0);
    let ring = RingPlace {
        memory: Arc::clone(memory),
        offset: 0,
    };
    puppet.host.bind_doorbell(5, &event, &ring).unwrap();
    for act in [Act::SetAccess, Act::Remove] {
        let absent = wire::Outcome::Absent as u32;
        assert_eq!(puppet.tell(act, placed).outcome, absent, "{act:?}");
        assert_eq!(access_at(&puppet.host, placed), Access::Read, "{act:?}");
    }
    puppet.tell(Act::Unbind, 5);
    assert_eq!(puppet.host.doorbells(), [5]);
}

#[test]
fn a_worker_shows_no_more_memory_than_its_guest_may_have() {
    let workers = workers();
    let quota = Quota {
        memory_bytes: 16 << 20,
        allocations: 2,
        command_buffers: 1,
        ..Quota::default()
    };
    let puppet = Puppet::open(&workers, quota);
    puppet.tell(Act::Make, 3 << 30);
    assert_errno(puppet.tell(Act::Place, PAGE), Errno::NOMEM);
    assert_errno(puppet.tell(Act::Bind, 0), Errno::NOMEM);
    let published = puppet.tell(Act::Publish, 3 << 30);
    assert_eq!(published.outcome, Status::NoMemory as u32);
    assert!(puppet.host.placements().is_empty());

    puppet.tell(Act::Make, 16 << 20);
    let placed = puppet.tell(Act::Place, 16 << 20);
    assert!(is_done(placed) && is_done(puppet.tell(Act::Place, PAGE)));
    assert!(is_done(puppet.tell(Act::Bind, 0)), "it counts once");
    puppet.tell(Act::Make, PAGE);
    assert_errno(puppet.tell(Act::Place, PAGE), Errno::NOMEM);
    puppet.tell(Act::TakeRam, 0);
    let ram = puppet.tell(Act::Place, PAGE);
    assert!(is_done(ram), "the guest has it already");
    puppet.tell(Act::Remove, ram.value);

    let other = Puppet::open(&workers, Quota::default());
    for count in 0..3 {
        let token = other.export(PAGE, Access::ReadWrite);
        puppet.import(token, Access::ReadWrite);
        let placed = puppet.tell(Act::Place, PAGE);
        match count {
            0 | 1 => assert!(is_done(placed), "bytes of others are not counted"),
            _ => assert_errno(placed, Errno::NOMEM),
        }
    }
}

#[test]
fn what_a_worker_shows_no_longer_counts_no_longer() {
    let workers = workers();
    let quota = Quota {
        memory_bytes: PAGE,
        ..Quota::default()
    };
    let puppet = Puppet::open(&workers, quota);
    for _ in 0..2 {
        puppet.tell(Act::Make, PAGE);
        let placed = puppet.tell(Act::Place, PAGE);
        assert!(is_done(placed), "{placed:?}");
        puppet.tell(Act::Remove, placed.value);
        let token = puppet.export(PAGE, Access::Read);
        puppet.act(Act::Withdraw, 0, Access::None, token);
    }
    for index in 0..2 {
        puppet.tell(Act::Make, PAGE);
        assert!(is_done(puppet.tell(Act::Bind, 0)));
        puppet.tell(Act::Unbind, index);
    }
}

/// Opens descriptors until `free` numbers below `limit` are left.
fn fill(limit: u64, free: usize) -> Vec<File> {
    let mut rlimit = getrlimit(Resource::Nofile);
    rlimit.current = Some(limit);
    setrlimit(Resource::Nofile, rlimit).unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    files.truncate(files.len() - free);
    files
}

#[test]
fn a_vmm_without_descriptors_refuses_memory_and_blames_no_worker() {
    if !is_alone("taken_over::a_vmm_without_descriptors_refuses_memory_and_blames_no_worker") {
        return;
    }
    let workers = workers();
    let puppet = Puppet::open(&workers, Quota::default());
    puppet.tell(Act::Make, PAGE);
    // All at once: threads of a session that ends may close descriptors later.
    let others = [0, 1, 64].map(|free| (free, Puppet::open(&workers, Quota::default())));
    for (free, other) in &others {
        let files = fill(512, *free);
        other.tell(Act::Sleep, 1);
        assert_errno(puppet.tell(Act::Place, PAGE), Errno::MFILE);
        assert_errno(puppet.tell(Act::Bind, 0), Errno::MFILE);
        let published = puppet.tell(Act::Publish, PAGE);
        assert_eq!(published.outcome, Status::NoMemory as u32);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| puppet.tell(Act::Sleep, 20));
            }
        });
        drop(files);
    }
    assert_ne!(puppet.session.status_bits(), status::LOST);
    assert!(is_done(puppet.tell(Act::Place, PAGE)));
}

/// Takes the rights from this thread, and from those that it starts, to exceed limits.
fn give_up_capabilities() {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).unwrap();
}

#[test]
fn a_user_with_too_many_descriptors_under_way_loses_no_worker() {
    if !is_alone("taken_over::a_user_with_too_many_descriptors_under_way_loses_no_worker") {
        return;
    }
    const LIMIT: u64 = 200;
    give_up_capabilities();
    let [owner, importer] = puppets();
    let token = owner.export(PAGE, Access::ReadWrite);
    let mut rlimit = getrlimit(Resource::Nofile);
    rlimit.current = Some(LIMIT);
    setrlimit(Resource::Nofile, rlimit).unwrap();
    let (socket, end) = Socket::pair().unwrap();
    let file = File::open("/dev/null").unwrap();
    // The kernel counts those of all processes of this user.
    let fill = |_| socket.send(wire::Kind::Answer, &[], &[file.as_fd(); 2]);
    let refused = (0..LIMIT).map(fill).find(Result::is_err);
    assert!(refused.is_some_and(|refused| refused.unwrap_err().is_shortage()));
    let fetched = importer.act(Act::Fetch, 0, Access::ReadWrite, token);
    assert_eq!(fetched.outcome, Status::NoMemory as u32);
    drop((socket, end));
    // The kernel may count what is gone a little longer.
    eventually("room for descriptors", || {
        let fetched = importer.act(Act::Fetch, 0, Access::ReadWrite, token);
        fetched.outcome == Status::Ok as u32
    });
    assert_ne!(importer.session.status_bits(), status::LOST);
}
