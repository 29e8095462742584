//! Signals that end a run, read from a descriptor (`signalfd`).
#![allow(unsafe_code)] // `signalfd`, `sigaction` and `_exit` have no safe wrapper among our crates.

mod last_resort;

use std::fs::File;
use std::io::{self, Read};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{self, Command};
use std::sync::Arc;

use vmm_sys_util::signal::{block_signal, create_sigset, unblock_signal};

use last_resort::Control;
pub use last_resort::{LastResort, Terms, Unheeded};

/// Signals that end a run.
const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE];
/// Signals that a command passes on to a program that it has started.
const PASSED_ON: [i32; 3] = [libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];
/// Bytes of a signal that is read from a `signalfd`.
const RECORD_BYTES: usize = size_of::<libc::signalfd_siginfo>();

/// A descriptor that becomes readable when SIGINT, SIGTERM, SIGHUP or SIGPIPE arrives. While this
/// value lives, these signals are blocked in the thread that created it and in threads that this
/// thread creates: they do not end the process, so that it can write what it has measured.
///
/// SIGHUP is left alone if the process was started to ignore it, as by nohup(1).
#[derive(Debug)]
pub struct Signals {
    file: File,
    blocked: Vec<i32>,
    watch: Option<Watch>,
}

/// The thread that reads signals before the command does.
#[derive(Debug)]
struct Watch {
    /// What the thread reads.
    source: File,
    control: Arc<Control>,
}

/// Signals are for a program, and do not end this process. After a drop they end it again: the
/// program has ended, or was never started. A signal that was passed on to the program ends this
/// process, too, in time, unless the program has survived it: has ended later than the time that
/// this process has to end, and not with the exit status for that signal.
#[derive(Debug)]
#[must_use]
pub struct PassedOn {
    control: Option<Arc<Control>>,
    status: Option<i32>,
}

impl PassedOn {
    /// Tells that the program has ended. `status` is the exit status of this process from now on,
    /// also if it has to be ended.
    pub fn program_ended(mut self, status: i32) {
        self.status = Some(status);
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        if let Some(control) = &self.control {
            control.program_ended(self.status);
        }
    }
}

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// Whether the Linux kernel sent it, as for keys of the terminal, which send a signal to all
    /// processes in the foreground.
    pub is_of_terminal: bool,
}

impl Arrived {
    /// Returns the signal that a record of a `signalfd` tells of; `None` if it is to be ignored.
    fn parse(info: &[u8; RECORD_BYTES]) -> Option<Self> {
        let field = |offset: usize| {
            let bytes = info.get(offset..)?.first_chunk()?;
            Some(u32::from_ne_bytes(*bytes))
        };
        let signal = field(offset_of!(libc::signalfd_siginfo, ssi_signo))?;
        let sender = field(offset_of!(libc::signalfd_siginfo, ssi_pid))?;
        let code = field(offset_of!(libc::signalfd_siginfo, ssi_code))?;
        // Linux sends SIGPIPE to a thread that writes to a pipe without a reader, in the process's
        // own name. The write has failed, which is reason enough to stop or go on.
        let is_own_write = signal == libc::SIGPIPE.cast_unsigned() && sender == process::id();
        (!is_own_write).then_some(Self {
            signal: signal.cast_signed(),
            // Codes of signals that processes send are not positive (sigaction(2)).
            is_of_terminal: code.cast_signed() > 0,
        })
    }

    /// Returns whether the signal ends a command that has started no program.
    fn ends_commands(&self) -> bool {
        ![libc::SIGUSR1, libc::SIGUSR2].contains(&self.signal)
    }
}

impl Signals {
    /// Blocks the signals and opens the descriptor. No other thread may exist yet: in such a
    /// thread, the signals would still end the process.
    ///
    /// # Errors
    /// The Linux kernel's error if the process has no file descriptor left.
    pub fn block() -> io::Result<Self> {
        Self::block_these(&SIGNALS)
    }

    /// Blocks, beside the signals that end a run, those that users send to programs (SIGQUIT,
    /// SIGUSR1, SIGUSR2), so that the caller can pass them on to a program. Otherwise as
    /// [`Self::block`].
    ///
    /// # Errors
    /// The Linux kernel's error if the process has no file descriptor left.
    pub fn block_for_program() -> io::Result<Self> {
        Self::block_these(&[&SIGNALS[..], &PASSED_ON].concat())
    }

