//! How often an eventfd was signalled, read without resetting it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use vmm_sys_util::eventfd::EventFd;

/// More bytes than the Linux kernel writes about an eventfd.
const INFO_BYTES_MAX: usize = 512;

/// The counter of one eventfd, as `/proc/self/fdinfo` shows it (proc(5)). As long as nobody reads
/// the eventfd, its counter is the number of signals since it was created.
#[derive(Debug)]
pub struct SignalCount(File);

impl SignalCount {
    /// Returns the counter of `event`, which must stay open as long as the result is used: the
    /// kernel finds it by the number of its descriptor.
    ///
    /// # Errors
    /// The error of open(2), for example because no proc file system is mounted.
    pub fn of(event: &EventFd) -> io::Result<Self> {
        File::open(format!("/proc/self/fdinfo/{}", event.as_raw_fd())).map(Self)
    }

    /// Returns the current value of the counter; `None` if the kernel does not tell it.
    pub fn read(&self) -> Option<u64> {
        let mut info = [0; INFO_BYTES_MAX];
        // A read at offset 0 makes the kernel write the current text.
        let bytes = self.0.read_at(&mut info, 0).ok()?;
        parse(info.get(..bytes)?)
    }
}

/// Returns the counter in the text about an eventfd, which has it in hexadecimal.
fn parse(info: &[u8]) -> Option<u64> {
    let mut lines = std::str::from_utf8(info).ok()?.lines();
    let count = lines.find_map(|line| line.strip_prefix("eventfd-count:"))?;
    u64::from_str_radix(count.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_counted_and_stay_for_their_reader() {
        let event = EventFd::new(libc::EFD_NONBLOCK).unwrap();
        let count = SignalCount::of(&event).unwrap();
        assert_eq!(count.read(), Some(0));
        for _ in 0..300 {
            event.write(1).unwrap();
        }
        assert_eq!((count.read(), count.read()), (Some(300), Some(300)));
        assert_eq!(event.read().unwrap(), 300);
        assert_eq!(count.read(), Some(0));
    }

    #[test]
    fn what_is_no_eventfd_has_no_counter() {
        assert_eq!(
            parse(b"pos:\t0\neventfd-count:               1f\n"),
            Some(0x1f)
        );
        assert_eq!(parse(b"pos:\t0\nflags:\t02000002\n"), None);
        assert_eq!(parse(b"eventfd-count: many\n"), None);
    }
}
