//! Queues as a driver writes them, and as an attacker does.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::memory::{GuestRam, RamView};
use crate::virtio::chain::Segments;
use crate::virtio::driver::{
    DATA, DESCRIPTORS, DEVICE_RING, DRIVER_RING, Descriptor, INDIRECT, NEXT, RAM_BYTES, WRITE,
    write_descriptor,
};

const PLACE: RingPlace = RingPlace {
    size: 8,
    parts: [DESCRIPTORS, DRIVER_RING, DEVICE_RING],
};
/// Where an indirect table is.
const TABLE: u64 = 0x18000;

fn ram() -> RamView {
    let ram = Arc::new(GuestRam::new("test", RAM_BYTES, false).unwrap());
    ram.view().unwrap()
}

/// What becomes of the chain that begins with descriptor 0 of a table, with another table for
/// indirect ones.
fn pop(table: &[Descriptor], indirect: &[Descriptor]) -> Result<Option<Chain>, RingError> {
    let ram = ram();
    for (index, descriptor) in (0..).zip(table) {
        write_descriptor(&ram, DESCRIPTORS, index, *descriptor);
    }
    for (index, descriptor) in (0..).zip(indirect) {
        write_descriptor(&ram, TABLE, index, *descriptor);
    }
    let index = GuestAddress(DRIVER_RING + 2);
    ram.memory().write_obj(1u16, index).unwrap();
    Ring::new(&PLACE, false, ram.memory())
        .unwrap()
        .pop(ram.memory())
}

fn chain_error(table: &[Descriptor], indirect: &[Descriptor]) -> ChainError {
    match pop(table, indirect) {
        Err(RingError::Chain { head: 0, source }) => source,
        other => panic!("{other:?}"),
    }
}

fn segments(list: &[(u64, u32)]) -> Segments {
    list.iter().copied().collect()
}

#[test]
fn a_chain_is_its_readable_and_its_writable_part() {
    let table = [
        (DATA, 16, NEXT, 2),
        (DATA + 0x2000, 512, NEXT | WRITE, 3),
        (DATA + 0x1000, 0, NEXT, 1),
        (DATA + 0x3000, 1, WRITE, 0),
    ];
    let chain = pop(&table, &[]).unwrap().unwrap();
    assert_eq!(chain.head, 0);
    assert_eq!(chain.readable, segments(&[(DATA, 16)]));
    let writable = [(DATA + 0x2000, 512), (DATA + 0x3000, 1)];
    assert_eq!(chain.writable, segments(&writable));
}

#[test]
fn an_indirect_table_is_followed() {
    let table = [(TABLE, 32, INDIRECT, 0)];
    let indirect = [(DATA, 16, NEXT, 1), (DATA + 0x1000, 4, WRITE, 0)];
    let chain = pop(&table, &indirect).unwrap().unwrap();
    assert_eq!(chain.readable, segments(&[(DATA, 16)]));
    assert_eq!(chain.writable, segments(&[(DATA + 0x1000, 4)]));
}

#[test]
fn chains_that_do_not_end_are_found_out() {
    let good = (DATA, 16, NEXT, 1);
    for (what, table, indirect) in [
        ("a loop", vec![good, (DATA, 16, NEXT, 0)], vec![]),
        ("itself", vec![(DATA, 16, NEXT, 0)], vec![]),
        ("outside", vec![(DATA, 16, NEXT, 8)], vec![]),
        ("far outside", vec![good, (DATA, 16, NEXT, 0xffff)], vec![]),
        (
            "an indirect loop",
            vec![(TABLE, 32, INDIRECT, 0)],
            vec![good, (DATA, 1, NEXT, 0)],
        ),
        (
            "nested tables",
            vec![(TABLE, 16, INDIRECT, 0)],
            vec![(TABLE, 16, INDIRECT, 0)],
        ),
        ("no table", vec![(TABLE, 0, INDIRECT, 0)], vec![]),
        (
            "half a descriptor",
            vec![(TABLE, 24, INDIRECT, 0)],
            vec![good],
        ),
        (
            "a table too large",
            vec![(TABLE, 16 << 16, INDIRECT, 0)],
            vec![good],
        ),
        (
            "a table beyond RAM",
            vec![(RAM_BYTES, 32, INDIRECT, 0)],
            vec![],
        ),
        (
            "a table at the end",
            vec![good, (u64::MAX - 7, 32, INDIRECT, 0)],
            vec![],
        ),
    ] {
        let error = chain_error(&table, &indirect);
        assert!(
            matches!(error, ChainError::Endless { .. }),
            "{what}: {error}"
        );
    }
}

#[test]
fn a_head_outside_the_table_is_found_out() {
    let ram = ram();
    ram.memory()
        .write_obj([0u16, 1, 8], GuestAddress(DRIVER_RING))
        .unwrap();
    let mut ring = Ring::new(&PLACE, false, ram.memory()).unwrap();
    let error = ring.pop(ram.memory()).unwrap_err();
    assert!(matches!(error, RingError::Chain { head: 8, .. }), "{error}");
}

