//! Memory between workers.

use causeway_mediator::rights::{GivenRight, HeldRight, RightCount};
use causeway_mediator::{GuestSession, Quota, Rights};
use causeway_mediator_testing::ask;
use causeway_protocol::Access;
use causeway_protocol::message::{Export, Opcode, Status, Token};
use causeway_protocol::registers::status;
use rustix::process::{Signal, test_kill_process};

use super::rig::{Guest, PAGE, READ, READ_WRITE, eventually, program, workers};
use crate::Workers;

#[test]
fn an_import_is_the_same_memory_until_it_is_taken_back() {
    let workers = workers();
    let (owner, importer) = (Guest::open(&workers), Guest::open(&workers));
    let memory = owner.page();
    let token = owner.export(memory, READ).unwrap();
    let denied = importer.import(&token, READ_WRITE);
    assert_eq!(denied, Err((Status::AccessDenied, 0)));
    let import = importer.import(&token, READ).unwrap().handle;
    let own = owner.map_cpu(memory, 0, PAGE, READ_WRITE).unwrap();
    owner.host.map(own).unwrap().write(8, b"across").unwrap();
    let theirs = importer.map_cpu(import, 0, PAGE, READ).unwrap();
    let mut seen = [0; 6];
    let view = importer.host.map(theirs).unwrap();
    view.read(8, &mut seen).unwrap();
    assert_eq!(&seen, b"across");

    assert_eq!(importer.revoke(&token), Err((Status::BadToken, 0)));
    let given = GivenRight {
        gpu: 0,
        access: Access::Read,
        exports: 1,
        bytes: PAGE,
        imports: 1,
    };
    let held = HeldRight {
        gpu: 0,
        access: Access::Read,
        imports: 1,
        bytes: PAGE,
    };
    assert_eq!(owner.session.rights().given, [given]);
    assert_eq!(importer.session.rights().held, [held]);
    owner.revoke(&token).unwrap();
    for guest in [&owner, &importer] {
        assert_eq!(guest.session.rights(), Rights::default());
    }
    assert!(importer.host.placements().is_empty(), "it is still mapped");
    let gone = importer.map_cpu(import, 0, PAGE, READ);
    assert_eq!(gone, Err((Status::Revoked, 0)));
    let late = importer.import(&token, READ);
    assert_eq!(late, Err((Status::BadToken, 0)));
    importer.works();
    let count = RightCount {
        gpu: 0,
        access: Access::Read,
        count: 1,
        bytes: PAGE,
    };
    // Counted also after another worker has taken the place of the first.
    for guest in [&owner, &importer] {
        guest.signal(Signal::KILL);
        let is_lost = || guest.session.status_bits() == status::LOST;
        eventually("loss", is_lost);
        guest.session.reset();
    }
    assert_eq!(owner.session.report().grants.exported, [count]);
    assert_eq!(importer.session.report().grants.imported, [count]);
}

#[test]
fn what_the_owner_closes_loses_or_resets_is_taken_from_importers() {
    let workers = workers();
    let importer = Guest::open(&workers);
    for end in ["close", "reset", "kill"] {
        let owner = Guest::open(&workers);
        let token = owner.export(owner.page(), READ).unwrap();
        let import = importer.import(&token, READ).unwrap().handle;
        importer.map_cpu(import, 0, PAGE, READ).unwrap();
        match end {
            "close" => owner.session.close(),
            "reset" => owner.session.reset(),
            _ => {
                owner.signal(Signal::KILL);
                eventually("loss", || owner.session.status_bits() == status::LOST);
                owner.session.reset();
            }
        }
        assert!(importer.host.placements().is_empty(), "{end}");
        let gone = importer.map_cpu(import, 0, PAGE, READ);
        assert_eq!(gone, Err((Status::Revoked, 0)), "{end}");
    }
}

#[test]
fn an_importer_that_hangs_does_not_keep_what_is_taken_back() {
    let workers = workers();
    let (owner, importer) = (Guest::open(&workers), Guest::open(&workers));
    let token = owner.export(owner.page(), READ_WRITE).unwrap();
    let import = importer.import(&token, READ_WRITE).unwrap().handle;
    importer.map_cpu(import, 0, PAGE, READ_WRITE).unwrap();
    importer.stop();
    owner.revoke(&token).unwrap();
    assert!(importer.host.placements().is_empty());
    assert_eq!(importer.session.status_bits(), status::LOST);
    assert!(
        importer.fault().1.contains("did not answer"),
        "{}",
        importer.fault().1
    );
    importer.session.reset();
    importer.hello();
    importer.works();
    owner.works();
}

#[test]
fn work_that_does_not_let_go_of_what_is_taken_back_ends_with_its_worker() {
    let workers = Workers::new(&program("rig::worker_process", "keeper"), None).unwrap();
    let (owner, importer) = (Guest::open(&workers), Guest::open(&workers));
    let token = owner.export(owner.page(), READ_WRITE).unwrap();
    importer.import(&token, READ_WRITE).unwrap();
    let worker = importer.pid();
    owner.revoke(&token).unwrap();
    assert!(
        test_kill_process(worker).is_err(),
        "it still has the memory"
    );
    assert_eq!(importer.session.status_bits(), status::LOST);
    importer.session.reset();
    importer.hello();
    importer.works();
    owner.works();
}

#[test]
fn exports_are_bounded_by_what_a_guest_may_allocate() {
    let workers = workers();
    let guest = Guest::open(&workers);
    let memory = guest.page();
    let most = Quota::default().allocations;
    for _ in 0..most {
        guest.export(memory, READ).unwrap();
    }
    let request = Export {
        allocation: memory,
        access: READ,
        gpus: 0,
    };
    let refused = ask::<_, Token>(&guest.session, Opcode::Export, &request);
    assert_eq!(refused.err(), Some((Status::QuotaObjects, 0)));
}

#[test]
fn two_that_import_from_each_other_and_themselves_can_end_at_once() {
    let workers = workers();
    let (one, other) = (Guest::open(&workers), Guest::open(&workers));
    for _ in 0..3 {
        for (owner, importer) in [(&one, &other), (&other, &one), (&one, &one)] {
            for _ in 0..4 {
                let token = owner.export(owner.page(), READ_WRITE).unwrap();
                let import = importer.import(&token, READ_WRITE).unwrap().handle;
                importer.map_cpu(import, 0, PAGE, READ_WRITE).unwrap();
            }
        }
        std::thread::scope(|scope| {
            scope.spawn(|| one.session.reset());
            scope.spawn(|| other.session.reset());
        });
        for guest in [&one, &other] {
            assert!(guest.host.placements().is_empty());
            let report = guest.session.report();
            assert_eq!(
                report.worker.unwrap().restarts,
                0,
                "somebody waited too long"
            );
            guest.hello();
        }
    }
}
