//! The configurations of a thread's launches whose arguments are being evaluated. Most threads ever
//! have one, which every launch writes and reads.
//!
//! In a shared library, `thread_local!` calls the dynamic linker for an address ("ELF Handling For
//! Thread-Local Storage", the general dynamic model), which costs more than all else here. So the
//! outermost is in the static block of a thread, at an offset that is fixed when the library is
//! loaded (the initial exec model). rustc has no stable option for that model.
//!
//! With this, all variables of this kind that the library has get into the static block, in which
//! the dynamic linker keeps little room for libraries that are loaded later (glibc: 1,664 bytes for
//! all of them). So what is seldom needed is elsewhere.

use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::collections::BTreeMap;

use causeway_cuda_abi::error::Answer;
use parking_lot::Mutex;

use crate::error::MISSING_CONFIGURATION;
use crate::launch::Configuration;

/// In the static block: it begins as zeros.
#[repr(C, align(64))]
struct Pushed {
    count: Cell<usize>,
    /// The outermost, if there is any.
    first: Cell<Configuration>,
}

const BYTES: usize = 64;
const _: () = assert!(size_of::<Pushed>() == BYTES && align_of::<Pushed>() == BYTES);

global_asm!(
    ".pushsection .tbss.causeway_cudart_pushed, \"awT\", @nobits",
    ".balign {bytes}",
    ".hidden causeway_cudart_pushed",
    ".globl causeway_cudart_pushed",
    "causeway_cudart_pushed: .zero {bytes}",
    ".popsection",
    bytes = const BYTES,
);

/// The inner ones of each thread that has some, by the address of its [`Pushed`]. It is no variable
/// of a thread, so that destructors of a thread can still launch.
static INNER: Mutex<BTreeMap<usize, Vec<Configuration>>> = Mutex::new(BTreeMap::new());

/// Calls `operation` with the thread's own.
#[inline]
fn with<R>(operation: impl FnOnce(&Pushed) -> R) -> R {
    let pushed: *const Pushed;
    // SAFETY: the two instructions of the initial exec model read the thread's pointer and the
    // offset of the variable from it. They change flags and nothing else.
    unsafe {
        asm!(
            "mov {pushed}, fs:[0]",
            "add {pushed}, [rip + causeway_cudart_pushed@GOTTPOFF]",
            pushed = out(reg) pushed,
            options(pure, nomem, nostack),
        );
    }
    // SAFETY: the thread's variable lives as long as the thread, which alone has its address here
    // and only during this call. Size and alignment are those above, and zeros are a value of each
    // field.
    operation(unsafe { &*pushed })
}

/// Keeps a configuration until it is popped, if it is the outermost. Returns whether it is; if not,
/// [`push_inner`] keeps it.
#[inline]
pub fn push_first(configuration: Configuration) -> bool {
    with(|pushed| {
        let is_first = pushed.count.get() == 0;
        if is_first {
            pushed.first.set(configuration);
            pushed.count.set(1);
        }
        is_first
    })
}

/// Takes back the configuration that was pushed last, if it is the outermost. If there is none or
/// it is not, [`pop_inner`] knows.
#[inline]
pub fn pop_first() -> Option<Configuration> {
    with(|pushed| {
        (pushed.count.get() == 1).then(|| {
            pushed.count.set(0);
            pushed.first.get()
        })
    })
}

/// Keeps a configuration that is not the outermost until it is popped.
pub fn push_inner(configuration: Configuration) {
    with(|pushed| {
        let mut threads = INNER.lock();
        let inner = threads
            .entry(std::ptr::from_ref(pushed) as usize)
            .or_default();
        // A thread that ended before it had popped all may have had this address.
        inner.truncate(pushed.count.get() - 1);
        inner.push(configuration);
        pushed.count.update(|count| count + 1);
    });
}

/// Takes back the configuration that was pushed last, which is not the outermost.
///
/// # Errors
/// [`MISSING_CONFIGURATION`] if there is none.
pub fn pop_inner() -> Answer<Configuration> {
    with(|pushed| {
        let mut threads = INNER.lock();
        let thread = std::ptr::from_ref(pushed) as usize;
        let inner = (pushed.count.get() > 1).then(|| threads.get_mut(&thread));
        let inner = inner.flatten().ok_or(MISSING_CONFIGURATION)?;
        let configuration = inner.pop().ok_or(MISSING_CONFIGURATION)?;
        if inner.is_empty() {
            threads.remove(&thread);
        }
        pushed.count.update(|count| count - 1);
        Ok(configuration)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::Dim3;

    fn push(bytes: usize) {
        let configuration = Configuration::new(Dim3::default(), Dim3::default(), bytes, 0);
        if !push_first(configuration) {
            push_inner(configuration);
        }
    }

    fn pop() -> Option<usize> {
        let popped = pop_first().map_or_else(pop_inner, Ok);
        popped.ok().map(|it| it.shared_bytes)
    }

    #[test]
    fn the_last_launch_comes_back_first() {
        assert_eq!([pop(), pop()], [None; 2]);
        (0..20).for_each(push);
        (0..20)
            .rev()
            .for_each(|depth| assert_eq!(pop(), Some(depth)));
        assert_eq!(pop(), None);
    }

    #[test]
    fn each_thread_has_its_own() {
        (1..=3).for_each(push);
        let other = || {
            let before = pop();
            (4..=5).for_each(push);
            [before, pop(), pop(), pop()]
        };
        let seen = std::thread::spawn(other).join();
        assert_eq!(seen.ok(), Some([None, Some(5), Some(4), None]));
        assert_eq!(
            [pop(), pop(), pop(), pop()],
            [Some(3), Some(2), Some(1), None]
        );
    }

    #[test]
    fn what_a_thread_has_left_behind_is_no_other_threads() {
        for _ in 0..10 {
            let one = || (1..=3).for_each(push);
            std::thread::spawn(one).join().expect("it ends");
            let next = || {
                (7..=8).for_each(push);
                [pop(), pop(), pop()]
            };
            let seen = std::thread::spawn(next).join();
            assert_eq!(seen.ok(), Some([Some(8), Some(7), None]));
        }
    }
}
