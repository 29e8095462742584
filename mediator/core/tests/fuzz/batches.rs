//! Control batches.

use std::collections::BTreeSet;

use causeway_mediator::{Client, GuestSession};
use causeway_mediator_testing::Batch;
use causeway_protocol::message::*;

use crate::known::Known;
use crate::random::{Random, mutate};
use crate::requests::{arbitrary, plausible};
use crate::rig::*;
use crate::{MEMORY_BYTES, hostile_rig, inputs};

/// A batch of a few messages, most of them plausible, and what they are.
fn some_batch(random: &mut Random, known: &Known) -> (Vec<Opcode>, Batch) {
    let mut batch = Batch::new();
    let count = 1 + random.below(4);
    let opcodes: Vec<_> = (0..count).map(|_| random.pick(OPCODES)).collect();
    for opcode in &opcodes {
        let body = match random.one_in(8) {
            true => arbitrary(*opcode, random, known),
            false => plausible(*opcode, random, known),
        };
        batch.push(*opcode, &body[..]);
    }
    (opcodes, batch)
}

/// Has another client say it, which has learnt the names of the first. It may be reset at any time,
/// and the first never notices.
fn said_by_another(guest: &Guest, batch: &mut Batch, random: &mut Random) {
    let other = Client::new(1).unwrap();
    let _ = batch.run_as(&guest.session, other);
    if random.one_in(4) {
        guest.session.reset_client(other);
        assert_eq!(guest.session.owners() & other.bit(), 0);
    }
}

#[test]
fn no_batch_panics_or_passes_the_quota() {
    let mut random = Random(1);
    let rig = hostile_rig();
    let guest = &rig.guest;
    // A wait must not make the test sleep.
    guest.session.interrupt();
    let (mut known, mut succeeded) = (Known::default(), BTreeSet::new());
    for _ in 0..inputs() {
        let (opcodes, mut batch) = some_batch(&mut random, &known);
        let mutated = random.one_in(4);
        if mutated {
            mutate(batch.bytes_mut(), &mut random);
        }
        if random.one_in(10) {
            said_by_another(guest, &mut batch, &mut random);
            continue;
        }
        let _ = batch.run(&guest.session);
        for (message, opcode) in opcodes.iter().enumerate() {
            if !mutated && batch.outcome(message).0 == Some(Status::Ok) {
                known.learn(*opcode, &batch, message);
                succeeded.insert(opcode.name());
            }
        }
        assert!(guest.session.report().statistics.memory_used_bytes <= MEMORY_BYTES);
        if random.one_in(500) {
            guest.session.reset();
            guest.hello();
        }
    }
    assert!(rig.backend.peak_bytes() <= MEMORY_BYTES);
    // An interrupted session is busy for ever; all else must have been reached, or this test is
    // blunt.
    assert!(succeeded.len() >= OPCODES.len() - 1, "{succeeded:?}");
    guest.session.close();
    assert_eq!(rig.backend.live(), NOTHING);
    assert!(guest.host.placements().is_empty() && guest.host.doorbells().is_empty());
}
