//! An emulated machine.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use causeway_nested_agent::message::{Answer, Request, Survey, Terminal};

use crate::command::{Command, Outcome};
use crate::contents::{Contents, ContentsError};
use crate::emulator::Emulator;
use crate::link::{Job, JobRecord, Link, Printed, RequestError};
use crate::requirements::Requirements;

/// How long a machine may take to boot.
const BOOT_LIMIT: Duration = Duration::from_secs(300);
/// How long the agent may take to answer. Emulation is slow, and the host may be busy.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// How long a program may live after it was killed.
const KILL_LIMIT: Duration = Duration::from_secs(90);
/// SIGKILL.
const KILL: i32 = 9;
/// Lines of the console in messages.
const CONSOLE_LINES: usize = 60;

/// What a machine is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its processors.
    pub cpus: u32,
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// Whether it has an IOMMU, and the [devices](crate::devices) that are to be handed out.
    pub has_iommu: bool,
    /// Whether it has the [NUMA nodes](crate::nodes) in place of one; then it has two processors.
    pub has_nodes: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            cpus: 2,
            memory_mib: 3072,
            has_iommu: false,
            has_nodes: false,
        }
    }
}

/// Why a machine did not come up.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// Its initramfs.
    #[error("cannot make an initramfs for the machine")]
    Contents(#[from] ContentsError),
    /// The emulator.
    #[error("cannot start the emulator")]
    Emulator(#[from] io::Error),
    /// It started and did not come up.
    #[error("the machine did not come up: {source}\n{log}")]
    NotUp {
        /// In what way.
        source: RequestError,
        /// Console and emulator.
        log: String,
    },
}

/// A machine that is up. It ends when this is dropped, and when the process ends.
pub struct Machine {
    link: Link,
    emulator: Emulator,
    /// From the start of the emulator to the agent's first word.
    pub boot_time: Duration,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}

impl Machine {
    /// Boots a machine.
    ///
    /// # Errors
    /// [`BootError`].
    pub fn boot(
        requirements: &Requirements,
        shape: &Shape,
        contents: &Contents,
    ) -> Result<Self, BootError> {
        let initramfs: File = contents.archive(&requirements.modules)?;
        let begun = Instant::now();
        let (emulator, stream) = Emulator::start(requirements, shape, initramfs)?;
        let link = Link::new(stream)?;
        let machine = Self {
            link,
            emulator,
            boot_time: Duration::ZERO,
        };
        match machine.link.wait_until_ready(BOOT_LIMIT) {
            Ok(()) => Ok(Self {
                boot_time: begun.elapsed(),
                ..machine
            }),
            Err(source) => Err(BootError::NotUp {
                source,
                log: machine.log(),
            }),
        }
    }

    /// Runs a program to its end.
    ///
    /// # Panics
    /// If it takes longer than its limit, or the machine fails: with all that is known.
    #[track_caller]
    pub fn run(&self, command: &Command) -> Outcome {
        let job = self.start(command);
        self.finish(command, job)
    }

    /// Starts a program.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(&self, command: &Command) -> Job {
        let job = self.link.new_job();
        self.done(&command.request(job), &[]);
        job
    }

    /// Waits for the end of a program. Its terminal is gone then, if it had one.
    ///
    /// # Panics
    /// Like [`run`](Self::run).
    #[track_caller]
    pub fn finish(&self, command: &Command, job: Job) -> Outcome {
        if command.on_terminal {
            self.done(&Request::LetGo { job: job.0 }, &[]);
        }
        match self.link.wait_for(job, command.limit, |record| record.end) {
            Ok(_) => outcome(command, self.link.forget(job)),
            Err(RequestError::Late(limit)) => {
                self.signal(job, KILL, true);
                let ended = self.link.wait_for(job, KILL_LIMIT, |record| record.end);
                let outcome = outcome(command, self.link.forget(job));
                let killed = ended.map_or("could not be killed", |_| "was killed");
                self.fail(&format!(
                    "a program took more than {limit:?} and {killed}: {}",
                    outcome.text()
                ))
            }
            Err(error) => {
                let outcome = outcome(command, self.link.forget(job));
                self.fail(&format!("{error}, while a program ran: {}", outcome.text()))
            }
        }
    }

    /// Waits until a program has printed a text, to either output.
    ///
    /// # Panics
    /// If it does not within its limit, or ends before that.
    #[track_caller]
    pub fn wait_for_text(&self, command: &Command, job: Job, text: &str) {
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
        let found = self.link.wait_for(job, command.limit, |record| {
            let found = said(&record.output.bytes) || said(&record.error.bytes);
            (found || record.end.is_some()).then_some(found)
        });
        if !matches!(found, Ok(true)) {
            let outcome = outcome(command, self.link.forget(job));
            self.fail(&format!(
                "`{text}` was not printed ({found:?}): {}",
                outcome.text()
            ));
        }
    }

    /// Sends a signal to a program, and if `group` says so to what it has started in its process
    /// group. A program that has ended gets none.
    ///
    /// # Panics
    /// If the machine fails.
    #[track_caller]
    pub fn signal(&self, job: Job, signal: i32, group: bool) {
        let job = job.0;
        self.done(&Request::Signal { job, signal, group }, &[]);
    }

    /// Types on the terminal of a program that has one.
    ///
    /// # Panics
    /// If the machine fails, or the program was given no terminal.
    #[track_caller]
    pub fn type_keys(&self, job: Job, keys: &[u8]) {
        self.done(&Request::Type { job: job.0 }, keys);
    }

    /// How the terminal of a program is set. The program may have ended, but not be
    /// [finished](Self::finish).
    ///
    /// # Panics
    /// Like [`type_keys`](Self::type_keys).
    #[track_caller]
    pub fn terminal(&self, job: Job) -> Terminal {
        match self
            .link
            .ask(&Request::Terminal { job: job.0 }, &[], ANSWER_LIMIT)
        {
            Ok((Answer::Terminal(terminal), _)) => terminal,
            other => self.fail(&format!("no terminal: {other:?}")),
        }
    }

    /// Writes a file.
    ///
    /// # Panics
    /// If it cannot be written.
    #[track_caller]
    pub fn write(&self, path: &str, mode: u32, content: &[u8]) {
        let path = path.to_owned();
        self.done(&Request::Write { path, mode }, content);
    }

    /// Lets everybody read and write a file that is there.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn allow_everybody(&self, path: &str) {
        let path = path.to_owned();
        self.done(&Request::Allow { path, mode: 0o666 }, &[]);
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`RequestError::Refused`], if it is not there.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, RequestError> {
        let path = path.to_owned();
        let (_, content) = self.link.ask(&Request::Read { path }, &[], ANSWER_LIMIT)?;
        Ok(content)
    }

    /// What its kernel has logged so far, a line for each message; the oldest may be gone.
    ///
    /// # Panics
    /// If the machine fails.
    #[track_caller]
    pub fn kernel_log(&self) -> String {
        match self.link.ask(&Request::KernelLog, &[], ANSWER_LIMIT) {
            Ok((Answer::Content, text)) => String::from_utf8_lossy(&text).into_owned(),
            other => self.fail(&format!("no kernel log: {other:?}")),
        }
    }

    /// What there is in the machine.
    ///
    /// # Panics
    /// If the machine fails.
    #[track_caller]
    pub fn survey(&self) -> Survey {
        match self.link.ask(&Request::Survey, &[], ANSWER_LIMIT) {
            Ok((Answer::Survey(survey), _)) => survey,
            other => self.fail(&format!("no survey: {other:?}")),
        }
    }

    /// Processor time that emulating it has taken so far.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        self.emulator.processor_time().unwrap_or_default()
    }

    /// Whether it can be used any further.
    #[must_use]
    pub fn is_up(&self) -> bool {
        !self.link.is_gone()
    }

    #[track_caller]
    fn done(&self, request: &Request, body: &[u8]) {
        if let Err(error) = self.link.ask(request, body, ANSWER_LIMIT) {
            self.fail(&format!("{error} ({request:?})"));
        }
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n{}", self.log())
    }

    fn log(&self) -> String {
        format!(
            "--- console ---\n{}\n--- emulator ---\n{}\n---",
            self.emulator.console.tail(CONSOLE_LINES),
            self.emulator.said.tail(CONSOLE_LINES)
        )
    }
}

fn outcome(command: &Command, record: JobRecord) -> Outcome {
    let text = |printed: &Printed| String::from_utf8_lossy(&printed.bytes).into_owned();
    let words = [&command.program].into_iter().chain(&command.arguments);
    Outcome {
        command: words.map(String::as_str).collect::<Vec<_>>().join(" "),
        code: record.end.map_or(i32::MIN, |end| end.code),
        outputs_held: record.end.is_some_and(|end| end.outputs_held),
        stdout: text(&record.output),
        stderr: text(&record.error),
        printed: [record.output, record.error],
    }
}
