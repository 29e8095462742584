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
    /// How long the command may take to end in order.
    pub terms: Terms,
    /// Helps the command to end in order. Called when three quarters of [`Terms::grace`] have
    /// passed without progress.
    pub help: Box<dyn FnMut() + Send>,
    /// Says why the process ends, and removes what it would leave behind. If this takes longer than
    /// half a second, the process ends all the same.
    pub last_words: Box<dyn FnOnce(&Unheeded) + Send>,
    /// Returns the exit status of a process that the signal with this number has ended.
    pub status: fn(signal: i32) -> i32,
}

debug_by_name!(LastResort);

/// How long a command may take to end in order after a signal.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Time from the signal until the process is ended. It begins anew when the command makes
    /// progress, as one does that ends many VMs one after the other.
    pub grace: Duration,
    /// Longest time from the signal until the process is ended, whatever progress it makes.
    pub limit: Duration,
    /// Returns a number that changes when the command makes progress. Takes no lock.
    pub progress: fn() -> u64,
}

/// A signal after which a command has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unheeded {
    /// Number of the signal.
    pub signal: i32,
    /// Time since the signal. Time in which the process did not run hardly counts.
    pub waited: Duration,
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
    /// The last signal that was for the program, and when it came.
    passed_on: Option<(i32, Instant)>,
    /// Exit status of the process, if it is known already.
    status: Option<i32>,
    /// The signal that ends the command.
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    signal: i32,
    begun: Instant,
    /// Time since the signal.
    waited: Duration,
    /// Time since the command made progress.
    idle: Duration,
    /// What [`Terms::progress`] returned last.
    progress: Option<u64>,
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
        self.passed_on = self
            .ending
            .take()
            .map(|ending| (ending.signal, ending.begun));
    }

    /// The program has ended, if it was started at all, and so must the command. If the program has
    /// ended by a signal, the time for that begins now: a signal that came less than `grace` ago,
    /// or that `is_end_by` recognizes. One that the program has survived is no reason to hurry.
    pub fn program_ended(
        &mut self,
        status: Option<i32>,
        grace: Duration,
        is_end_by: impl FnOnce(i32) -> bool,
    ) {
        self.passes_on = false;
        self.status = status;
        if let Some((signal, came)) = self.passed_on.take()
            && (came.elapsed() < grace || is_end_by(signal))
        {
            self.begin(signal);
        }
    }

    fn begin(&mut self, signal: i32) {
        self.ending = Some(Ending {
            signal,
            begun: Instant::now(),
            waited: Duration::ZERO,
            idle: Duration::ZERO,
            progress: None,
            is_helped: false,
        });
    }

    /// Notes a signal that ends commands. Returns whether the process must end at once.
    fn arrived(&mut self, signal: i32) -> bool {
        if self.passes_on {
            self.passed_on = Some((signal, Instant::now()));
            return false;
        }
        match &self.ending {
            Some(ending) => ending.begun.elapsed() >= REPEATED_AFTER,
            None => {
                self.begin(signal);
                false
            }
        }
    }

    /// Takes `step` off the time of a command that ends. Returns what it is time for.
    fn elapse(&mut self, step: Duration, terms: &Terms) -> Due {
        let Some(ending) = &mut self.ending else {
            return Due::Nothing;
        };
        ending.waited += step;
        ending.idle += step;
        let progress = (terms.progress)();
        let before = ending.progress.replace(progress);
        if before.is_some_and(|before| before != progress) {
            ending.idle = Duration::ZERO;
            ending.is_helped = false;
        }
        if ending.idle >= terms.grace || ending.waited >= terms.limit {
            return Due::End;
        }
        let helps =
            ending.idle >= terms.grace * 3 / 4 && !std::mem::replace(&mut ending.is_helped, true);
        if helps { Due::Help } else { Due::Nothing }
    }
}

/// The command's handle to the thread.
#[derive(Debug)]
pub(super) struct Control {
    pub orders: Arc<Mutex<Orders>>,
    grace: Duration,
    status: fn(i32) -> i32,
    wake: OwnedFd,
}

impl Control {
    /// The program to which signals were passed has ended with `status`, if it was started.
    pub fn program_ended(&self, status: Option<i32>) {
        let is_end_by = |signal| status == Some((self.status)(signal));
        let mut orders = self.orders.lock();
        orders.program_ended(status, self.grace, is_end_by);
        drop(orders);
        self.wake();
    }

