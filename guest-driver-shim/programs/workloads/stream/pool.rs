//! Measures pieces of a pool that are allocated and freed without exits.

use crate::platform::{Machine, Phase, Totals, figure, println, ticks};
use crate::{Required, per, touch};
use causeway_shim::{AddressSpace, MemoryKind, Piece, Pool, PoolStorage};
use causeway_testdev_records::PhasePath;

/// Number of pieces that are allocated and freed.
const PIECES: u64 = 100_000;
/// Number of pieces in use at a time.
const HELD: usize = 16;
/// Sizes of pieces in bytes.
const BYTES_MIN: u64 = 64 << 10;
const BYTES_MAX: u64 = 1 << 20;
/// Size of a chunk in bytes, and number of chunks of the pool. However the pieces lie, one of the
/// chunks has at most two, and so has room for a third.
const CHUNK_BYTES: u64 = 8 << 20;
const CHUNKS: usize = 8;
const _: () = assert!(HELD <= 2 * CHUNKS && CHUNK_BYTES >= 5 * BYTES_MAX + (3 << 12));
/// Number of times that a large piece is allocated and freed, and its size in bytes.
const LARGE_ROUNDS: u64 = 10_000;
const LARGE_BYTES: u64 = 64 << 20;

pub fn measure(machine: &Machine, space: &AddressSpace<'static>) {
    small(machine, space);
    large(machine, space);
}

/// Returns a pool that has all its chunks, and whose memory was accessed once.
fn grown<'s>(
    space: &AddressSpace<'static>,
    storage: &'s mut PoolStorage<'static, 256, CHUNKS>,
) -> Pool<'s, 'static> {
    let mut pool =
        Pool::new(space, MemoryKind::Host, CHUNK_BYTES, storage).required("a pool of memory");
    let chunks: [Piece; CHUNKS] = core::array::from_fn(|_| {
        let whole = pool.allocate(CHUNK_BYTES, 1).required("a chunk");
        whole.window().map(touch::pages).required("its memory");
        whole
    });
    for whole in chunks {
        pool.free(whole).required("freeing a chunk");
    }
    pool
}

/// Allocates and frees pieces of 64 KiB to 1 MiB. Each has a mark at both ends, which must still be
/// there when the piece is freed.
fn small(machine: &Machine, space: &AddressSpace<'static>) {
    let setup = Phase::begin(PhasePath::Setup, "a pool of 64 MiB");
    let mut storage = PoolStorage::new();
    let mut pool = grown(space, &mut storage);
    setup.end(Totals::default());
    let mut held: [Option<(Piece, u64)>; HELD] = [const { None }; HELD];
    let mut bytes = 0;
    let phase = Phase::begin(PhasePath::Data, "10^5 pieces of 64 KiB to 1 MiB");
    let start = ticks();
    for mark in 0..PIECES {
        // Fibonacci hashing (Knuth, "The Art of Computer Programming", volume 3, section 6.4).
        let random = (mark + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let slot = &mut held[random as usize % HELD];
        if let Some((piece, mark)) = slot.take() {
            free(&mut pool, piece, mark);
        }
        let size = BYTES_MIN + (random >> 8) % (BYTES_MAX - BYTES_MIN + 1);
        let piece = pool.allocate(size, 4096).required("a piece");
        set_marks(&piece, mark);
        bytes += piece.bytes();
        *slot = Some((piece, mark));
    }
    for (piece, mark) in held.into_iter().flatten() {
        free(&mut pool, piece, mark);
    }
    let ns = machine.clock().nanoseconds(ticks() - start);
    phase.end(Totals {
        operations: PIECES,
        bytes,
        doorbells: 0,
    });
    assert_eq!(
        pool.trim().required("giving the chunks back"),
        CHUNKS as u64 * CHUNK_BYTES,
        "without pieces, every chunk is whole"
    );
    figure(
        "piece of a pool, allocated and freed",
        per(ns, PIECES),
        "ns",
    );
    println!("pool: {} ns for a piece, marks included", ns / PIECES);
}

fn set_marks(piece: &Piece, mark: u64) {
    let window = piece.window().required("a piece that the CPU sees");
    let last = window.bytes() - 8;
    let stored = window.store_u64(0, mark);
    stored
        .and_then(|()| window.store_u64(last, mark))
        .required("setting marks");
}

/// Checks that the marks of a piece are still there, and frees it.
fn free(pool: &mut Pool<'_, '_>, piece: Piece, mark: u64) {
    let window = piece.window().required("a piece that the CPU sees");
    let marks = (window.load_u64(0), window.load_u64(window.bytes() - 8));
    assert_eq!(marks, (Ok(mark), Ok(mark)), "pieces must not overlap");
    pool.free(piece).required("freeing a piece");
}

/// Allocates and frees one large piece of device memory again and again.
fn large(machine: &Machine, space: &AddressSpace<'static>) {
    let mut storage = PoolStorage::<16, 2>::new();
    let mut pool =
        Pool::new(space, MemoryKind::Device, CHUNK_BYTES, &mut storage).required("a pool");
    let first = pool.allocate(LARGE_BYTES, 1).required("64 MiB");
    let address = first.address();
    pool.free(first).required("freeing");
    let phase = Phase::begin(PhasePath::Data, "64 MiB from a pool 10^4 times");
    let start = ticks();
    for _ in 0..LARGE_ROUNDS {
        let piece = pool.allocate(LARGE_BYTES, 1).required("64 MiB");
        assert_eq!(piece.address(), address, "it is kept");
        pool.free(piece).required("freeing");
    }
    let ns = machine.clock().nanoseconds(ticks() - start);
    phase.end(Totals {
        operations: LARGE_ROUNDS,
        ..Totals::default()
    });
    figure(
        "64 MiB from a pool, allocated and freed",
        per(ns, LARGE_ROUNDS),
        "ns",
    );
}
