//! The handler of SIGSYS: it names the system call by which the process ends.
#![allow(unsafe_code)] // A signal handler.

use std::io;
use std::mem::MaybeUninit;

use libc::{c_int, c_void, siginfo_t};

use crate::calls::names::name;

/// Offset of `si_syscall` in `siginfo_t` of 64-bit Linux (sigaction(2)): after three numbers,
/// padding, and the address of the call.
const CALL_OFFSET: usize = 24;

/// Makes a system call that the filter does not know end this process with a line on standard error
/// that names the call. The process ends by SIGSYS.
pub fn name_calls() -> io::Result<()> {
    // SAFETY: zero is valid for all fields: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler calls only what signal handlers may call.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Only what may be called in a signal handler (signal-safety(7)) is called.
extern "C" fn handle(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid structure, in which SIGSYS has the number there. The
    // structure has 128 bytes.
    let number: c_int = unsafe { info.byte_add(CALL_OFFSET).cast::<c_int>().read() };
    let mut line = Line::default();
    line.add(b"error: a confined process made the system call ");
    line.add(name(number.into()).unwrap_or("without a name").as_bytes());
    line.add(b" (number ");
    line.add_number(number.unsigned_abs());
    line.add(
        b"), which its sandbox forbids, so it ends; report a bug, and use --sandbox off only for \
          guests that you trust\n",
    );
    let text = line.text();
    // SAFETY: writes from memory that lives. The default action of the signal that is sent next
    // ends the process when this handler returns.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::signal(libc::SIGSYS, libc::SIG_DFL);
        libc::raise(libc::SIGSYS);
    }
}

/// A line of text that is made without an allocation.
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; 256],
            length: 0,
        }
    }
}

impl Line {
    /// Adds what there is room for.
    fn add(&mut self, text: &[u8]) {
        for (room, byte) in self.bytes[self.length..].iter_mut().zip(text) {
            *room = *byte;
            self.length += 1;
        }
    }

    fn add_number(&mut self, number: u32) {
        if number >= 10 {
            self.add_number(number / 10);
        }
        self.add(&[b'0' + (number % 10) as u8]);
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_what_it_has_room_for() {
        let mut line = Line::default();
        line.add(b"call ");
        line.add_number(0);
        line.add(b" ");
        line.add_number(u32::MAX);
        assert_eq!(line.text(), b"call 0 4294967295");
        line.add(&[b'x'; 300]);
        assert_eq!(line.text().len(), 256);
    }
}