    /// Makes the thread look at the orders.
    fn wake(&self) {
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
    terms: Terms,
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
        grace: resort.terms.grace,
        status: resort.status,
        wake: wake.try_clone()?,
    };
    let (tasks, asked) = sync_channel(2);
    let (told, spoken) = sync_channel(1);
    let (mut help, last_words) = (resort.help, resort.last_words);
    let speaker = thread::Builder::new().name("last-words".to_owned());
    speaker.spawn(move || {
        loop {
            match asked.recv() {
                Ok(Task::Help) => help(),
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
        terms: resort.terms,
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
                true => self.orders.lock().elapse(step, &self.terms),
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
            let again = self.orders.lock().arrived(arrived.signal);
            if again {
                self.end(true);
            }
        }
    }

    /// Ends the process.
    fn end(&self, is_repeated: bool) -> ! {
        let (signal, waited, status) = {
            let orders = self.orders.lock();
            let ending = orders.ending.as_ref();
            let (signal, waited) = ending.map_or_else(Default::default, |e| (e.signal, e.waited));
            let status = orders.status.unwrap_or((self.status)(signal));
            (signal, waited, status)
        };
        let unheeded = Unheeded {
            signal,
            waited,
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
    use std::sync::atomic::{AtomicU64, Ordering};

    const GRACE: Duration = Duration::from_secs(2);
    const IDLE: Terms = Terms {
        grace: GRACE,
        limit: Duration::from_secs(30),
        progress: || 0,
    };

    /// Returns what is due after each step until the end is.
    fn until_the_end(orders: &mut Orders, terms: &Terms) -> Vec<Due> {
        let mut dues = Vec::new();
        while dues.last() != Some(&Due::End) {
            dues.push(orders.elapse(STEP, terms));
        }
        dues
    }

    /// Returns the number of steps in `time`.
    fn steps(time: Duration) -> usize {
        (time.as_millis() / STEP.as_millis()) as usize
    }

    #[test]
    fn there_is_help_after_three_quarters_of_the_time_and_the_end_after_all_of_it() {
        let mut orders = Orders::default();
        assert_eq!(orders.elapse(GRACE, &IDLE), Due::Nothing, "no signal came");
        assert!(!orders.arrived(15));
        let dues = until_the_end(&mut orders, &IDLE);
        let helped = dues.iter().position(|due| *due == Due::Help);
        assert_eq!(helped, Some(steps(GRACE) * 3 / 4 - 1));
        assert_eq!(dues.len(), steps(GRACE));
        let count = dues.iter().filter(|due| **due == Due::Help).count();
        assert_eq!(count, 1);
    }

    #[test]
    fn a_command_that_makes_progress_has_more_time_and_help_again() {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let terms = Terms {
            progress: || MADE.load(Ordering::Relaxed),
            ..IDLE
        };
        let mut orders = Orders::default();
        assert!(!orders.arrived(15));
        let mut helped = 0;
        for _ in 0..5 {
            for _ in 1..steps(GRACE) {
                let due = orders.elapse(STEP, &terms);
                assert_ne!(due, Due::End);
                helped += u32::from(due == Due::Help);
            }
            MADE.fetch_add(1, Ordering::Relaxed);
            assert_eq!(orders.elapse(STEP, &terms), Due::Nothing);
        }
        assert_eq!(helped, 5);
        assert_eq!(until_the_end(&mut orders, &terms).len(), steps(GRACE));
    }

    #[test]
    fn progress_without_end_ends_at_the_limit() {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let terms = Terms {
            progress: || MADE.fetch_add(1, Ordering::Relaxed),
            ..IDLE
        };
        let mut orders = Orders::default();
        assert!(!orders.arrived(15));
        assert_eq!(until_the_end(&mut orders, &terms).len(), steps(IDLE.limit));
    }

    #[test]
    fn a_second_signal_ends_at_once_unless_it_came_with_the_first() {
        let mut orders = Orders::default();
        assert!(!orders.arrived(15) && !orders.arrived(1));
        let ending = orders.ending.as_mut().unwrap();
        assert_eq!(ending.signal, 15);
        ending.begun = ending.begun.checked_sub(REPEATED_AFTER).unwrap();
        assert!(orders.arrived(15));
    }

    #[test]
    fn signals_for_a_program_end_the_command_only_after_it() {
        let mut orders = Orders::default();
        // It came before the program was there, and goes to the program now.
        assert!(!orders.arrived(15));
        orders.pass_on();
        assert_eq!(orders.elapse(GRACE, &IDLE), Due::Nothing);
        assert!(!orders.arrived(2));
        assert_eq!(orders.elapse(GRACE, &IDLE), Due::Nothing);
        orders.program_ended(Some(7), GRACE, |_| false);
        assert_eq!(orders.ending.as_ref().unwrap().signal, 2);
        assert_eq!(orders.status, Some(7));
        assert_eq!(orders.elapse(GRACE, &IDLE), Due::End);
        let mut orders = Orders::default();
        orders.pass_on();
        orders.program_ended(Some(0), GRACE, |_| false);
        assert!(orders.ending.is_none(), "no signal has come");
    }

    #[test]
    fn a_signal_that_the_program_has_survived_does_not_end_the_command() {
        for (is_end_by, ends) in [(false, false), (true, true)] {
            let mut orders = Orders::default();
            orders.pass_on();
            assert!(!orders.arrived(15));
            let (_, came) = orders.passed_on.as_mut().unwrap();
            *came = came.checked_sub(GRACE).unwrap();
            orders.program_ended(Some(0), GRACE, |_| is_end_by);
            assert_eq!(orders.ending.is_some(), ends, "{is_end_by}");
            // The next one is for the command again.
            assert!(!orders.arrived(2));
            assert!(orders.ending.is_some());
        }
    }

    #[test]
    fn the_command_reads_the_signals_that_the_thread_has_read() {
        let (source, mut writer) = UnixStream::pair().unwrap();
        source.set_nonblocking(true).unwrap();
        let source = File::from(OwnedFd::from(source));
        // The thread outlives this test, and must not end the process of the others with success.
        let resort = LastResort {
            terms: Terms {
                grace: Duration::from_secs(3600),
                limit: Duration::from_secs(3600),
                ..IDLE
            },
            help: Box::new(|| ()),
            last_words: Box::new(|_| ()),
            status: |_| 1,
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
