//! Memory of one GPU and sessions on others: only those that an export names may import it.

mod rig;

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_mediator::backend::Fault;
use causeway_mediator::rights::{GivenRight, HeldRight, RightCount};
use causeway_mediator::{GpuSet, Gpus, GuestSession, Link, Mediator, Quota, Rights};
use causeway_mediator_testing::FakeBackend;
use causeway_protocol::Access;
use causeway_protocol::message::*;
use causeway_protocol::registers::status;
use rig::*;

/// GPUs of the run.
const GPUS: u32 = 3;
/// A GPU that can be no peer of any other.
const ALONE: u32 = 2;

fn seen_by(own: u32) -> Gpus {
    let others = GpuSet::first(GPUS).without(GpuSet::only(own));
    let peers = match own {
        ALONE => GpuSet::default(),
        _ => others.without(GpuSet::only(ALONE)),
    };
    let mut gpus = Gpus {
        own,
        count: GPUS,
        ..Gpus::default()
    };
    for peer in peers.iter() {
        let link = Link {
            has_atomics: own == 0,
            rank: (own == 1).then_some(3),
        };
        gpus.add_peer(peer, link);
    }
    gpus
}

/// Opens a session on each GPU.
fn guests() -> [Guest; GPUS as usize] {
    let first = Mediator::on(FakeBackend::new(), seen_by(0));
    let open = |mediator: &Mediator| Guest::open(mediator, Quota::default());
    [
        open(&first),
        open(&first.beside(FakeBackend::new(), seen_by(1))),
        open(&first.beside(FakeBackend::new(), seen_by(2))),
    ]
}

#[test]
fn each_session_knows_its_gpu_and_its_peers() {
    let numbers = guests().map(|guest| {
        let reply: GpusReply = guest.ask(Opcode::QueryGpus, &Empty {}).unwrap();
        (reply.gpu, reply.gpus, reply.peers, reply.copies)
    });
    let expected = [(0, 3, 0b010, 0b100), (1, 3, 0b001, 0b100), (2, 3, 0, 0b011)];
    assert_eq!(numbers, expected);
    let links = guests().map(|guest| {
        let reply: GpusReply = guest.ask(Opcode::QueryGpus, &Empty {}).unwrap();
        (
            reply.atomics,
            [reply.ranks[0], reply.ranks[1], reply.ranks[63]],
        )
    });
    const NO: u8 = UNKNOWN_RANK;
    assert_eq!(links, [(0b010, [NO; 3]), (0, [3, NO, NO]), (0, [NO; 3])]);
    let alone: GpusReply = Rig::new().guest.ask(Opcode::QueryGpus, &Empty {}).unwrap();
    assert_eq!((alone.gpu, alone.gpus), (0, 1));
    assert_eq!((alone.peers, alone.copies), (0, 0));
}

#[test]
fn what_is_given_and_held_is_told_while_it_stands_and_counted_for_good() {
    let [owner, peer, _] = guests();
    let memory = owner.memory(MemoryKind::Device, PAGE);
    let token = owner.export_to(memory, READ_WRITE, 0b011).unwrap();
    let import = peer.import(&token, READ).unwrap().handle;
    let given = |gpu, imports| GivenRight {
        gpu,
        access: Access::ReadWrite,
        exports: 1,
        bytes: PAGE,
        imports,
    };
    let held = HeldRight {
        gpu: 0,
        access: Access::ReadWrite,
        imports: 1,
        bytes: PAGE,
    };
    assert_eq!(owner.session.rights().given, [given(0, 0), given(1, 1)]);
    assert_eq!(owner.session.rights().held, []);
    assert_eq!(peer.session.rights().held, [held]);
    peer.free(import).unwrap();
    assert_eq!(owner.session.rights().given, [given(0, 0), given(1, 0)]);
    assert_eq!(peer.session.rights(), Rights::default());
    owner.revoke(&token).unwrap();
    assert_eq!(owner.session.rights(), Rights::default());
    let count = |gpu| RightCount {
        gpu,
        access: Access::ReadWrite,
        count: 1,
        bytes: PAGE,
    };
    assert_eq!(owner.session.report().grants.exported, [count(0), count(1)]);
    assert_eq!(peer.session.report().grants.imported, [count(0)]);
}

#[test]
fn without_a_right_no_other_gpu_gets_the_memory() {
    let [owner, peer, _] = guests();
    let memory = owner.memory(MemoryKind::Device, PAGE);
    for gpus in [0, 0b001] {
        let token = owner.export_to(memory, READ_WRITE, gpus).unwrap();
        for access in [READ, READ_WRITE] {
            let refused = peer.import(&token, access).unwrap_err().0;
            assert_eq!(refused, Status::AccessDenied, "for GPUs {gpus:#b}");
        }
    }
}

