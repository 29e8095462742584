//! The configurations of a thread's launches whose arguments are being evaluated. Most threads
//! never have more than one, which every launch writes and reads.
//!
//! In a shared library, `thread_local!` calls the dynamic linker for an address ("ELF Handling For
//! Thread-Local Storage", the general dynamic model), which would cost more than all else here. The
//! static block of a thread, which needs no call, has little room for libraries that are loaded
//! later: a program could not load many with a runtime in each. So the configurations are in a
//! table, in which a thread finds its row by its thread pointer. A thread whose row belongs to
//! another, even one that has ended, uses `thread_local!`.

use std::arch::asm;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_cuda_abi::error::Answer;
use parking_lot::Mutex;

use crate::error::MISSING_CONFIGURATION;
use crate::launch::Configuration;
use crate::shapes::Dim3;

/// Rows of the table, a power of two.
const ROWS: usize = 64;

/// What a row holds, in the low bits of its state, which a thread pointer leaves free (it is
/// aligned to 8 bytes at least): one configuration, or more, of which the row has the outermost.
const ONE: usize = 1;
const MORE: usize = 2;
const HELD: usize = ONE | MORE;

/// What a thread has pushed, in a cache line. If the owner of a row of the table ends before it has
/// popped all, the next thread with this thread pointer begins above that, and its launches are
/// slower.
#[repr(align(64))]
struct Row {
    /// The thread pointer of the owner, which is the first thread that asked for the row, with
    /// [`ONE`] or [`MORE`] in its low bits; 0 while nobody owns it.
    state: AtomicUsize,
    /// The outermost configuration, if there is any.
    first: Cell<Configuration>,
}

impl Row {
    const fn free() -> Self {
        Self {
            state: AtomicUsize::new(0),
            first: Cell::new(Configuration::new(Dim3::ONE, Dim3::ONE, 0, 0)),
        }
    }

    /// Makes it the thread's if it is nobody's. Returns whether it is the thread's.
    fn claim(&self, thread: usize) -> bool {
        let (free, relaxed) = (0, Ordering::Relaxed);
        match self.state.compare_exchange(free, thread, relaxed, relaxed) {
            Ok(_) => true,
            Err(state) => state & !HELD == thread,
        }
    }

    /// Keeps a configuration of the thread whose row it is.
    fn push(&self, thread: usize, configuration: Configuration) {
        match self.held() {
            0 => {
                self.first.set(configuration);
                self.set_held(ONE);
            }
            held => {
                push_inner(thread, configuration, held == ONE);
                self.set_held(MORE);
            }
        }
    }

    /// Takes back what the thread whose row it is has pushed last.
    fn pop(&self, thread: usize) -> Option<Configuration> {
        match self.held() {
            0 => None,
            ONE => {
                self.set_held(0);
                Some(self.first.get())
            }
            _ => {
                let (configuration, is_last) = pop_inner(thread)?;
                if is_last {
                    self.set_held(ONE);
                }
                Some(configuration)
            }
        }
    }

    fn held(&self) -> usize {
        self.state.load(Ordering::Relaxed) & HELD
    }

    fn set_held(&self, held: usize) {
        let thread = self.state.load(Ordering::Relaxed) & !HELD;
        self.state.store(thread | held, Ordering::Relaxed);
    }
}

// SAFETY: only the thread whose pointer is in `state`, which does not change once it is set,
// accesses `first` and changes what `state` says is held. No two threads have the same one at the
// same time: the later one gets it from the C library when the earlier one has ended.
unsafe impl Sync for Row {}

const _: () = assert!(size_of::<Row>() == 64);

static TABLE: [Row; ROWS] = [const { Row::free() }; ROWS];

thread_local! {
    /// The row of a thread that has none in the table. It needs no destructor, so that destructors
    /// of a thread can still launch.
    static OWN: Row = const { Row::free() };
}

/// The inner configurations of each thread that has some, by its thread pointer. They are not
/// thread-local: their destructor could run before others that launch.
static INNER: Mutex<BTreeMap<usize, Vec<Configuration>>> = Mutex::new(BTreeMap::new());

/// Returns the thread pointer, which no other living thread has; never 0.
#[inline]
fn thread() -> usize {
    let thread;
    // SAFETY: the first word of the segment is the thread pointer ("ELF Handling For Thread-Local
    // Storage", x86-64). It does not change while the thread runs, so that the result is always the
    // same (`pure`, `nomem`).
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) thread, options(pure, nomem, nostack, preserves_flags));
    }
    thread
}

/// Returns the row in which a thread's configurations are, or would be if it were its own.
#[inline]
fn row_of(thread: usize) -> &'static Row {
    // The C library puts a page between the stacks of threads, which are whole MiB: so the numbers
    // of their pages are one after the other, modulo the rows.
    &TABLE[(thread >> 12) % ROWS]
}

