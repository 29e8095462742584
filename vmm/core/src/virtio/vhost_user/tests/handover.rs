//! What the process is told: features, guest RAM and queues when a driver begins, and their end.

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use vhost::vhost_user::message::FrontendReq;

use super::scripted::{Answer, CONFIG, MQ, Message, Offer, PROTOCOL, REPLY_ACK, Scripted, USUAL};
use super::*;
use crate::virtio::driver::{RAM_BYTES, RUNNING, wait_for};

const EVENT_INDEX: u64 = 1 << 29;

/// Where a driver has put a queue, and its size: each queue is elsewhere.
fn place(queue: u16) -> (u16, [u64; 3]) {
    let base = 0x10_0000 * (u64::from(queue) + 1);
    (16 << queue, [base, base + 0x2000, base + 0x3000])
}

/// Starts a driver that uses these queues, and returns what the back end is told.
fn begin(back_end: &Scripted, machine: &mut Machine, features: u64, queues: &[u16]) -> Told {
    assert!(machine.negotiate(features | VERSION_1));
    back_end.take();
    for queue in queues {
        let (size, parts) = place(*queue);
        machine.place_queue_of(*queue, size, parts);
    }
    machine.set_status(RUNNING);
    machine.set_status(0);
    Told(back_end.take())
}

/// What a back end is told from a driver's begin to its end, both included.
struct Told(Vec<Message>);

impl Told {
    fn of(&self, request: FrontendReq) -> impl Iterator<Item = &Message> {
        self.0
            .iter()
            .filter(move |message| message.request == request)
    }

    /// Returns the first 32-bit words of the messages of a kind.
    fn queues(&self, request: FrontendReq) -> Vec<u32> {
        self.of(request).map(|message| message.u32(0)).collect()
    }

    fn pairs(&self, request: FrontendReq) -> Vec<[u32; 2]> {
        let pair = |message: &Message| [message.u32(0), message.u32(4)];
        self.of(request).map(pair).collect()
    }
}

#[test]
fn only_queues_that_the_driver_enables_are_handed_over_and_taken_back() {
    let (back_end, mut machine) = Scripted::with_machine(USUAL, 4);
    let told = begin(&back_end, &mut machine, 0, &[3, 1]);
    for request in [
        FrontendReq::SET_VRING_ADDR,
        FrontendReq::SET_VRING_KICK,
        FrontendReq::SET_VRING_CALL,
        FrontendReq::GET_VRING_BASE,
    ] {
        assert_eq!(told.queues(request), [1, 3], "{request:?}");
    }
    let enabled = [[1, 1], [3, 1], [1, 0], [3, 0]];
    assert_eq!(told.pairs(FrontendReq::SET_VRING_ENABLE), enabled);
    assert_eq!(told.pairs(FrontendReq::SET_VRING_BASE), [[1, 0], [3, 0]]);
    let last = told.0.last().unwrap().request;
    assert_eq!(last, FrontendReq::SET_VRING_ENABLE, "nothing after the end");
    assert_eq!(
        begin(&back_end, &mut machine, 0, &[]).0.len(),
        0,
        "no queue, no message"
    );
}

#[test]
fn queues_are_signalled_when_the_process_has_enabled_them() {
    for offer in [
        USUAL,
        Offer {
            protocol: MQ,
            ..USUAL
        },
    ] {
        let (back_end, mut machine) = Scripted::with_machine(offer, 4);
        assert!(machine.negotiate(VERSION_1));
        back_end.take();
        let (size, parts) = place(1);
        machine.place_queue_of(1, size, parts);
        machine.set_status(RUNNING);
        let events = machine.hypervisor.state().events.clone();
        let doorbells: Vec<_> = events.values().copied().collect();
        wait_for("the signal", || signals(doorbells[1]) == 1);
        assert_eq!(signals(doorbells[0]), 0, "nobody has enabled it");
        let told = back_end.take();
        let last = told.last_chunk().unwrap();
        let last = last.each_ref().map(|message: &Message| message.request);
        let [enable, answered] = [FrontendReq::SET_VRING_ENABLE, FrontendReq::GET_FEATURES];
        assert_eq!(last, [enable, answered]);
    }
}

#[test]
fn places_and_sizes_arrive_as_the_driver_chose_them() {
    let (back_end, mut machine) = Scripted::with_machine(USUAL, 4);
    let told = begin(&back_end, &mut machine, 0, &[0, 2]);
    assert_eq!(told.pairs(FrontendReq::SET_VRING_NUM), [[0, 16], [2, 64]]);
    let [table] = &told.of(FrontendReq::SET_MEM_TABLE).collect::<Vec<_>>()[..] else {
        panic!("one message for all RAM")
    };
    // Number of regions and padding; guest-physical address, bytes, address of the front end.
    assert_eq!(
        (table.u32(0), table.u64(8), table.u64(16)),
        (1, 0, RAM_BYTES)
    );
    let base = table.u64(24);
    assert_eq!(table.u64(32), 0, "from the beginning of the file");
    for (address, queue) in told.of(FrontendReq::SET_VRING_ADDR).zip([0, 2]) {
        let (_, [descriptors, driver, device]) = place(queue);
        // Queue and flags; descriptors, device's ring, driver's ring, log.
        let wanted = [descriptors, device, driver].map(|at| base + at);
        assert_eq!([8, 16, 24].map(|at| address.u64(at)), wanted);
        assert_eq!((address.u32(4), address.u64(32)), (0, 0));
    }
}

