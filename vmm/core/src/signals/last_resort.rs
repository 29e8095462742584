//! The last resort of a command that a signal does not end: a thread that receives the signals
//! before the command does, and ends the process if the command has not ended in time.
//!
//! A driver in this process can hold up any other thread for ever, also the one that reads signals
//! and the one that holds the lock of standard error. So what this file does needs no other thread,
//! no lock that a driver can hold, and no thread that starts only then.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{Arrived, RECORD_BYTES};

/// Longest time between two looks at the clock. Time in which this process did not run at all
/// (SIGSTOP, a host without a free CPU) counts as no more than this.
const STEP: Duration = Duration::from_millis(50);
/// A signal this short after the first is no second request. Terminals that close, service managers
/// and programs that pass signals on send two at once.
const REPEATED_AFTER: Duration = Duration::from_millis(200);
/// Time for the last words, which may have to wait for a file system or for whoever reads standard
/// error.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What to do for a command that does not end after a signal.
pub struct LastResort {
    /// Time from the signal until the process is ended. The command ends in order meanwhile.
    pub grace: Duration,
    /// Helps the command to end in order. Called when three quarters of its time are over.
    pub help: Box<dyn FnOnce() + Send>,
    /// Says why the process ends, and removes what it would leave behind. If this takes longer than
    /// half a second, the process ends all the same.
    pub last_words: Box<dyn FnOnce(&Unheeded) + Send>,
    /// Returns the exit status of a process that the signal with this number has ended.
    pub status: fn(signal: i32) -> i32,
}

debug_by_name!(LastResort);

/// A signal after which a command has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unheeded {
    /// Number of the signal.
    pub signal: i32,
    /// Whether a signal came again, which ends the process before its time is over.
    pub is_repeated: bool,
}

/// What the second thread does.
enum Task {
    Help,
    LastWords(Unheeded),
}

/// How signals concern this process, for the thread and for the command.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Whether signals are for a program that the command has started. They end no command then.
    pub passes_on: bool,
    /// The last signal that was for the program.
    passed_on: Option<i32>,
    /// Exit status of the process, if it is known already.
    status: Option<i32>,
    /// The signal that ends the command.
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    signal: i32,
    begun: Instant,
    left: Duration,
    is_helped: bool,
}

/// What the thread must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Help,
    End,
}

impl Orders {
    /// Signals are for a program from now on, even one that came before.
    pub fn pass_on(&mut self) {
        self.passes_on = true;
        self.passed_on = self.ending.take().map(|ending| ending.signal);
    }

    /// The program has ended, and so must the command. If a signal came meanwhile, the time for
    /// that begins now.
    pub fn program_ended(&mut self, status: i32, grace: Duration) {
        self.passes_on = false;
        self.status = Some(status);
        if let Some(signal) = self.passed_on.take() {
            self.begin(signal, grace);
        }
    }

    fn begin(&mut self, signal: i32, grace: Duration) {
        self.ending = Some(Ending {
            signal,
            begun: Instant::now(),
            left: grace,
            is_helped: false,
        });
    }

    /// Notes a signal that ends commands. Returns whether the process must end at once.
    fn arrived(&mut self, signal: i32, grace: Duration) -> bool {
        if self.passes_on {
            self.passed_on = Some(signal);
            return false;
        }
        match &self.ending {
            Some(ending) => ending.begun.elapsed() >= REPEATED_AFTER,
            None => {
                self.begin(signal, grace);
                false
            }
        }
    }

    /// Takes `step` off the time of a command that ends. Returns what it is time for.
    fn elapse(&mut self, step: Duration, grace: Duration) -> Due {
        let Some(ending) = &mut self.ending else {
            return Due::Nothing;
        };
        ending.left = ending.left.saturating_sub(step);
        if ending.left.is_zero() {
            return Due::End;
        }
        let helps = ending.left <= grace / 4 && !std::mem::replace(&mut ending.is_helped, true);
        if helps { Due::Help } else { Due::Nothing }
    }
}