#[test]
fn an_index_too_far_ahead_is_found_out() {
    let ram = ram();
    for (index, good) in [(0u16, true), (8, true), (9, false), (u16::MAX, false)] {
        let at = GuestAddress(DRIVER_RING + 2);
        ram.memory().write_obj(index, at).unwrap();
        write_descriptor(&ram, DESCRIPTORS, 0, (DATA, 1, 0, 0));
        let mut ring = Ring::new(&PLACE, false, ram.memory()).unwrap();
        assert_eq!(ring.pop(ram.memory()).is_ok(), good, "{index}");
    }
}

#[test]
fn order_length_and_addresses_are_checked() {
    let order = [(DATA, 1, NEXT | WRITE, 1), (DATA, 1, 0, 0)];
    assert_eq!(chain_error(&order, &[]), ChainError::Order { position: 1 });
    for (address, bytes) in [
        (RAM_BYTES - 1, 2),
        (RAM_BYTES, 1),
        (0, u32::MAX),
        (u64::MAX, 1),
        (u64::MAX - 7, 8),
    ] {
        let error = chain_error(&[(address, bytes, 0, 0)], &[]);
        assert_eq!(error, ChainError::NotRam { address, bytes });
    }
    let table = [(TABLE, 200 * 16, INDIRECT, 0)];
    let long = |count: u16| -> Vec<Descriptor> {
        let each = (0..count).map(|i| (DATA, 1, if i + 1 < count { NEXT } else { 0 }, i + 1));
        each.collect()
    };
    assert_eq!(chain_error(&table, &long(129)), ChainError::TooLong);
    let chain = pop(&table, &long(128)).unwrap().unwrap();
    assert_eq!(chain.readable.bytes(), 128);
}

#[test]
fn silence_and_listening_are_told_to_the_driver() {
    let ram = ram();
    let mut ring = Ring::new(&PLACE, false, ram.memory()).unwrap();
    let flags = || {
        ram.memory()
            .read_obj::<u16>(GuestAddress(DEVICE_RING))
            .unwrap()
    };
    ring.silence(ram.memory()).unwrap();
    assert_eq!(flags(), 1);
    assert!(!ring.listen(ram.memory()).unwrap());
    assert_eq!(flags(), 0);
    ram.memory()
        .write_obj(1u16, GuestAddress(DRIVER_RING + 2))
        .unwrap();
    assert!(ring.listen(ram.memory()).unwrap(), "one came in before");
}

fn descriptor() -> impl Strategy<Value = Descriptor> {
    let address = prop_oneof![
        4 => (0u64..8).prop_map(|n| DATA + n * 0x1000),
        1 => Just(TABLE),
        1 => Just(DESCRIPTORS),
        1 => any::<u64>(),
    ];
    let length = prop_oneof![4 => 0u32..64, 1 => (0u32..5).prop_map(|n| n * 16), 1 => any::<u32>()];
    (
        address,
        length,
        0u16..8,
        prop_oneof![8 => 0u16..9, 1 => any::<u16>()],
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever is in the tables: what is accepted lies in RAM and is bounded, and each pass ends.
    #[test]
    fn what_is_accepted_lies_in_ram(
        table in prop::collection::vec(descriptor(), 8),
        indirect in prop::collection::vec(descriptor(), 4),
        heads in prop::collection::vec(0u16..10, 8),
        index in 0u16..10,
        event_index in any::<bool>(),
    ) {
        let ram = ram();
        for (at, table) in [(DESCRIPTORS, &table), (TABLE, &indirect)] {
            for (index, descriptor) in (0..).zip(table) {
                write_descriptor(&ram, at, index, *descriptor);
            }
        }
        let memory = ram.memory();
        memory.write_obj(index, GuestAddress(DRIVER_RING + 2)).unwrap();
        for (at, head) in (DRIVER_RING + 4..).step_by(2).zip(heads) {
            memory.write_obj(head, GuestAddress(at)).unwrap();
        }
        let mut ring = Ring::new(&PLACE, event_index, memory).unwrap();
        let mut popped = 0;
        while let Ok(Some(chain)) = ring.pop(memory) {
            popped += 1;
            prop_assert!(popped <= PLACE.size);
            let both: Vec<_> = chain.readable.iter().chain(chain.writable.iter()).collect();
            prop_assert!(both.len() <= SEGMENTS_MAX);
            for segment in both {
                prop_assert!(segment.address.0 + u64::from(segment.bytes) <= RAM_BYTES);
            }
            ring.push(memory, chain.head, 0).unwrap();
            ring.wants_interrupt(memory).unwrap();
        }
    }
}
