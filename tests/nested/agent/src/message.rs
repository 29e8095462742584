//! Requests of the host, and what the agent answers.

use serde::{Deserialize, Serialize};

/// What the host asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Start a program in a process group of its own; answered by [`Answer::Done`] as soon as it
    /// runs.
    Start {
        /// Number by which the host calls it from then on.
        job: u32,
        /// What to run, by its path.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
        /// Environment variables beside `PATH` and `HOME`.
        environment: Vec<(String, String)>,
        /// Where it starts; made if it is not there.
        directory: String,
        /// Whether it has a terminal of its own, in place of no input and two outputs. What it
        /// shows there is its [`Stream::Output`].
        on_terminal: bool,
    },
    /// Type the frame's body on a job's terminal.
    Type {
        /// The job.
        job: u32,
    },
    /// Look how a job's terminal is set, also when the job has ended: [`Answer::Terminal`].
    Terminal {
        /// The job.
        job: u32,
    },
    /// Let go of a job's terminal: nobody will ask for it any more. The end of the job is not told
    /// before that.
    LetGo {
        /// The job.
        job: u32,
    },
    /// Send a signal to a job. One that has ended gets none.
    Signal {
        /// The job.
        job: u32,
        /// Number of the signal.
        signal: i32,
        /// Whether all processes of its group get it, or only the one that was started.
        group: bool,
    },
    /// Write the frame's body to a file, with the folders above it.
    Write {
        /// The file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// Change who may do what with a file.
    Allow {
        /// The file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// Send a file.
    Read {
        /// The file.
        path: String,
    },
    /// Send what the kernel has logged, a line for each message: [`Answer::Content`].
    KernelLog,
    /// Look at what there is: [`Answer::Survey`].
    Survey,
}

/// What the agent says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// First of all: the machine is up.
    Ready,
    /// A request was carried out.
    Done,
    /// A request could not be carried out.
    Failed {
        /// Why.
        message: String,
    },
    /// The frame's body is the file, or the log, that was asked for.
    Content,
    /// What there is.
    Survey(Survey),
    /// How a job's terminal is set.
    Terminal(Terminal),
    /// The frame's body was printed by a job.
    Output {
        /// The job.
        job: u32,
        /// Where to.
        stream: Stream,
        /// When it came, in microseconds since the job was started.
        at_us: u64,
    },
    /// A job has ended, and has printed all that it will.
    Ended {
        /// The job.
        job: u32,
        /// How.
        end: End,
    },
}

/// An output of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its exit code, or the negative number of the signal that killed it.
    pub code: i32,
    /// Whether another process held its outputs open long after.
    pub outputs_held: bool,
}

/// How the terminal of a job is set, and was when the job was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Before the job was started.
    pub before: TerminalModes,
    /// Now.
    pub now: TerminalModes,
}

/// How a terminal is set (termios(3)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalModes {
    /// Whether it hands over lines, which can be corrected, rather than keys (`ICANON`).
    pub lines: bool,
    /// Whether it shows what is typed (`ECHO`).
    pub echo: bool,
    /// Whether Ctrl-C and Ctrl-Z are signals (`ISIG`).
    pub signals: bool,
    /// Everything, for comparison.
    pub all: String,
}

/// What there is in the machine, beside the agent itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Processes other than the kernel's own threads.
    pub processes: Vec<Process>,
    /// Files, sockets and folders in folders for temporary files, sorted.
    pub files: Vec<String>,
    /// Unix sockets that are open.
    pub sockets: usize,
    /// Memory in shared memory objects and temporary files, in KiB (`Shmem` of proc(5)).
    pub shared_kib: u64,
    /// Memory that programs can have, in KiB, after caches were dropped (`MemAvailable`).
    pub available_kib: u64,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its command line, words separated by spaces.
    pub command: String,
}
