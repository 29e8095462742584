//! Memory between workers.

use causeway_mediator::GuestSession;
use causeway_protocol::message::Status;
use causeway_protocol::registers::status;
use rustix::process::Signal;

use super::rig::{Guest, PAGE, READ, READ_WRITE, eventually, workers};

#[test]
fn an_import_is_the_same_memory_until_it_is_taken_back() {
    let workers = workers();
    let (owner, importer) = (Guest::open(&workers), Guest::open(&workers));
    let memory = owner.memory(PAGE);
    let token = owner.export(memory, READ);
    let denied = importer.import(&token, READ_WRITE);
    assert_eq!(denied, Err((Status::AccessDenied, 0)));
    let import = importer.import(&token, READ).unwrap();
    let own = owner.map_cpu(memory, PAGE, READ_WRITE).unwrap();
    owner.host.map(own).unwrap().write(8, b"across").unwrap();
    let theirs = importer.map_cpu(import, PAGE, READ).unwrap();
    let mut seen = [0; 6];
    let view = importer.host.map(theirs).unwrap();
    view.read(8, &mut seen).unwrap();
    assert_eq!(&seen, b"across");

    assert_eq!(importer.revoke(&token), Err((Status::BadToken, 0)));
    owner.revoke(&token).unwrap();
    assert!(importer.host.placements().is_empty(), "it is still mapped");
    let gone = importer.map_cpu(import, PAGE, READ);
    assert_eq!(gone, Err((Status::Revoked, 0)));
    let late = importer.import(&token, READ);
    assert_eq!(late, Err((Status::BadToken, 0)));
    importer.works();
}

#[test]
fn what_the_owner_closes_loses_or_resets_is_taken_from_importers() {
    let workers = workers();
    let importer = Guest::open(&workers);
    for end in ["close", "reset", "kill"] {
        let owner = Guest::open(&workers);
        let token = owner.export(owner.memory(PAGE), READ);
        let import = importer.import(&token, READ).unwrap();
        importer.map_cpu(import, PAGE, READ).unwrap();
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
        let gone = importer.map_cpu(import, PAGE, READ);
        assert_eq!(gone, Err((Status::Revoked, 0)), "{end}");
    }
}

#[test]
fn an_importer_that_hangs_does_not_keep_what_is_taken_back() {
    let workers = workers();
    let (owner, importer) = (Guest::open(&workers), Guest::open(&workers));
    let token = owner.export(owner.memory(PAGE), READ_WRITE);
    let import = importer.import(&token, READ_WRITE).unwrap();
    importer.map_cpu(import, PAGE, READ_WRITE).unwrap();
    importer.stop();
    owner.revoke(&token).unwrap();
    assert!(importer.host.placements().is_empty());
    assert_eq!(importer.session.status_bits(), status::LOST);
    assert!(
        importer.fault().contains("did not answer"),
        "{}",
        importer.fault()
    );
    importer.session.reset();
    importer.hello();
    importer.works();
    owner.works();
}

#[test]
fn two_that_import_from_each_other_and_themselves_can_end_at_once() {
    let workers = workers();
    let (one, other) = (Guest::open(&workers), Guest::open(&workers));
    for _ in 0..3 {
        for (owner, importer) in [(&one, &other), (&other, &one), (&one, &one)] {
            for _ in 0..4 {
                let token = owner.export(owner.memory(PAGE), READ_WRITE);
                let import = importer.import(&token, READ_WRITE).unwrap();
                importer.map_cpu(import, PAGE, READ_WRITE).unwrap();
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
