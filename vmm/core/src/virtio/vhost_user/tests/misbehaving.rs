//! Processes that are silent, answer rubbish, or lack what the device needs.

use std::io::{Read, Write};
use std::sync::Arc;

use vhost::vhost_user::message::FrontendReq;
use vmm_sys_util::eventfd::EventFd;

use super::scripted::{Answer, MQ, Message, Offer, REPLY_ACK, Scripted, USUAL, reply};
use super::*;
use crate::memory::GuestRam;
use crate::virtio::driver::{
    DESCRIPTORS, DEVICE_RING, DRIVER_RING, NEEDS_RESET, RAM_BYTES, RUNNING,
};
use crate::virtio::outside::{BackEnd as _, Queue};
use crate::virtio::ring::{QUEUE_SIZE, RingPlace};

/// Long enough for the answers that do come, on a busy machine, too.
const SHORT: Duration = Duration::from_secs(1);

/// Checks what happens at each of these messages, all at the same time, because most wait.
fn at_each(messages: &[FrontendReq], check: impl Fn(FrontendReq) + Sync) {
    std::thread::scope(|scope| {
        for at in messages {
            scope.spawn(|| check(*at));
        }
    });
}

fn connect(
    offer: Offer,
    patience: Duration,
    answer: impl FnMut(&Message) -> Answer + Send + 'static,
) -> (Scripted, Result<DeviceProcess, OutsideError>) {
    let (back_end, stream) = Scripted::start(offer, answer);
    let connected = DeviceProcess::connect(stream, description(2, patience), Box::new(()));
    (back_end, connected)
}

/// Returns an answer to one kind of message; the others are answered by the protocol.
fn only(
    request: FrontendReq,
    mut answer: impl FnMut(&Message) -> Answer,
) -> impl FnMut(&Message) -> Answer {
    move |message| match message.request == request {
        true => answer(message),
        false => Answer::Proper,
    }
}

/// Makes the process serve a queue without a driver, and then stop.
fn serve_and_stop(mut process: DeviceProcess) -> Result<(), OutsideError> {
    let ram = Arc::new(GuestRam::new("test", RAM_BYTES, false).unwrap());
    let ram = ram.view().unwrap();
    let event = || EventFd::new(libc::EFD_NONBLOCK).unwrap();
    let queue = Queue {
        number: 1,
        place: RingPlace {
            size: QUEUE_SIZE,
            parts: [DESCRIPTORS, DRIVER_RING, DEVICE_RING],
        },
        kick: event(),
        call: event(),
    };
    process.serve(&[queue], VERSION_1, &ram)?;
    process.stop(&[1])
}

fn assert_silent(error: OutsideError, at: FrontendReq) {
    let OutsideError::Silent { step, limit, .. } = &error else {
        panic!("{error:?} at {at:?}")
    };
    assert_eq!((*step, *limit), (&*format!("{at:?}"), SHORT));
    let text = error.to_string();
    assert!(
        text.contains("the process of the test") && text.contains(*step),
        "{text}"
    );
}

fn assert_protocol(error: OutsideError, at: FrontendReq) {
    let OutsideError::Protocol { step, .. } = error else {
        panic!("{error:?} at {at:?}")
    };
    assert_eq!(step, format!("{at:?}"));
}

/// Messages of the first conversation that have an answer.
const FIRST: [FrontendReq; 3] = [
    FrontendReq::GET_FEATURES,
    FrontendReq::GET_PROTOCOL_FEATURES,
    FrontendReq::GET_QUEUE_NUM,
];

/// Messages at the begin and the end of a driver; each has an answer, by `REPLY_ACK`.
const LATER: [FrontendReq; 9] = [
    FrontendReq::SET_FEATURES,
    FrontendReq::SET_MEM_TABLE,
    FrontendReq::SET_VRING_NUM,
    FrontendReq::SET_VRING_ADDR,
    FrontendReq::SET_VRING_BASE,
    FrontendReq::SET_VRING_CALL,
    FrontendReq::SET_VRING_KICK,
    FrontendReq::SET_VRING_ENABLE,
    FrontendReq::GET_VRING_BASE,
];