#[test]
fn an_export_for_a_peer_is_for_no_other_gpu_and_for_no_wider_right() {
    let [owner, peer, alone] = guests();
    let memory = owner.memory(MemoryKind::Device, PAGE);
    let token = owner.export_to(memory, READ, 0b010).unwrap();
    let import = peer.import(&token, READ).unwrap();
    assert_eq!((import.size, import.access), (PAGE, READ));
    let denied = Some((Status::AccessDenied, 0));
    assert_eq!(peer.import(&token, READ_WRITE).err(), denied);
    assert_eq!(alone.import(&token, READ).err(), denied);
    // Nor is it for the owner's own GPU, which it does not name.
    assert_eq!(owner.import(&token, READ).err(), denied);
}

#[test]
fn an_export_to_a_gpu_that_there_is_not_is_refused_with_its_number() {
    let [owner, ..] = guests();
    let memory = owner.memory(MemoryKind::Device, PAGE);
    for (gpus, absent) in [(0b1110, GPUS), (0b011 | 1 << 63, 63)] {
        let refused = owner.export_to(memory, READ, gpus).unwrap_err();
        assert_eq!(refused, (Status::BadGpu, absent));
    }
    // Refused exports leave nothing behind.
    assert_eq!(owner.export(memory, READ).map(drop), Ok(()));
}

/// Imports memory of kind `kind` of `owner` on the GPU of `user`, and says whether more than copies
/// reach it there.
fn is_reached(owner: &Guest, user: &Guest, kind: MemoryKind, gpus: u64) -> bool {
    let memory = owner.memory(kind, PAGE);
    let token = owner.export_to(memory, READ, gpus).unwrap();
    let import = user.import(&token, READ).unwrap().handle;
    let space = user.space();
    let address = user.map_gpu(space, import, PAGE, READ).unwrap();
    let wait = Wait {
        space,
        reserved: 0,
        address,
        value: 0,
        timeout_ns: 0,
    };
    match user.ask::<_, Empty>(Opcode::Wait, &wait) {
        Ok(_) => true,
        Err((Status::BadRange, _)) => false,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn memory_of_a_gpu_that_cannot_be_a_peer_is_for_copies_only() {
    let [owner, peer, alone] = guests();
    assert!(is_reached(&owner, &peer, MemoryKind::Device, 0b010));
    assert!(is_reached(&owner, &owner, MemoryKind::Device, 0));
    assert!(!is_reached(&owner, &alone, MemoryKind::Device, 0b110));
    assert!(!is_reached(&alone, &peer, MemoryKind::Device, 0b011));
    // Every GPU reaches memory of the host.
    assert!(is_reached(&owner, &alone, MemoryKind::Host, 0b100));
}

#[test]
fn a_right_that_is_taken_back_ends_the_mappings_on_the_other_gpu() {
    let [owner, peer, _] = guests();
    let memory = owner.memory(MemoryKind::Device, PAGE);
    let token = owner.export_to(memory, READ_WRITE, 0b010).unwrap();
    let import = peer.import(&token, READ_WRITE).unwrap().handle;
    let space = peer.space();
    let mapped = peer.map_gpu(space, import, PAGE, READ_WRITE).unwrap();
    assert_eq!(peer.revoke(&token).unwrap_err().0, Status::BadToken);
    owner.revoke(&token).unwrap();
    let gone = peer.set_access(space, mapped, READ).unwrap_err().0;
    assert_eq!(gone, Status::BadRange);
    let again = peer.map_gpu(space, import, PAGE, READ).unwrap_err().0;
    assert_eq!(again, Status::Revoked);
    assert_eq!(peer.import(&token, READ).unwrap_err().0, Status::BadToken);
}

#[test]
fn memory_that_cpus_can_access_is_for_its_own_gpu_only() {
    let [owner, ..] = guests();
    let memory = owner.memory(MemoryKind::DeviceVisible, PAGE);
    for gpus in [0b010, 0b011] {
        let refused = owner.export_to(memory, READ, gpus).unwrap_err().0;
        assert_eq!(refused, Status::BadMemory, "for GPUs {gpus:#b}");
    }
    assert!(owner.export(memory, READ).is_ok());
}

/// How long a revocation takes at least that waits for work which does not end.
const PATIENCE: Duration = Duration::from_millis(200);

/// An owner, the token of its memory, and a session on another GPU that has mapped an import of it.
/// Work of that session goes on using what is unmapped.
fn used_by_work() -> (Arc<FakeBackend>, Guest, Token, Guest, u32) {
    let first = Mediator::on(FakeBackend::new(), seen_by(0));
    let backend = FakeBackend::new();
    let peer = first.beside(Arc::clone(&backend) as _, seen_by(1));
    let open = |mediator: &Mediator| Guest::open(mediator, Quota::default());
    let (owner, peer) = (open(&first), open(&peer));
    let memory = owner.memory(MemoryKind::Device, PAGE);
    let token = owner.export_to(memory, READ_WRITE, 0b010).unwrap();
    let import = peer.import(&token, READ_WRITE).unwrap().handle;
    peer.map_gpu(peer.space(), import, PAGE, READ_WRITE)
        .unwrap();
    backend.use_unmapped(true);
    (backend, owner, token, peer, import)
}

/// Revokes `token`, and checks that this waits until the session `peer` has lost its device.
fn assert_revocation_waits(backend: &FakeBackend, owner: &Guest, token: &Token) {
    let waited = std::thread::scope(|scope| {
        // The work ends when it is asked to.
        scope.spawn(|| {
            std::thread::sleep(2 * PATIENCE);
            backend.use_unmapped(false);
        });
        let begun = Instant::now();
        owner.revoke(token).unwrap();
        begun.elapsed()
    });
    assert!(waited >= PATIENCE, "it waited {waited:?}");
}

#[test]
fn work_that_goes_on_with_what_is_taken_back_loses_its_device_and_no_other() {
    let (backend, owner, token, peer, _) = used_by_work();
    assert_revocation_waits(&backend, &owner, &token);
    assert_eq!(peer.session.status_bits(), status::LOST);
    assert_eq!(owner.session.status_bits(), status::READY);
    assert_eq!(peer.session.report().statistics.faults, 1);
}

#[test]
fn work_that_goes_on_with_an_import_that_was_freed_is_waited_for() {
    let (backend, owner, token, peer, import) = used_by_work();
    peer.free(import).unwrap();
    assert_revocation_waits(&backend, &owner, &token);
    assert_eq!(peer.session.status_bits(), status::LOST);
}

#[test]
fn work_that_goes_on_after_a_reset_is_waited_for() {
    let (backend, owner, token, peer, _) = used_by_work();
    peer.session.reset();
    assert_revocation_waits(&backend, &owner, &token);
    // The next generation has nothing to do with it.
    assert_eq!(peer.session.status_bits(), status::READY);
}

#[test]
fn work_that_ends_soon_costs_nobody_the_device() {
    let (backend, owner, token, peer, _) = used_by_work();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            backend.use_unmapped(false);
        });
        owner.revoke(&token).unwrap();
    });
    assert_eq!(peer.session.status_bits(), status::READY);
}

