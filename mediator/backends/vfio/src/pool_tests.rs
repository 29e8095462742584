//! Which memory may be taken, and when.

use causeway_memory::{LARGE_PAGE_BYTES, PAGE_BYTES};
use proptest::prelude::*;

use super::*;

const AREA_BYTES: u64 = 256 * PAGE_BYTES;

/// Two areas with the same offsets' distance, as a device may have that keeps a part of its BAR for
/// itself.
fn pool() -> Arc<Pool> {
    let area = |area, offset| Piece {
        area,
        offset,
        bytes: AREA_BYTES,
    };
    Pool::of([area(0, 0), area(1, 2 * AREA_BYTES)].into())
}

/// Does what the scrubber does, as far as there is something to do now.
fn scrub(pool: &Pool) -> Vec<Piece> {
    let mut scrubbed = Vec::new();
    loop {
        let task = pool.state.lock().take_task();
        let Some(task) = task else { return scrubbed };
        pool.scrubbed(&task);
        scrubbed.push(task.piece);
    }
}

#[test]
fn nothing_is_taken_before_it_is_scrubbed_and_waiting_is_for_what_helps() {
    let pool = pool();
    let task = pool.next().unwrap();
    // More than there is, ever: said at once.
    let refused = pool.take(3 * AREA_BYTES).unwrap_err();
    assert_eq!(
        refused,
        Refusal::Full {
            free: 2 * AREA_BYTES
        }
    );
    let taken = std::thread::scope(|scope| {
        let taking = scope.spawn(|| pool.take(PAGE_BYTES));
        std::thread::yield_now();
        pool.scrubbed(&task);
        taking.join().unwrap().unwrap()
    });
    assert!(taken.offset + taken.bytes <= AREA_BYTES);
    assert!(pool.take_back(taken));
    assert_eq!(
        scrub(&pool)[0],
        taken,
        "what came back goes first, before what nobody had"
    );
    // In one piece there is no more than an area.
    let refused = pool.take(AREA_BYTES + PAGE_BYTES).unwrap_err();
    assert_eq!(
        refused,
        Refusal::Full {
            free: 2 * AREA_BYTES
        }
    );
}

#[test]
fn large_parts_are_aligned_for_large_pages() {
    let unknown = Piece {
        area: 0,
        offset: 5 * PAGE_BYTES,
        bytes: 4 * LARGE_PAGE_BYTES,
    };
    let pool = Pool::of([unknown].into());
    scrub(&pool);
    assert_eq!(pool.take(PAGE_BYTES).unwrap().offset, 5 * PAGE_BYTES);
    let large = pool.take(LARGE_PAGE_BYTES).unwrap();
    assert_eq!(large.offset, LARGE_PAGE_BYTES);
}

#[test]
fn what_is_doubted_is_scrubbed_again_even_if_that_was_under_way() {
    let pool = pool();
    scrub(&pool);
    let taken = pool.take(PAGE_BYTES).unwrap();
    assert!(pool.take_back(taken));
    let task = pool.next().unwrap();
    pool.pause();
    pool.resume();
    pool.scrubbed(&task);
    let again = scrub(&pool);
    assert_eq!(again.iter().map(|p| p.bytes).sum::<u64>(), 2 * AREA_BYTES);
    assert!(again.contains(&taken));
}

#[test]
fn who_takes_and_gives_back_all_the_time_keeps_nobody_waiting() {
    const STEPS: usize = 100_000;
    let pool = pool();
    scrub(&pool);
    let all: Vec<_> = std::iter::from_fn(|| pool.take(PAGE_BYTES).ok()).collect();
    for piece in all.iter().step_by(2) {
        assert!(pool.take_back(*piece));
    }
    scrub(&pool);
    // There is always something to be scrubbed from now on, and never a range of two pages.
    let churn = || {
        let piece = pool.take(PAGE_BYTES).unwrap();
        assert!(pool.take_back(piece));
    };
    churn();
    let refused = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.take(2 * PAGE_BYTES));
        for _ in 0..STEPS {
            let task = pool.next().unwrap();
            churn();
            pool.scrubbed(&task);
            if waiting.is_finished() {
                break;
            }
        }
        pool.end(End::Now);
        waiting.join().unwrap()
    });
    assert!(matches!(refused, Err(Refusal::Full { .. })), "{refused:?}");
}