#[test]
fn a_process_that_is_silent_at_first_is_given_up_at_its_step() {
    at_each(&FIRST, |at| {
        let (_back_end, connected) = connect(USUAL, SHORT, only(at, |_| Answer::NeverAgain));
        assert_silent(connected.unwrap_err(), at);
    });
    // Nobody ever reads what arrives.
    let (_other, stream) = UnixStream::pair().unwrap();
    let connected = DeviceProcess::connect(stream, description(1, SHORT), Box::new(()));
    assert_silent(connected.unwrap_err(), FrontendReq::GET_FEATURES);
}

#[test]
fn a_process_that_reads_nothing_is_given_up_even_if_no_message_can_be_sent() {
    let (_other, stream) = UnixStream::pair().unwrap();
    stream.set_nonblocking(true).unwrap();
    while (&stream).write(&[0; 4096]).is_ok() {}
    while (&stream).write(&[0]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    let connected = DeviceProcess::connect(stream, description(1, SHORT), Box::new(()));
    assert_silent(connected.unwrap_err(), FrontendReq::SET_OWNER);
}

#[test]
fn a_process_that_is_silent_later_is_given_up_at_its_step() {
    at_each(&LATER, |at| {
        let (_back_end, connected) = connect(USUAL, SHORT, only(at, |_| Answer::NeverAgain));
        assert_silent(serve_and_stop(connected.unwrap()).unwrap_err(), at);
    });
}

#[test]
fn a_reset_does_not_wait_for_ever_for_a_silent_process() {
    at_each(
        &[FrontendReq::SET_FEATURES, FrontendReq::GET_VRING_BASE],
        |at| {
            let (_back_end, connected) = connect(USUAL, SHORT, only(at, |_| Answer::NeverAgain));
            let mut machine = machine(connected.unwrap());
            begin(&mut machine);
            machine.set_status(0);
            assert_eq!(machine.status(), 0);
            begin(&mut machine);
            machine.wait_for_status(RUNNING | NEEDS_RESET);
        },
    );
}

#[test]
fn a_process_that_keeps_the_queues_is_ended_before_the_reset_is_done() {
    let answer = only(FrontendReq::GET_VRING_BASE, |_| Answer::NeverAgain);
    let (_back_end, stream) = Scripted::start(USUAL, answer);
    let (life, over) = Life::new();
    let process = DeviceProcess::connect(stream, description(2, SHORT), life);
    let mut machine = machine(process.unwrap());
    begin(&mut machine);
    assert!(!over.load(Ordering::Acquire));
    machine.set_status(0);
    assert!(over.load(Ordering::Acquire));
}

#[test]
fn an_answer_that_comes_too_late_is_none() {
    let (stream, _other) = UnixStream::pair().unwrap();
    let limit = Duration::from_millis(10);
    let talked = within_limit(&stream, ("the process of the test", limit), |_| {
        // Until the limit has ended the connection.
        let ended = (&stream).read(&mut [0]);
        assert_eq!(ended.unwrap(), 0);
        Ok(())
    });
    assert!(
        matches!(talked, Err(OutsideError::Silent { .. })),
        "{talked:?}"
    );
}

fn begin(machine: &mut Machine) {
    assert!(machine.negotiate(VERSION_1));
    machine.place_queue(QUEUE_SIZE, DESCRIPTORS, DRIVER_RING, DEVICE_RING);
    machine.set_status(RUNNING);
}

#[test]
fn a_process_that_closes_the_connection_is_not_called_silent() {
    for at in FIRST {
        let (_back_end, connected) = connect(USUAL, PATIENCE, only(at, |_| Answer::Leave));
        assert_protocol(connected.unwrap_err(), at);
    }
    for at in LATER {
        let (_back_end, connected) = connect(USUAL, PATIENCE, only(at, |_| Answer::Leave));
        assert_protocol(serve_and_stop(connected.unwrap()).unwrap_err(), at);
    }
}

#[test]
fn answers_that_are_none_are_refused() {
    let rubbish: [fn(&Message) -> Answer; 5] = [
        |_| Answer::Raw(vec![0xff; 64]),
        |_| Answer::Raw(vec![0; 64]),
        // A reply to another message.
        |_| Answer::Raw(reply(FrontendReq::SET_OWNER, &[0; 8])),
        |message| Answer::Raw(reply(message.request, &[0; 3])),
        // A length that no message has.
        |message| Answer::Raw(reply(message.request, &vec![0; 1 << 16])),
    ];
    for answer in rubbish {
        at_each(&FIRST, |at| {
            let (_back_end, connected) = connect(USUAL, SHORT, only(at, answer));
            assert!(connected.is_err(), "{at:?}");
        });
        at_each(&LATER, |at| {
            let (_back_end, connected) = connect(USUAL, SHORT, only(at, answer));
            assert!(serve_and_stop(connected.unwrap()).is_err(), "{at:?}");
        });
    }
}

#[test]
fn a_process_that_refuses_a_message_is_given_up() {
    for at in LATER
        .into_iter()
        .filter(|at| *at != FrontendReq::GET_VRING_BASE)
    {
        let refuse = |_: &Message| Answer::Reply(1u64.to_le_bytes().to_vec());
        let (_back_end, connected) = connect(USUAL, PATIENCE, only(at, refuse));
        assert_protocol(serve_and_stop(connected.unwrap()).unwrap_err(), at);
    }
    let refuse = |_: &Message| Answer::Reply(1u64.to_le_bytes().to_vec());
    let answer = only(FrontendReq::SET_MEM_TABLE, refuse);
    let (_back_end, connected) = connect(USUAL, PATIENCE, answer);
    let mut machine = machine(connected.unwrap());
    begin(&mut machine);
    machine.wait_for_status(RUNNING | NEEDS_RESET);
}

#[test]
fn without_acknowledgements_the_process_is_served_all_the_same() {
    for protocol in [MQ, 0] {
        let offer = Offer { protocol, ..USUAL };
        let (back_end, connected) = connect(offer, PATIENCE, |_| Answer::Proper);
        back_end.take();
        serve_and_stop(connected.unwrap()).unwrap();
        assert!(back_end.take().len() >= 9);
    }
}

#[test]
fn version_1_is_necessary() {
    let offer = Offer {
        features: USUAL.features & !VERSION_1,
        ..USUAL
    };
    let (_back_end, connected) = connect(offer, PATIENCE, |_| Answer::Proper);
    let error = connected.unwrap_err();
    let OutsideError::OldVersion { offered, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(offered, offer.features);
}

#[test]
fn the_process_needs_as_many_queues_as_the_device() {
    for (queues, good) in [(0, false), (1, false), (2, true), (3, true)] {
        let offer = Offer { queues, ..USUAL };
        let (_back_end, connected) = connect(offer, PATIENCE, |_| Answer::Proper);
        match connected {
            Ok(_) => assert!(good, "{queues}"),
            Err(OutsideError::Queues {
                offered,
                queues: needed,
                ..
            }) => {
                assert!(!good && (offered, needed) == (queues, 2));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn a_process_that_speaks_unasked_is_given_up() {
    for first in [true, false] {
        let (back_end, connected) = connect(USUAL, PATIENCE, |_| Answer::Proper);
        let mut machine = machine(connected.unwrap());
        if first {
            back_end.send(&[REPLY_ACK as u8]);
        }
        begin(&mut machine);
        if !first {
            back_end.wait_for(FrontendReq::SET_VRING_ENABLE);
            back_end.send(&reply(FrontendReq::GET_VRING_BASE, &[0; 8]));
        }
        machine.wait_for_status(RUNNING | NEEDS_RESET);
        back_end.wait_for_end();
    }
}
