//! Messages and batches of them: what is well formed, and what is carried out.

use causeway_mediator::{Client, GuestSession, Quota};
use causeway_mediator_testing::{Batch, ask};
use causeway_protocol::message::*;

use crate::rig::*;

#[test]
fn nothing_but_hello_comes_first_and_another_major_version_is_refused() {
    let rig = Rig::new();
    let guest = &rig.guest;
    guest.session.reset();
    assert_eq!(guest.try_space(), Err((Status::NoHello, 0)));
    let hello = Hello {
        major: 9,
        ..Hello::default()
    };
    let refused = ask::<_, HelloReply>(&guest.session, Opcode::Hello, &hello);
    assert_eq!(refused.unwrap_err(), (Status::BadVersion, 1 << 16 | 5));
    let reply = guest.hello();
    assert_eq!((reply.major, reply.minor), (1, 5));
    assert_eq!(reply.session, guest.session.id());
    let older = Hello {
        major: 1,
        minor: 1,
        ..Hello::default()
    };
    let reply: HelloReply = ask(&guest.session, Opcode::Hello, &older).unwrap();
    assert_eq!((reply.major, reply.minor), (1, 1));
    assert!(guest.try_space().is_ok());
}

#[test]
fn allocate_and_map_is_one_batch_and_the_first_failure_ends_it() {
    let rig = Rig::new();
    let space = rig.guest.space();
    let mut batch = Batch::new();
    batch.push(
        Opcode::Allocate,
        &Allocate {
            size: 5000,
            kind: 2,
            flags: 0,
        },
    );
    batch.push(
        Opcode::MapGpu,
        &MapGpu {
            space,
            allocation: PREVIOUS,
            length: 2 * PAGE,
            access: 3,
            ..MapGpu::default()
        },
    );
    batch.push(
        Opcode::MapCpu,
        &MapCpu {
            allocation: PREVIOUS,
            length: PAGE,
            access: 1,
            offset: PAGE,
        },
    );
    batch.push(
        Opcode::Free,
        &HandleRequest {
            handle: 77,
            reserved: 0,
        },
    );
    batch.push(Opcode::CreateSpace, &Empty {});
    assert_eq!(batch.run(&rig.guest.session), Status::Ok);
    let allocated: AllocateReply = batch.reply(0).unwrap();
    assert_eq!((allocated.size, allocated.access), (2 * PAGE, READ_WRITE));
    for message in 0..3 {
        assert_eq!(batch.outcome(message), (Some(Status::Ok), 0));
    }
    assert_eq!(batch.outcome(3), (Some(Status::BadHandle), 77));
    assert_eq!(batch.outcome(4), (Some(Status::NotRun), 3));
    assert_eq!(rig.backend.live().spaces, 1);
    assert_eq!(rig.guest.host.placements().len(), 1);
}

#[test]
fn previous_without_a_previous_is_a_bad_handle() {
    let rig = Rig::new();
    assert_eq!(rig.guest.free(PREVIOUS), Err((Status::BadHandle, PREVIOUS)));
}

#[test]
fn messages_that_are_not_well_formed_are_refused_with_the_detail_promised() {
    let rig = Rig::new();
    let spoilt = |at: usize, value: u8| {
        let mut batch = Batch::new();
        batch.push(Opcode::CreateSpace, &Empty {});
        batch.push(Opcode::CreateSpace, &Empty {});
        batch.bytes_mut()[at] = value;
        assert_eq!(batch.run(&rig.guest.session), Status::Ok);
        (batch.outcome(0), batch.outcome(1).0)
    };
    let not_run = Some(Status::NotRun);
    assert_eq!(spoilt(1, 200), ((Some(Status::BadOpcode), 0), not_run));
    assert_eq!(spoilt(2, 1), ((Some(Status::ReservedNotZero), 2), not_run));
    assert_eq!(
        spoilt(13, 1),
        ((Some(Status::ReservedNotZero), 13), not_run)
    );
    assert_eq!(
        spoilt(20, 1),
        ((Some(Status::ReservedNotZero), 20), not_run)
    );
    let wrong_length = (Some(Status::BadLength), 24);
    assert_eq!(spoilt(4, 16).0, wrong_length);
    assert_eq!(
        spoilt(4, 0),
        (wrong_length, Some(Status::Ok)),
        "cannot be framed: left alone"
    );
    assert_eq!(
        rig.guest.session.execute(Client::FIRST, &mut []),
        Status::BadLength
    );
    assert_eq!(
        rig.guest.session.execute(Client::FIRST, &mut [0; 17]),
        Status::BadLength
    );
    assert_eq!(
        rig.guest
            .session
            .execute(Client::FIRST, &mut vec![0; 65544]),
        Status::BadLength
    );
}

#[test]
fn a_halted_session_executes_no_message_any_more() {
    let rig = Rig::new();
    rig.guest.session.halt();
    let mut batch = Batch::new();
    batch.push(Opcode::CreateSpace, &Empty {});
    batch.push(Opcode::CreateSpace, &Empty {});
    assert_eq!(batch.run(&rig.guest.session), Status::Ok);
    for message in 0..2 {
        assert_eq!(batch.outcome(message), (Some(Status::NotRun), 0));
    }
    assert_eq!(rig.backend.live().spaces, 0);
}

#[test]
fn messages_beyond_the_limit_wait_and_a_halt_ends_the_wait() {
    let quota = Quota {
        requests: 1,
        ..Quota::default()
    };
    let session = &Rig::with_quota(quota).guest.session;
    let waits = || session.activity().unwrap().statistics.request_waits;
    assert_eq!(waits(), 0, "the first came in time");
    let mut batch = Batch::new();
    for _ in 0..10 {
        batch.push(Opcode::QueryDevice, &Empty {});
    }
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(batch.run(session), Status::Ok));
        while waits() == 0 {
            std::thread::yield_now();
        }
        session.halt();
    });
    assert_eq!(batch.outcome(9).0, Some(Status::NotRun), "nine seconds");
}