/// Keeps a configuration until it is popped, if that is easy. Otherwise, [`push_anyhow`] does.
#[inline]
pub fn push(configuration: Configuration) -> bool {
    let thread = thread();
    let row = row_of(thread);
    let is_easy = row.state.load(Ordering::Relaxed) == thread;
    if is_easy {
        row.first.set(configuration);
        row.state.store(thread | ONE, Ordering::Relaxed);
    }
    is_easy
}

/// Takes back the configuration that was pushed last, if that is easy. Otherwise, [`pop_anyhow`]
/// does.
#[inline]
pub fn pop() -> Option<Configuration> {
    let thread = thread();
    let row = row_of(thread);
    if row.state.load(Ordering::Relaxed) != thread | ONE {
        return None;
    }
    row.state.store(thread, Ordering::Relaxed);
    Some(row.first.get())
}

/// Calls `operation` with the thread's row, and its pointer. In the table, it gets a row that is
/// nobody's yet.
fn with<R>(operation: impl FnOnce(&Row, usize) -> R) -> R {
    let thread = thread();
    let row = row_of(thread);
    if row.claim(thread) {
        return operation(row, thread);
    }
    OWN.with(|row| {
        row.claim(thread);
        operation(row, thread)
    })
}

/// Keeps a configuration until it is popped.
pub fn push_anyhow(configuration: Configuration) {
    with(|row, thread| row.push(thread, configuration));
}

/// Takes back the configuration that was pushed last.
///
/// # Errors
/// [`MISSING_CONFIGURATION`] if there is none.
pub fn pop_anyhow() -> Answer<Configuration> {
    with(Row::pop).ok_or(MISSING_CONFIGURATION)
}

/// `is_first`: what is there is of a thread that has ended.
fn push_inner(thread: usize, configuration: Configuration, is_first: bool) {
    let mut threads = INNER.lock();
    let inner = threads.entry(thread).or_default();
    if is_first {
        inner.clear();
    }
    inner.push(configuration);
}

/// Returns the innermost, and whether only the outermost of all is left.
fn pop_inner(thread: usize) -> Option<(Configuration, bool)> {
    let mut threads = INNER.lock();
    let inner = threads.get_mut(&thread)?;
    let configuration = inner.pop()?;
    let is_last = inner.is_empty();
    if is_last {
        threads.remove(&thread);
    }
    Some((configuration, is_last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(bytes: usize) {
        let configuration = Configuration::new(Dim3::ONE, Dim3::ONE, bytes, 0);
        if !push(configuration) {
            push_anyhow(configuration);
        }
    }

    fn popped() -> Option<usize> {
        let configuration = pop().map_or_else(pop_anyhow, Ok);
        configuration.ok().map(|it| it.shared_bytes)
    }

    #[test]
    fn the_last_launch_comes_back_first() {
        assert_eq!([popped(), popped()], [None; 2]);
        (0..20).for_each(pushed);
        (0..20)
            .rev()
            .for_each(|depth| assert_eq!(popped(), Some(depth)));
        assert_eq!(popped(), None);
    }

    #[test]
    fn what_a_thread_left_is_not_given_to_the_next() {
        // Of no thread here.
        const THREAD: usize = 0x1000;
        let of = |bytes| Configuration::new(Dim3::ONE, Dim3::ONE, bytes, 0);
        let launch_and_leave_two = |row: &Row| {
            assert!(row.claim(THREAD));
            let pop = || row.pop(THREAD).map(|it| it.shared_bytes);
            (1..=3).for_each(|bytes| row.push(THREAD, of(bytes)));
            assert_eq!(pop(), Some(3));
            row.push(THREAD, of(4));
            assert_eq!([pop(), pop(), pop()], [4, 2, 1].map(Some));
            (5..=6).for_each(|bytes| row.push(THREAD, of(bytes)));
        };
        // A row of the table, which all threads with this pointer have.
        let shared = Row::free();
        (0..3).for_each(|_| launch_and_leave_two(&shared));
        assert!(!shared.claim(2 * THREAD));
        // Each has a row of its own.
        (0..3).for_each(|_| launch_and_leave_two(&Row::free()));
    }

    #[test]
    fn each_of_many_threads_has_its_own() {
        let all = std::sync::Barrier::new(3 * ROWS);
        std::thread::scope(|scope| {
            for number in 0..3 * ROWS {
                let all = &all;
                scope.spawn(move || {
                    all.wait();
                    for round in 0..100 {
                        let own = [0, 1, 2].map(|depth| 1000 * number + 3 * round + depth);
                        own.into_iter().for_each(pushed);
                        let back = [popped(), popped(), popped()];
                        assert_eq!(back, [own[2], own[1], own[0]].map(Some));
                    }
                });
            }
        });
    }
}