/// The command's handle to the thread.
#[derive(Debug)]
pub(super) struct Control {
    pub orders: Arc<Mutex<Orders>>,
    pub grace: Duration,
    wake: OwnedFd,
}

impl Control {
    /// Makes the thread look at the orders.
    pub fn wake(&self) {
        // Only a full counter refuses, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// The thread's own state.
struct Watcher {
    /// The `signalfd`.
    source: File,
    /// Where the command reads the signals.
    command: UnixStream,
    wake: OwnedFd,
    orders: Arc<Mutex<Orders>>,
    grace: Duration,
    status: fn(i32) -> i32,
    tasks: SyncSender<Task>,
    spoken: Receiver<()>,
}

/// Starts the thread, which reads `source`, a `signalfd`. Returns the file from which the command
/// reads the signals instead, and the command's handle to the thread.
pub(super) fn start(source: File, resort: LastResort) -> io::Result<(File, Control)> {
    let (command, reader) = UnixStream::pair()?;
    command.set_nonblocking(true)?;
    reader.set_nonblocking(true)?;
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let orders = Arc::<Mutex<Orders>>::default();
    let control = Control {
        orders: Arc::clone(&orders),
        grace: resort.grace,
        wake: wake.try_clone()?,
    };
    let (tasks, asked) = sync_channel(2);
    let (told, spoken) = sync_channel(1);
    let (help, last_words) = (resort.help, resort.last_words);
    let speaker = thread::Builder::new().name("last-words".to_owned());
    speaker.spawn(move || {
        let mut help = Some(help);
        loop {
            match asked.recv() {
                Ok(Task::Help) => help.take().into_iter().for_each(|help| help()),
                Ok(Task::LastWords(unheeded)) => {
                    last_words(&unheeded);
                    let _ = told.send(());
                    return;
                }
                // The command has ended.
                Err(_) => return,
            }
        }
    })?;
    let watcher = Watcher {
        source,
        command,
        wake,
        orders,
        grace: resort.grace,
        status: resort.status,
        tasks,
        spoken,
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || watcher.run())?;
    Ok((File::from(OwnedFd::from(reader)), control))
}

impl Watcher {
    /// Watches until the command needs no signals any more, or to the end of the process once a
    /// signal ends the command: the driver can also hang in what it does at the process's exit.
    fn run(mut self) {
        let mut seen = Instant::now();
        let mut is_listening = true;
        loop {
            let ends = self.orders.lock().ending.is_some();
            if !is_listening && !ends {
                return;
            }
            is_listening &= self.wait(is_listening, ends);
            let now = Instant::now();
            let step = now.duration_since(seen).min(STEP);
            seen = now;
            let due = match ends {
                true => self.orders.lock().elapse(step, self.grace),
                // The step is from the time before the signal.
                false => Due::Nothing,
            };
            match due {
                Due::Nothing => {}
                Due::Help => drop(self.tasks.try_send(Task::Help)),
                Due::End => self.end(false),
            }
            self.read();
        }
    }

    /// Waits for a signal or an order, or if `ends` is true for the next step of the clock. Returns
    /// whether the command still reads signals.
    fn wait(&self, is_listening: bool, ends: bool) -> bool {
        let step = ends.then(|| Timespec::try_from(STEP).ok()).flatten();
        let mut polled = vec![
            PollFd::new(&self.source, PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        if is_listening {
            // A hang-up is always reported, and reported again at each poll.
            polled.push(PollFd::new(&self.command, PollFlags::empty()));
        }
        // An interrupted wait is one that has found nothing.
        let _ = poll(&mut polled, step.as_ref());
        let hung_up = polled.get(2).is_some_and(|end| !end.revents().is_empty());
        let _ = rustix::io::read(self.wake.as_fd(), &mut [0; 8]);
        !hung_up
    }

    /// Hands the signals that have arrived to the command.
    fn read(&mut self) {
        let mut record = [0; RECORD_BYTES];
        while self.source.read_exact(&mut record).is_ok() {
            // A command that has ended, or that does not read, gets no more.
            let _ = self.command.write_all(&record);
            let arrived = Arrived::parse(&record);
            let Some(arrived) = arrived.filter(Arrived::ends_commands) else {
                continue;
            };
            let again = self.orders.lock().arrived(arrived.signal, self.grace);
            if again {
                self.end(true);
            }
        }
    }

    /// Ends the process.
    fn end(&self, is_repeated: bool) -> ! {
        let (signal, status) = {
            let orders = self.orders.lock();
            let signal = orders.ending.as_ref().map_or(0, |ending| ending.signal);
            (signal, orders.status.unwrap_or((self.status)(signal)))
        };
        let unheeded = Unheeded {
            signal,
            is_repeated,
        };
        if self.tasks.try_send(Task::LastWords(unheeded)).is_ok() {
            let _ = self.spoken.recv_timeout(LAST_WORDS);
        }
        // Not `exit`: functions that run then wait for the driver, or for locks.
        // SAFETY: ends the process, and no code of it runs after that.
        unsafe { libc::_exit(status) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    #[test]
    fn there_is_help_after_three_quarters_of_the_time_and_the_end_after_all_of_it() {
        let mut orders = Orders::default();
        assert_eq!(orders.elapse(GRACE, GRACE), Due::Nothing, "no signal came");
        assert!(!orders.arrived(15, GRACE));
        let steps = GRACE.as_millis() / STEP.as_millis();
        for step in 1..steps {
            let due = match step * 4 == steps * 3 {
                true => Due::Help,
                false => Due::Nothing,
            };
            assert_eq!(orders.elapse(STEP, GRACE), due, "step {step}");
        }
        assert_eq!(orders.elapse(STEP, GRACE), Due::End);
    }

    #[test]
    fn a_second_signal_ends_at_once_unless_it_came_with_the_first() {
        let mut orders = Orders::default();
        assert!(!orders.arrived(15, GRACE) && !orders.arrived(1, GRACE));
        let ending = orders.ending.as_mut().unwrap();
        assert_eq!(ending.signal, 15);
        ending.begun = ending.begun.checked_sub(REPEATED_AFTER).unwrap();
        assert!(orders.arrived(15, GRACE));
    }

    #[test]
    fn signals_for_a_program_end_the_command_only_after_it() {
        let mut orders = Orders::default();
        // It came before the program was there, and goes to the program now.
        assert!(!orders.arrived(15, GRACE));
        orders.pass_on();
        assert_eq!(orders.elapse(GRACE, GRACE), Due::Nothing);
        assert!(!orders.arrived(2, GRACE));
        assert_eq!(orders.elapse(GRACE, GRACE), Due::Nothing);
        orders.program_ended(7, GRACE);
        assert_eq!(orders.ending.as_ref().unwrap().signal, 2);
        assert_eq!(orders.status, Some(7));
        assert_eq!(orders.elapse(GRACE, GRACE), Due::End);
        let mut orders = Orders::default();
        orders.pass_on();
        orders.program_ended(0, GRACE);
        assert!(orders.ending.is_none(), "no signal has come");
    }

    #[test]
    fn the_command_reads_the_signals_that_the_thread_has_read() {
        let (source, mut writer) = UnixStream::pair().unwrap();
        source.set_nonblocking(true).unwrap();
        let source = File::from(OwnedFd::from(source));
        let resort = LastResort {
            grace: Duration::from_secs(3600),
            help: Box::new(|| ()),
            last_words: Box::new(|_| ()),
            status: |_| 0,
        };
        let (mut reader, control) = start(source, resort).unwrap();
        let mut record = [0; RECORD_BYTES];
        record[..4].copy_from_slice(&15_i32.to_ne_bytes());
        writer.write_all(&record).unwrap();
        let mut read = [0; RECORD_BYTES];
        while reader.read_exact(&mut read).is_err() {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(read, record);
        assert_eq!(
            control.orders.lock().ending.as_ref().map(|e| e.signal),
            Some(15)
        );
        drop(control);
    }
}