/// Mediators of two GPUs of which the first is `backend`.
fn pair(backend: &Arc<FakeBackend>) -> [Arc<Mediator>; 2] {
    let first = Mediator::on(Arc::clone(backend) as _, seen_by(0));
    let second = first.beside(FakeBackend::new(), seen_by(1));
    [first, second]
}

/// Exports memory of `owner` to all GPUs that can be peers, and maps an import of it in `peer`.
/// Returns the token, the import, and the address space that it is mapped in.
fn shared(owner: &Guest, peer: &Guest) -> (Token, u32, u32) {
    let memory = owner.memory(MemoryKind::Device, PAGE);
    let token = owner.export_to(memory, READ_WRITE, 0b011).unwrap();
    let import = peer.import(&token, READ_WRITE).unwrap().handle;
    let space = peer.space();
    peer.map_gpu(space, import, PAGE, READ_WRITE).unwrap();
    (token, import, space)
}

#[test]
fn a_gpu_that_fails_takes_its_memory_from_the_other_and_nothing_else() {
    let backend = FakeBackend::new();
    let mediators = pair(&backend);
    let [owner, peer] = mediators
        .each_ref()
        .map(|on| Guest::open(on, Quota::default()));
    let (_, import, space) = shared(&owner, &peer);
    shared(&peer, &owner);
    backend.lose(&Fault::new(Status::DeviceLost, "the GPU is gone"));
    assert_eq!(owner.session.status_bits(), status::LOST);
    assert_eq!(peer.session.status_bits(), status::READY);
    let gone = peer.map_gpu(space, import, PAGE, READ).unwrap_err().0;
    assert_eq!(gone, Status::Revoked);
    // After a reset both can share memory again.
    owner.session.reset();
    owner.hello();
    shared(&peer, &owner);
    shared(&owner, &peer);
}

#[test]
fn two_that_take_rights_from_each_other_at_once_both_succeed() {
    let mediators = pair(&FakeBackend::new());
    let [one, other] = mediators
        .each_ref()
        .map(|on| Guest::open(on, Quota::default()));
    for _ in 0..50 {
        let (to_other, import, space) = shared(&one, &other);
        let (to_one, back, own_space) = shared(&other, &one);
        std::thread::scope(|scope| {
            scope.spawn(|| one.revoke(&to_other).unwrap());
            scope.spawn(|| other.revoke(&to_one).unwrap());
        });
        let gone = other.map_gpu(space, import, PAGE, READ).unwrap_err().0;
        assert_eq!(gone, Status::Revoked);
        let gone = one.map_gpu(own_space, back, PAGE, READ).unwrap_err().0;
        assert_eq!(gone, Status::Revoked);
        one.free(back).unwrap();
        other.free(import).unwrap();
    }
    for guest in [&one, &other] {
        assert_eq!(guest.session.status_bits(), status::READY);
    }
}

#[test]
fn sessions_on_several_gpus_have_different_numbers() {
    let ids = guests().map(|guest| guest.session.id());
    assert_eq!(ids, [1, 2, 3]);
}
