//! Parts of the memory for several guests: each its own, and nothing of what others left.

use causeway_mediator::GuestSession;
use std::sync::Arc;

use causeway_mediator::Quota;
use causeway_mediator::backend::Backend;
use causeway_protocol::message::{MemoryKind, Status};

use crate::rig::{PAGE, Rig, eventually};

const VISIBLE: MemoryKind = MemoryKind::DeviceVisible;

#[test]
fn stores_of_a_guest_reach_the_device_and_no_other_guest() {
    let rig = Rig::new(8 * PAGE);
    let (one, other) = (rig.guest(), rig.guest());
    let views = [&one, &other].map(|guest| {
        let memory = guest.allocate(VISIBLE, 2 * PAGE).unwrap();
        guest.show(memory, 2 * PAGE)
    });
    for view in &views {
        assert!(view.words().all(|word| word == 0), "what was there is gone");
    }
    views[0].store(3, 0x1111);
    views[1].store(3, 0x2222);
    assert_eq!([views[0].load(3), views[1].load(3)], [0x1111, 0x2222]);
    let memory = rig.peek(0, 8 * PAGE);
    let found = |value: u64| {
        let bytes = value.to_le_bytes();
        memory.chunks(8).filter(|word| **word == bytes).count()
    };
    assert_eq!([found(0x1111), found(0x2222)], [1, 1]);
}

#[test]
fn memory_that_guests_do_not_see_comes_from_the_same_place() {
    let rig = Rig::new(4 * PAGE);
    let guest = rig.guest();
    let hidden = guest.allocate(MemoryKind::Device, 3 * PAGE).unwrap();
    let refused = guest.allocate(VISIBLE, 2 * PAGE).unwrap_err();
    assert_eq!(refused.0, Status::NoMemory);
    // Host memory is the host's, and there is more of it.
    guest.allocate(MemoryKind::Host, 16 * PAGE).unwrap();
    guest.free(hidden);
    guest.allocate(VISIBLE, 4 * PAGE).unwrap();
}

#[test]
fn a_session_that_ends_gives_back_what_it_had() {
    let rig = Rig::new(4 * PAGE);
    let guest = rig.guest();
    guest.allocate(VISIBLE, 4 * PAGE).unwrap();
    drop(guest);
    rig.guest().allocate(VISIBLE, 4 * PAGE).unwrap();
}

#[test]
fn quotas_hold_beside_the_size_of_the_device() {
    let rig = Rig::new(8 * PAGE);
    let guest = rig.guest_with(Quota {
        memory_bytes: 2 * PAGE,
        ..Quota::default()
    });
    guest.allocate(VISIBLE, 2 * PAGE).unwrap();
    let refused = guest.allocate(VISIBLE, PAGE).unwrap_err();
    assert_eq!(refused.0, Status::QuotaBytes);
}

#[test]
fn what_guests_had_is_zero_when_the_device_is_given_back() {
    let rig = Rig::new(64 * PAGE);
    let guest = rig.guest();
    for _ in 0..4 {
        let memory = guest.allocate(VISIBLE, 7 * PAGE).unwrap();
        let view = guest.show(memory, 7 * PAGE);
        (0..7 * PAGE / 8).for_each(|index| view.store(index, 0x5ec3_e75e_c3e7_5ec3));
    }
    let (hardware, session) = (Arc::clone(&rig.hardware), Arc::clone(&guest.session));
    // The session ends last: then nobody scrubs for it any more.
    let Rig {
        backend, mediator, ..
    } = rig;
    drop((backend, mediator));
    session.close();
    drop((session, guest));
    let mut memory = vec![0; 64 * PAGE as usize];
    let bar = causeway_host_vfio::RegionIndex::Bar(crate::rig::BAR);
    hardware.peek(bar, 0, &mut memory).unwrap();
    assert!(!memory.contains(&0x5e));
    assert_eq!(hardware.resets(), 1, "and it was reset");
}

/// Guests that come and go, in an order that a seed decides, each of which writes all that it gets.
#[test]
fn nobody_ever_sees_what_another_wrote() {
    const GUESTS: usize = 3;
    let rig = Rig::new(96 * PAGE);
    let seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = seed;
    let mut next = move |below: u64| {
        // xorshift64 (Marsaglia 2003)
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut guests: Vec<_> = (0..GUESTS).map(|_| (rig.guest(), Vec::new())).collect();
    for round in 0..400_u64 {
        let index = next(GUESTS as u64) as usize;
        let (guest, held) = &mut guests[index];
        let mark = 0xa000_0000_0000_0000 | (index as u64) << 32 | round;
        match next(8) {
            0..=3 => {
                let bytes = (1 + next(12)) * PAGE;
                let Ok(memory) = guest.allocate(VISIBLE, bytes) else {
                    continue;
                };
                let view = guest.show(memory, bytes);
                let old = view.words().find(|word| *word != 0);
                assert_eq!(old, None, "seed {seed:#x}, round {round}");
                (0..bytes / 8).for_each(|word| view.store(word, mark));
                held.push((memory, view, mark));
            }
            4..=6 if !held.is_empty() => {
                let (memory, view, mark) = held.swap_remove(next(held.len() as u64) as usize);
                let foreign = view.words().find(|word| *word != mark);
                assert_eq!(foreign, None, "seed {seed:#x}, round {round}");
                drop(view);
                guest.free(memory);
            }
            7 => {
                held.clear();
                guest.session.reset();
                guest.hello();
            }
            _ => {}
        }
    }
    drop(guests);
    eventually("all memory to be free again", || {
        let all = rig.backend.allocate(VISIBLE, 96 * PAGE, Default::default());
        all.is_ok()
    });
}