    fn block_these(signals: &[i32]) -> io::Result<Self> {
        let wanted = signals.iter().copied();
        let wanted = wanted.filter(|signal| *signal != libc::SIGHUP || !is_ignored(*signal));
        let wanted: Vec<i32> = wanted.collect();
        let set = create_sigset(&wanted).map_err(io::Error::from)?;
        // Refused only for a signal that is blocked already, which then is not ours to unblock.
        let blocked = wanted
            .into_iter()
            .filter(|signal| block_signal(*signal).is_ok())
            .collect();
        // SAFETY: the set is valid for the call, and -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is fresh, and nobody else knows of it.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(Self {
            file,
            blocked,
            watch: None,
        })
    }

    /// Starts a thread that ends the process if a signal has arrived and the process has not ended
    /// in time, whatever its other threads wait for. A second signal, unless it comes with the
    /// first, ends the process at once. The thread watches until the process ends, or until this
    /// object is dropped without a signal.
    ///
    /// The thread sees signals to the process, not those to one of its threads.
    ///
    /// # Errors
    /// The Linux kernel's error if it has no descriptor or no thread left.
    pub fn watched(mut self, resort: LastResort) -> io::Result<Self> {
        let source = self.file.try_clone()?;
        let (file, control) = last_resort::start(self.file.try_clone()?, resort)?;
        self.file = file;
        let control = Arc::new(control);
        self.watch = Some(Watch { source, control });
        Ok(self)
    }

    /// Tells that signals are for a program from now on, to which the caller passes them: they do
    /// not end this process while the returned value lives.
    pub fn pass_on(&self) -> PassedOn {
        let control = self.watch.as_ref().map(|watch| Arc::clone(&watch.control));
        if let Some(control) = &control {
            control.orders.lock().pass_on();
        }
        PassedOn {
            control,
            status: None,
        }
    }

    /// Makes the process that `command` starts receive the signals that this object blocks. Without
    /// it, the process has them blocked, too.
    pub fn let_through(&self, command: &mut Command) {
        let blocked = self.blocked.clone();
        let unblock = move || {
            let failed = blocked
                .iter()
                .find(|signal| unblock_signal(**signal).is_err());
            failed.map_or(Ok(()), |_| Err(io::Error::from_raw_os_error(libc::EINVAL)))
        };
        // SAFETY: between fork and exec, the closure only makes system calls and reads memory that
        // it owns.
        unsafe { command.pre_exec(unblock) };
    }

    /// Returns the number of a signal that has arrived and was not taken yet; `None` if there is
    /// none.
    pub fn take(&mut self) -> Option<i32> {
        self.take_arrived().map(|arrived| arrived.signal)
    }

    /// Returns a signal that has arrived and was not taken yet, and who sent it; `None` if there is
    /// none.
    pub fn take_arrived(&mut self) -> Option<Arrived> {
        loop {
            let mut info = [0; RECORD_BYTES];
            self.file.read_exact(&mut info).ok()?;
            if let Some(arrived) = Arrived::parse(&info) {
                return Some(arrived);
            }
        }
    }
}

/// Returns whether this process ignores `signal`.
fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, the call only writes the current one.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } == 0;
    // SAFETY: all zeros are a valid value, and the call has written another one or none.
    let action = unsafe { action.assume_init() };
    known && action.sa_sigaction == libc::SIG_IGN
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What came while nobody read must not kill the process now that the run is over.
        while self.take().is_some() {}
        if let Some(watch) = &mut self.watch {
            while watch.source.read_exact(&mut [0; RECORD_BYTES]).is_ok() {}
        }
        for signal in &self.blocked {
            if let Err(e) = unblock_signal(*signal) {
                log::warn!(
                    "cannot unblock signal {signal} at the end of the run, so this process ignores \
                     the signal from now on: {e}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    #[test]
    fn a_signal_to_this_thread_is_read_and_not_died_of() {
        let mut signals = Signals::block().unwrap();
        assert_eq!(signals.take(), None);
        // SAFETY: signals this thread only, which has the signal blocked.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        assert_eq!(signals.take(), Some(libc::SIGTERM));
        assert_eq!(signals.take(), None);
        // SAFETY: as above.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGINT) };
        drop(signals);
    }

    #[test]
    fn signals_for_a_program_are_taken_with_their_sender() {
        let mut signals = Signals::block_for_program().unwrap();
        for signal in [libc::SIGUSR1, libc::SIGQUIT] {
            // SAFETY: signals this thread only, which has the signal blocked.
            unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
            let wanted = Arrived {
                signal,
                is_of_terminal: false,
            };
            assert_eq!(signals.take_arrived(), Some(wanted));
        }
        assert_eq!(signals.take_arrived(), None);
    }

    /// As when the program cannot be started, which is one of many ways to leave.
    #[test]
    fn signals_end_the_process_again_whatever_becomes_of_the_program() {
        let resort = LastResort {
            terms: Terms {
                grace: Duration::from_secs(3600),
                limit: Duration::from_secs(3600),
                progress: || 0,
            },
            help: Box::new(|| ()),
            last_words: Box::new(|_| ()),
            status: |signal| signal,
        };
        let signals = Signals::block().unwrap().watched(resort).unwrap();
        let passes_on = || {
            let watch = signals.watch.as_ref().unwrap();
            watch.control.orders.lock().passes_on
        };
        let passed_on = signals.pass_on();
        assert!(passes_on());
        drop(passed_on);
        assert!(!passes_on());
        signals.pass_on().program_ended(0);
        assert!(!passes_on());
    }

    #[test]
    fn a_hangup_is_taken_and_a_write_that_nobody_reads_is_no_signal() {
        let mut signals = Signals::block().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        drop(reader);
        let error = writer.write_all(b"text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        // SAFETY: signals this thread only, which has the signal blocked.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGHUP) };
        let taken = [signals.take(), signals.take()];
        assert_eq!(taken, [Some(libc::SIGHUP), None]);
    }

    #[test]
    fn signals_are_ignored_as_the_process_was_told() {
        // Rust programs begin with SIGPIPE ignored.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGCHLD));
    }
}
