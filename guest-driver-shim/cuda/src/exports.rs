//! What this library exports beside the functions that it implements, so that programs which are
//! linked with NVIDIA's driver start.
//!
//! The build script looks through the sources for `extern "C" fn cu…` (in a file with a macro that
//! defines functions, for all names) and generates the rest of `exports.txt`:
//!
//! * A function without an implementation counts its calls, is named once in the log, and answers
//!   `NOT_SUPPORTED`.
//! * A function for per-thread default streams (`…_ptsz`) jumps to the other version with the
//!   thread's stream in place of stream 0. One without a stream argument (`…_ptds`) is the other
//!   version: it waits for its work, and the default streams share one ring.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::driver;
use crate::error::Code;

/// The functions without an implementation that were called.
static CALLED: Mutex<Vec<&'static Missing>> = Mutex::new(Vec::new());

/// The process that has called the first of them.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// A version of a function.
pub(crate) struct Symbol {
    /// Name without the suffix that tells versions apart.
    pub(crate) base: &'static str,
    /// Version of CUDA that introduced it: 1000 times the major, 10 times the minor version.
    pub(crate) version: u32,
    /// Whether stream 0 is the calling thread's own default stream.
    pub(crate) is_per_thread: bool,
    pub(crate) function: unsafe extern "C" fn(),
}

impl Symbol {
    /// Returns its address.
    pub(crate) fn address(&self) -> usize {
        self.function as *const () as usize
    }
}

/// A function without an implementation.
pub(crate) struct Missing {
    name: &'static str,
    calls: AtomicU64,
}

impl Missing {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            calls: AtomicU64::new(0),
        }
    }

    /// Answers a call.
    #[cold]
    fn answer(&'static self) -> u32 {
        crate::start_log();
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            log_at_end();
            CALLED.lock().push(self);
            log::warn!(
                "{} is not implemented{}: the program gets CUDA_ERROR_NOT_SUPPORTED (801)",
                self.name,
                reason(self.name)
            );
        }
        driver::call(|_| Err(Code::NOT_SUPPORTED))
    }
}

/// Returns why a function will stay without an implementation, if there is a reason that the
/// program's user should know.
fn reason(name: &str) -> &'static str {
    match name.starts_with("cuMulticast") {
        true => {
            ", because multicast objects belong to several GPUs, and a mistake with one can put \
             all of them out of service for everybody"
        }
        false => "",
    }
}

/// Makes the process log at its end how often such functions were called.
fn log_at_end() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the function stays, because the library is never unloaded.
        unsafe { libc::atexit(summarize) };
    });
}

extern "C" fn summarize() {
    // A forked child has inherited the counts.
    if PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    for missing in &*CALLED.lock() {
        let calls = missing.calls.load(Ordering::Relaxed);
        let name = missing.name;
        log::warn!("at the end: {calls} calls of {name}, which is not implemented");
    }
}

/// Defines functions without an implementation. The arguments of a call stay where they are.
macro_rules! missing {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> u32 {
            static MISSING: Missing = Missing::new(stringify!($name));
            MISSING.answer()
        }
    )*};
}

/// Defines a function that puts the thread's default stream (handle 2) in place of stream 0 and
/// goes on as another one, with all arguments where the caller has put them.
macro_rules! per_thread {
    ($name:ident $plain:literal $stream:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $name() {
            std::arch::naked_asm!(
                concat!("cmp ", $stream, ", 0"),
                "jne 2f",
                concat!("mov ", $stream, ", 2"),
                "2:",
                concat!("jmp ", $plain, "@PLT"),
            )
        }
    };
}

/// Defines a function that is another one under a second name.
macro_rules! same {
    ($name:ident $plain:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $name() {
            std::arch::naked_asm!(concat!("jmp ", $plain, "@PLT"))
        }
    };
}

/// Defines the table of all functions that `cuGetProcAddress` finds, in the order of their fields.
macro_rules! symbols {
    ($($base:literal $version:literal $per_thread:literal $name:ident)*) => {
        /// All functions that `cuGetProcAddress` finds: by name, those for per-thread default
        /// streams last, by version.
        pub(crate) static SYMBOLS: &[Symbol] = &[$(Symbol {
            base: $base,
            version: $version,
            is_per_thread: $per_thread,
            function: {
                // Declared for its address only: programs call it, which know its arguments.
                unsafe extern "C" {
                    fn $name();
                }
                $name
            },
        }),*];
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    type Nine = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, usize) -> u64;

    /// Returns its arguments as the digits of a number, the stream as the last.
    #[unsafe(no_mangle)]
    #[rustfmt::skip]
    extern "C" fn test_nine(
        a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, stream: usize,
    ) -> u64 {
        let digits = [a, b, c, d, e, f, g, h, stream as u64];
        digits.iter().fold(0, |number, digit| number * 10 + digit)
    }

    per_thread!(test_nine_last "test_nine" "qword ptr [rsp + 24]");
    per_thread!(test_nine_fourth "test_nine" "rcx");
    same!(test_nine_same "test_nine");

    fn nine(function: extern "C" fn()) -> Nine {
        // SAFETY: the function jumps to `test_nine`, which has these arguments.
        unsafe { std::mem::transmute::<extern "C" fn(), Nine>(function) }
    }

    #[test]
    fn only_stream_0_becomes_the_stream_of_the_thread() {
        let call = |function: Nine, fourth, last| function(1, 2, 3, fourth, 5, 6, 7, 8, last);
        assert_eq!(call(nine(test_nine_last), 4, 0), 123_456_782);
        assert_eq!(call(nine(test_nine_last), 0, 1), 123_056_781);
        assert_eq!(call(nine(test_nine_fourth), 0, 0), 123_256_780);
        assert_eq!(call(nine(test_nine_fourth), 9, 0), 123_956_780);
        assert_eq!(call(nine(test_nine_same), 0, 0), 123_056_780);
    }

    #[test]
    fn a_missing_function_counts_its_calls_and_needs_an_initialized_driver() {
        static MISSING: Missing = Missing::new("cuMissingInTest");
        let answers = [MISSING.answer(), MISSING.answer()];
        assert_eq!(answers, [Code::NOT_INITIALIZED.0; 2]);
        assert_eq!(MISSING.calls.load(Ordering::Relaxed), 2);
        let called = CALLED.lock();
        let listed = called
            .iter()
            .filter(|missing| missing.name == "cuMissingInTest");
        assert_eq!(listed.count(), 1);
    }
}
