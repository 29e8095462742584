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

/// What a thread has pushed. If the thread ends before it has popped all, the next one with this
/// thread pointer begins above that, and its launches are slower.
struct Pushed {
    count: Cell<usize>,
    /// The outermost, if there is any.
    first: Cell<Configuration>,
}

impl Pushed {
    const fn none() -> Self {
        Self {
            count: Cell::new(0),
            first: Cell::new(Configuration::new(Dim3::ONE, Dim3::ONE, 0, 0)),
        }
    }
}

/// A row of the table: a cache line.
#[repr(align(64))]
struct Row {
    /// Thread pointer of the thread whose row it is: the first that wanted it; 0 before.
    owner: AtomicUsize,
    pushed: Pushed,
}

// SAFETY: only the thread with the thread pointer in `owner`, which does not change once it is set,
// accesses `pushed`. No two threads have the same one at the same time: the later one gets it from
// the C library when the earlier one has ended.
unsafe impl Sync for Row {}

const _: () = assert!(size_of::<Row>() == 64);

static TABLE: [Row; ROWS] = [const {
    Row {
        owner: AtomicUsize::new(0),
        pushed: Pushed::none(),
    }
}; ROWS];

thread_local! {
    /// Of a thread that has no row. It needs no destructor, so that destructors of a thread can
    /// still launch.
    static PUSHED: Pushed = const { Pushed::none() };
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

/// Returns what the thread has pushed, if it has a row.
#[inline]
fn own() -> Option<&'static Pushed> {
    let thread = thread();
    let row = row_of(thread);
    (row.owner.load(Ordering::Relaxed) == thread).then_some(&row.pushed)
}

/// Keeps a configuration until it is popped, if that is easy. Otherwise, [`push_anyhow`] does.
#[inline]
pub fn push(configuration: Configuration) -> bool {
    match own() {
        Some(pushed) if pushed.count.get() == 0 => {
            pushed.first.set(configuration);
            pushed.count.set(1);
            true
        }
        _ => false,
    }
}

/// Takes back the configuration that was pushed last, if that is easy. Otherwise, [`pop_anyhow`]
/// does.
#[inline]
pub fn pop() -> Option<Configuration> {
    let pushed = own().filter(|pushed| pushed.count.get() == 1)?;
    pushed.count.set(0);
    Some(pushed.first.get())
}

/// Calls `operation` with what the thread has pushed. It gets a row if that is nobody's yet.
fn with<R>(operation: impl FnOnce(&Pushed) -> R) -> R {
    let thread = thread();
    let row = row_of(thread);
    let (free, relaxed) = (0, Ordering::Relaxed);
    match row.owner.compare_exchange(free, thread, relaxed, relaxed) {
        Err(owner) if owner != thread => PUSHED.with(operation),
        _ => operation(&row.pushed),
    }
}

/// Keeps a configuration until it is popped.
pub fn push_anyhow(configuration: Configuration) {
    with(|pushed| {
        let count = pushed.count.get();
        match count {
            0 => pushed.first.set(configuration),
            _ => push_inner(configuration),
        }
        pushed.count.set(count + 1);
    });
}

/// Takes back the configuration that was pushed last.
///
/// # Errors
/// [`MISSING_CONFIGURATION`] if there is none.
pub fn pop_anyhow() -> Answer<Configuration> {
    with(|pushed| {
        let configuration = match pushed.count.get() {
            0 => None,
            1 => Some(pushed.first.get()),
            _ => pop_inner(),
        };
        let configuration = configuration.ok_or(MISSING_CONFIGURATION)?;
        pushed.count.update(|count| count - 1);
        Ok(configuration)
    })
}

fn push_inner(configuration: Configuration) {
    let mut threads = INNER.lock();
    threads.entry(thread()).or_default().push(configuration);
}

fn pop_inner() -> Option<Configuration> {
    let mut threads = INNER.lock();
    let inner = threads.get_mut(&thread())?;
    let configuration = inner.pop();
    if inner.is_empty() {
        threads.remove(&thread());
    }
    configuration
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