#[test]
fn an_end_waits_for_what_is_taken_and_scrubs_only_what_was() {
    let pool = pool();
    let task = pool.next().unwrap();
    pool.scrubbed(&task);
    let taken = pool.take(PAGE_BYTES).unwrap();
    pool.end(End::AllBack);
    assert_eq!(pool.take(PAGE_BYTES), Err(Refusal::Ended));
    let next = std::thread::scope(|scope| {
        let scrubbing = scope.spawn(|| pool.next());
        std::thread::yield_now();
        assert!(pool.take_back(taken));
        scrubbing.join().unwrap().unwrap()
    });
    assert_eq!(next.piece, taken, "the rest of the device was nobody's");
    pool.scrubbed(&next);
    assert!(pool.next().is_none());
}

#[test]
fn who_comes_back_after_the_scrubber_has_gone_scrubs_for_itself() {
    let pool = pool();
    scrub(&pool);
    let taken = pool.take(PAGE_BYTES).unwrap();
    pool.end(End::Now);
    assert!(pool.next().is_none());
    assert!(!pool.take_back(taken));
    assert_eq!(pool.taken_bytes(), 0);
}

#[test]
fn nothing_is_taken_during_a_pause() {
    let pool = pool();
    scrub(&pool);
    pool.pause();
    let taken = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.take(PAGE_BYTES));
        std::thread::yield_now();
        assert_eq!(pool.taken_bytes(), 0);
        pool.resume();
        let task = pool.next().unwrap();
        assert_eq!(pool.taken_bytes(), 0, "what was clean is in doubt");
        pool.scrubbed(&task);
        waiting.join().unwrap().unwrap()
    });
    assert!(pool.take_back(taken));
}

#[test]
fn nobody_waits_for_the_end_of_a_pause_that_has_none() {
    let pool = pool();
    scrub(&pool);
    pool.pause();
    assert_eq!(pool.take(PAGE_BYTES), Err(Refusal::Paused));
    pool.resume();
    scrub(&pool);
    assert!(
        pool.take(PAGE_BYTES)
            .is_ok_and(|taken| pool.take_back(taken))
    );
}

#[test]
fn who_waits_is_told_of_the_end() {
    let pool = pool();
    let refused = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.take(PAGE_BYTES));
        std::thread::yield_now();
        pool.end(End::AllBack);
        waiting.join().unwrap()
    });
    assert_eq!(refused, Err(Refusal::Ended));
}

proptest! {
    /// Whatever comes and goes: nobody has what another has, all of it is within an area, and in
    /// the end all is there in one piece again.
    #[test]
    fn parts_never_overlap_and_all_come_back(
        steps in prop::collection::vec((0_u8..8, 1_u64..60, any::<prop::sample::Index>()), 1..200)
    ) {
        let pool = pool();
        scrub(&pool);
        let mut taken: Vec<Piece> = Vec::new();
        for (step, pages, which) in steps {
            match step {
                0..=3 => match pool.take(pages * PAGE_BYTES) {
                    Ok(piece) => taken.push(piece),
                    Err(refused) => prop_assert_ne!(refused, Refusal::Ended),
                },
                4 | 5 if !taken.is_empty() => {
                    let piece = taken.swap_remove(which.index(taken.len()));
                    prop_assert!(pool.take_back(piece));
                    scrub(&pool);
                }
                6 => {
                    pool.resume();
                    scrub(&pool);
                }
                _ => {}
            }
            let mut sorted: Vec<_> = taken.iter().map(|p| (p.offset, p.offset + p.bytes)).collect();
            sorted.sort_unstable();
            prop_assert!(sorted.windows(2).all(|w| w[0].1 <= w[1].0));
            let within = |(start, end): (u64, u64)| {
                end <= AREA_BYTES || (start >= 2 * AREA_BYTES && end <= 3 * AREA_BYTES)
            };
            prop_assert!(sorted.iter().all(|range| within(*range)));
            let sum: u64 = taken.iter().map(|p| p.bytes).sum();
            prop_assert_eq!(pool.taken_bytes(), sum);
            prop_assert_eq!(pool.state.lock().free_bytes(), 2 * AREA_BYTES - sum);
        }
        for piece in taken {
            prop_assert!(pool.take_back(piece));
        }
        scrub(&pool);
        prop_assert_eq!(pool.take(AREA_BYTES).unwrap().bytes, AREA_BYTES);
        prop_assert_eq!(pool.take(AREA_BYTES).unwrap().bytes, AREA_BYTES);
    }
}