#[test]
fn the_process_gets_guest_ram_and_the_events_of_the_hypervisor() {
    let (back_end, mut machine) = Scripted::with_machine(USUAL, 2);
    let told = begin(&back_end, &mut machine, 0, &[1]);
    let file = |request| told.of(request).next().unwrap().file.as_ref().unwrap();
    let ram = file(FrontendReq::SET_MEM_TABLE).metadata().unwrap();
    assert_eq!(ram.size(), RAM_BYTES);
    // The event of the second doorbell is signalled without this process.
    let events = machine.hypervisor.state().events.clone();
    let doorbell = *events.values().nth(1).unwrap();
    let kick = file(FrontendReq::SET_VRING_KICK).as_raw_fd();
    assert_eq!(event_id(kick), event_id(doorbell));
}

#[test]
fn a_guest_is_offered_features_of_its_device_and_of_queues_only() {
    for (has, offered) in [
        (u64::MAX, VERSION_1 | EVENT_INDEX | 1 << 28 | FEATURE),
        (VERSION_1 | PROTOCOL, VERSION_1),
        (VERSION_1 | 1 << 4, VERSION_1),
    ] {
        let offer = Offer {
            features: has,
            ..USUAL
        };
        let (_back_end, stream) = Scripted::start(offer, |_| scripted::Answer::Proper);
        // Bits of queues and of the protocol are not the device's, whatever its description says.
        let wide = Description {
            features: FEATURE | 1 << 24 | PROTOCOL | 1 << 33,
            ..description(1, PATIENCE)
        };
        let process = DeviceProcess::connect(stream, wide, Box::new(())).unwrap();
        assert_eq!(machine(process).features(), offered, "{has:#x}");
    }
}

#[test]
fn only_features_that_the_driver_accepts_are_set() {
    for (has, own) in [(USUAL.features, PROTOCOL), (USUAL.features & !PROTOCOL, 0)] {
        let offer = Offer {
            features: has | EVENT_INDEX,
            ..USUAL
        };
        let (back_end, mut machine) = Scripted::with_machine(offer, 1);
        for features in [0, FEATURE, EVENT_INDEX] {
            let told = begin(&back_end, &mut machine, features, &[0]);
            let set: Vec<u64> = told
                .of(FrontendReq::SET_FEATURES)
                .map(|m| m.u64(0))
                .collect();
            assert_eq!(set, [features | VERSION_1 | own]);
            let enables = told.of(FrontendReq::SET_VRING_ENABLE).count();
            assert_eq!(
                enables,
                if own == 0 { 0 } else { 2 },
                "with the protocol's features"
            );
        }
    }
}

#[test]
fn the_process_does_not_learn_of_features_that_it_has_no_part_in() {
    let (back_end, stream) = Scripted::start(USUAL, |_| scripted::Answer::Proper);
    let with_own = Description {
        own_features: OWN_FEATURE,
        ..description(1, PATIENCE)
    };
    let process = DeviceProcess::connect(stream, with_own, Box::new(())).unwrap();
    let mut machine = machine(process);
    assert_eq!(machine.features(), VERSION_1 | FEATURE | OWN_FEATURE);
    let told = begin(&back_end, &mut machine, FEATURE | OWN_FEATURE, &[0]);
    let [set] = &told.of(FrontendReq::SET_FEATURES).collect::<Vec<_>>()[..] else {
        panic!("features are set once")
    };
    assert_eq!(set.u64(0), VERSION_1 | FEATURE | PROTOCOL);
}

#[test]
fn of_the_protocol_only_what_the_front_end_knows_is_chosen() {
    for (has, chosen) in [(u64::MAX, MQ | REPLY_ACK), (REPLY_ACK | 1 << 9, REPLY_ACK)] {
        let offer = Offer {
            protocol: has,
            ..USUAL
        };
        let (back_end, _machine) = Scripted::with_machine(offer, 1);
        back_end.wait_for(FrontendReq::SET_PROTOCOL_FEATURES);
        let told = Told(back_end.take());
        let set: Vec<u64> = told
            .of(FrontendReq::SET_PROTOCOL_FEATURES)
            .map(|message| message.u64(0))
            .collect();
        assert_eq!(set, [chosen]);
    }
}

#[test]
fn a_process_that_is_asked_says_what_the_configuration_contains() {
    let asked = || Description {
        asks_configuration: true,
        ..description(1, Duration::from_secs(1))
    };
    let connect = |protocol, said: &'static [u8]| {
        let offer = Offer { protocol, ..USUAL };
        let (_back_end, stream) = Scripted::start(offer, move |message| match message.request {
            // The offset, the size and flags come first.
            FrontendReq::GET_CONFIG if said.is_empty() => Answer::Reply(vec![0; 12]),
            FrontendReq::GET_CONFIG => Answer::Reply([&message.body[..12], said].concat()),
            _ => Answer::Proper,
        });
        DeviceProcess::connect(stream, asked(), Box::new(()))
    };
    let process = connect(MQ | REPLY_ACK | CONFIG, &[1, 2, 3, 4]).unwrap();
    assert_eq!(process.description.configuration, [1, 2, 3, 4]);
    let refused = connect(MQ | REPLY_ACK, &[1, 2, 3, 4]).unwrap_err();
    assert!(
        matches!(refused, OutsideError::Configuration { .. }),
        "{refused:?}"
    );
    // The crate waits for the rest of an answer that is too short.
    let refused = connect(CONFIG, &[]).unwrap_err().to_string();
    assert!(refused.contains("GET_CONFIG"), "{refused}");
}
