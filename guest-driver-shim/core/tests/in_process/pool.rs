//! Pools of memory through the driver, with the exits that they take.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_mediator::{Mediator, Quota};
use causeway_shim::{
    Buffer, CommandBuffer, Device, GRANULE_BYTES, MemoryKind, Patience, Piece, Pool, PoolError,
    PoolFreeError, PoolStorage, Status,
};

use crate::transport::Machine;

const MIB: u64 = 1 << 20;

fn exits(machine: &Machine) -> u32 {
    machine.exits.load(Ordering::Relaxed)
}

fn pieces_cost_no_exit_once_the_pool_has_grown_and_hold_what_is_written(mediator: &Arc<Mediator>) {
    let machine = Machine::new(mediator, Quota::default(), "pool");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let mut storage = PoolStorage::<512, 16>::new();
    let before = exits(&machine);
    let mut pool = Pool::new(&space, MemoryKind::Host, 4 * MIB, &mut storage).unwrap();
    assert_eq!(exits(&machine) - before, 1);
    let first = pool.allocate(64 << 10, 1).unwrap();
    assert_eq!(exits(&machine) - before, 2, "a chunk is one exit");
    pool.free(first).unwrap();
    let mut random = 1_u64;
    let mut pieces: Vec<(Piece, u64)> = Vec::new();
    let mut grown = exits(&machine);
    let mut chunks = pool.reserved_bytes() / pool.chunk_bytes();
    for tag in 0..20_000_u64 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        if pieces.len() > 24 {
            let at = (random >> 40) as usize % pieces.len();
            let (piece, tag) = pieces.swap_remove(at);
            let window = piece.window().unwrap();
            assert_eq!(window.load_u64(0), Ok(tag));
            assert_eq!(window.load_u64(piece.bytes() as usize - 8), Ok(tag));
            pool.free(piece).unwrap();
        }
        let bytes = (64 << 10) + (random >> 33) % (MIB - (64 << 10));
        let alignment = 1 << ((random >> 60) + 4);
        let piece = pool.allocate(bytes, alignment).unwrap();
        assert!(piece.bytes() >= bytes && piece.bytes() < bytes + GRANULE_BYTES);
        assert!(piece.address().is_multiple_of(alignment.max(GRANULE_BYTES)));
        let window = *piece.window().unwrap();
        window.store_u64(0, tag).unwrap();
        window.store_u64(piece.bytes() as usize - 8, tag).unwrap();
        pieces.push((piece, tag));
        let now = pool.reserved_bytes() / pool.chunk_bytes();
        assert_eq!(
            u64::from(exits(&machine) - grown),
            now - chunks,
            "growth only"
        );
        (grown, chunks) = (exits(&machine), now);
    }
    assert!(chunks < 16);
    for (piece, _) in pieces {
        pool.free(piece).unwrap();
    }
    assert_eq!(exits(&machine), grown);
    assert_eq!(
        pool.trim().unwrap(),
        chunks * 4 * MIB,
        "every chunk is whole again"
    );
    assert_eq!(u64::from(exits(&machine) - grown), chunks);
    assert_eq!(pool.reserved_bytes(), 0);
    assert_eq!(device.attributes().unwrap().memory_used_bytes, 0);
}

fn what_a_chunk_has_no_room_for_is_kept_for_the_next_up_to_a_limit(mediator: &Arc<Mediator>) {
    let machine = Machine::new(mediator, Quota::default(), "large pieces");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let mut storage = PoolStorage::<8, 8>::new();
    let pool = Pool::new(&space, MemoryKind::Device, MIB, &mut storage).unwrap();
    let mut pool = pool.keeping(40 * MIB);
    let piece = pool.allocate(16 * MIB, 4096).unwrap();
    assert!(piece.window().is_none(), "device memory");
    pool.free(piece).unwrap();
    let before = exits(&machine);
    for round in 0..100 {
        let piece = pool.allocate(16 * MIB - round % 3, 2 * MIB).unwrap();
        assert!(piece.address().is_multiple_of(2 * MIB));
        pool.free(piece).unwrap();
    }
    assert!(
        exits(&machine) - before <= 1,
        "at most one for the alignment"
    );
    let before = exits(&machine);
    // One of half the size must not take it.
    let small = pool.allocate(8 * MIB, 1).unwrap();
    assert_eq!(exits(&machine) - before, 1);
    let others: Vec<_> = (0..2)
        .map(|_| pool.allocate(16 * MIB, 1).unwrap())
        .collect();
    pool.free(small).unwrap();
    let reserved = pool.reserved_bytes();
    for piece in others {
        pool.free(piece).unwrap();
    }
    assert!(pool.reserved_bytes() <= 40 * MIB, "{reserved}");
    let huge = pool.allocate(48 * MIB, 1).unwrap();
    let kept = pool.reserved_bytes() - 48 * MIB;
    pool.free(huge).unwrap();
    assert_eq!(
        pool.reserved_bytes(),
        kept,
        "more than it may keep is not kept"
    );
    pool.trim().unwrap();
    assert_eq!(pool.reserved_bytes(), 0);
}

