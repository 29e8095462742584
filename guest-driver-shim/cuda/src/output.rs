//! Text that kernels print (`printf` in CUDA C++), on its way to this process's standard output.
//!
//! As CUDA documents it, text appears when the program waits for the device. Asking for text costs
//! an exit, so that it is asked for only in programs that have looked up a kernel which prints.

use std::sync::atomic::{AtomicBool, Ordering};

use causeway_shim_linux::shim::AddressSpace;
use parking_lot::Mutex;

/// Where text of kernels goes.
#[derive(Default)]
pub(crate) struct Output {
    is_expected: AtomicBool,
    /// Held while text is printed, so that it stays in order.
    printing: Mutex<()>,
}

impl Output {
    /// Notes that the program has a kernel that prints (`kernel_flags::PRINTS`).
    pub(crate) fn expect(&self) {
        self.is_expected.store(true, Ordering::Relaxed);
    }

    /// Returns whether there may be text.
    pub(crate) fn is_expected(&self) -> bool {
        self.is_expected.load(Ordering::Relaxed)
    }

    /// Prints the text that kernels have left, if there may be some.
    #[inline]
    pub(crate) fn print(&self, space: &AddressSpace<'_>) {
        if self.is_expected() {
            self.print_all(space);
        }
    }

    #[cold]
    fn print_all(&self, space: &AddressSpace<'_>) {
        let _printing = self.printing.lock();
        loop {
            let reply = match space.take_output() {
                Ok(reply) => reply,
                Err(error) => {
                    log::debug!("cannot ask for text of kernels: {error}");
                    return;
                }
            };
            let used = (reply.text_bytes as usize).min(reply.text.len());
            write(&reply.text[..used]);
            if used < reply.text.len() {
                return;
            }
        }
    }
}

unsafe extern "C" {
    /// The program's standard output, as its own `printf` uses it.
    static stdout: *mut libc::FILE;
}

/// Writes to the C library's standard output, so that text of kernels and text of a C program stay
/// in order.
fn write(text: &[u8]) {
    if text.is_empty() {
        return;
    }
    // SAFETY: the C library has set the stream before any code of a program runs, and locks it; the
    // text is as long as is said.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
        libc::fflush(stdout);
    }
}