fn a_quota_is_met_after_idle_chunks_were_given_back(mediator: &Arc<Mediator>) {
    let quota = Quota {
        memory_bytes: 10 * MIB,
        ..Quota::default()
    };
    let machine = Machine::new(mediator, quota, "small quota");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let mut storage = PoolStorage::<16, 8>::new();
    let mut pool = Pool::new(&space, MemoryKind::Host, 2 * MIB, &mut storage).unwrap();
    let large = pool.allocate(6 * MIB, 1).unwrap();
    pool.free(large).unwrap();
    // Eight of ten MiB only fit without what was kept.
    let larger = pool.allocate(8 * MIB, 1).unwrap();
    let small = pool.allocate(MIB, 1).unwrap();
    match pool.allocate(2 * MIB, 1) {
        Err(PoolError::Refused(error)) => assert_eq!(error.status(), Status::QuotaBytes),
        other => panic!("{other:?}"),
    }
    pool.free(larger).unwrap();
    let second = pool.allocate(2 * MIB, 1).unwrap();
    pool.free(second).unwrap();
    pool.free(small).unwrap();
    drop(pool);
    assert_eq!(device.attributes().unwrap().memory_used_bytes, 0);
    assert_eq!(machine.host.placements(), 0);
}

fn wrong_requests_and_pieces_of_another_pool_are_refused(mediator: &Arc<Mediator>) {
    let machine = Machine::new(mediator, Quota::default(), "wrong");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let (mut one, mut other) = (PoolStorage::<4, 2>::new(), PoolStorage::<4, 2>::new());
    let mut pool = Pool::new(&space, MemoryKind::Host, MIB, &mut one).unwrap();
    let mut stranger = Pool::new(&space, MemoryKind::Host, MIB, &mut other).unwrap();
    for (bytes, alignment) in [(0, 1), (1, 0), (1, 3), (u64::MAX, 1), (256, 1 << 63)] {
        assert!(pool.allocate(bytes, alignment).is_err());
    }
    assert_eq!(
        pool.allocate(0, 1).err(),
        Some(PoolError::Layout {
            bytes: 0,
            alignment: 1
        })
    );
    let pieces: Vec<_> = (0..3).map(|_| pool.allocate(256, 1).unwrap()).collect();
    assert_eq!(
        pool.allocate(256, 1).err(),
        Some(PoolError::Blocks { capacity: 4 })
    );
    let whole = pool.allocate(2 * MIB, 1).unwrap();
    assert_eq!(
        pool.allocate(2 * MIB, 1).err(),
        Some(PoolError::Chunks { capacity: 2 })
    );
    let _same_numbers = stranger.allocate(256, 1).unwrap();
    for piece in pieces.into_iter().chain([whole]) {
        let address = piece.address();
        match stranger.free(piece) {
            Err(PoolFreeError::Foreign(piece)) => {
                assert_eq!(piece.address(), address);
                pool.free(piece).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(pool.trim().unwrap(), 3 * MIB);
}

fn a_fill_packet_clears_a_piece(mediator: &Arc<Mediator>) {
    let machine = Machine::new(mediator, Quota::default(), "cleared");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let fences = Buffer::new(&device, &space, 4096, MemoryKind::Host).unwrap();
    let fence = fences.fence(0).unwrap();
    let mut commands = CommandBuffer::new(&space, 256).unwrap();
    let mut storage = PoolStorage::<8, 1>::new();
    let mut pool = Pool::new(&space, MemoryKind::Host, MIB, &mut storage).unwrap();
    let piece = pool.allocate(1000, 1).unwrap();
    for word in 0..128 {
        piece
            .window()
            .unwrap()
            .store_u64(8 * word, u64::MAX)
            .unwrap();
    }
    let address = piece.address();
    pool.free(piece).unwrap();
    let piece = pool.allocate(1000, 1).unwrap();
    assert_eq!(piece.address(), address, "the same memory");
    assert_eq!(piece.window().unwrap().load_u64(0), Ok(u64::MAX));
    pool.free(piece).unwrap();
    let piece = pool.allocate(1000, 1).unwrap();
    commands.fill(piece.address(), piece.bytes(), 0).unwrap();
    commands.release(&fence, 1).unwrap();
    commands.submit();
    commands.wait(&fence, 1, Patience::default()).unwrap();
    for word in 0..128 {
        assert_eq!(piece.window().unwrap().load_u64(8 * word), Ok(0));
    }
    pool.free(piece).unwrap();
}

on_each_back_end!(
    pieces_cost_no_exit_once_the_pool_has_grown_and_hold_what_is_written,
    what_a_chunk_has_no_room_for_is_kept_for_the_next_up_to_a_limit,
    a_quota_is_met_after_idle_chunks_were_given_back,
    wrong_requests_and_pieces_of_another_pool_are_refused,
    a_fill_packet_clears_a_piece,
);
