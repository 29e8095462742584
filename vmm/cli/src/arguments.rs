//! Command line of `causeway`: its commands, each with the arguments that its crate defines.

use std::ffi::OsString;
use std::path::PathBuf;

use causeway_bench::BenchCommand;
use causeway_control::ControlArguments;
use causeway_cuda_command::CudaArguments;
use causeway_doctor::DoctorArguments;
use causeway_limit::LimitArguments;
use causeway_run::arguments::RunArguments;
use causeway_run::description::{self, Described};
use causeway_run::initramfs::InitramfsArguments;
use causeway_run::rooms::RoomsArguments;
use causeway_run::worker::{StarterArguments, WorkerArguments};
use causeway_serve::ServeArguments;
use causeway_stat::StatArguments;
use causeway_terminal::{Failure, LogSettings};
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::completions::CompletionsArguments;
use crate::manual::ManualArguments;
use crate::usage_error;

/// Mediated pass-through GPU virtualization: guests on KVM use a shared GPU, and their data path
/// causes no VM exits.
#[derive(Debug, Parser)]
#[command(version = VERSION, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Arguments {
    /// The subcommand, with its own arguments.
    #[command(subcommand)]
    pub command: Command,
    /// Which log lines to print.
    #[command(flatten)]
    pub logs: LogArguments,
}

/// Arguments about log lines, which all subcommands have.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArguments {
    /// Print info lines with times to standard error: what was created, started and ended. Twice,
    /// print debug lines, too.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print only errors to standard error, and no warnings. Twice, print no log lines.
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "verbose")]
    pub quiet: u8,
    /// Append log lines to this file, with times and process IDs: info lines and above, or what -v
    /// says.
    #[arg(long, value_name = "FILE", global = true)]
    pub log_file: Option<PathBuf>,
}

impl From<LogArguments> for LogSettings {
    fn from(arguments: LogArguments) -> Self {
        Self {
            verbose: arguments.verbose,
            quiet: arguments.quiet,
            file: arguments.log_file,
        }
    }
}

/// Why a command line is not carried out.
#[derive(Debug)]
pub enum Refusal {
    /// It asks for help or the version, which are printed, also where it is only the beginning of a
    /// command line.
    Help(clap::Error),
    /// It has a mistake.
    Failure(Failure),
}

impl Arguments {
    /// Parses the words that the user typed, the first of which is the name of the program, with
    /// what the file of `run --config` says.
    ///
    /// # Errors
    /// What is wrong with the words or the file, or a request for help or the version.
    pub fn parse(typed: Vec<OsString>) -> Result<Self, Refusal> {
        let command = Self::parser();
        let completed = description::complete(&command, typed).map_err(Refusal::Failure)?;
        let described = completed.described;
        let mut arguments =
            Self::try_parse_words(completed.words).map_err(|e| match is_help(e.kind()) {
                true => Refusal::Help(e),
                false => Refusal::Failure(described.explain_words(usage_error::failure(&e))),
            })?;
        if let Command::Run(run) = &mut arguments.command {
            run.described = described;
        }
        Ok(arguments)
    }

    /// Returns what a description file has brought about.
    pub fn described(&self) -> Described {
        match &self.command {
            Command::Run(run) => run.described.clone(),
            _ => Described::default(),
        }
    }

    /// Parses `words`, the first of which is the name of the program.
    ///
    /// # Errors
    /// What is wrong with the words, or a request for help or the version.
    pub fn try_parse_words(
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let matches = Self::parser().try_get_matches_from(words)?;
        Self::from_arg_matches(&matches)
    }

    /// Returns what the parser of the command line knows of this command.
    pub fn parser() -> clap::Command {
        take_negative_numbers(Self::command())
    }
}

fn is_help(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// Makes all options take negative numbers as values, so that the message about them says what is
/// valid, and not that there is no option `-5`.
fn take_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| match argument.get_action().takes_values() {
        true => argument.allow_negative_numbers(true),
        false => argument,
    });
    command.mut_subcommands(take_negative_numbers)
}

/// Subcommands of `causeway`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Boot guests, let them use the GPU, and print how many VM exits that took.
    Run(Box<RunArguments>),
    /// Write to a file the initramfs that `run --program` would make.
    Initramfs(InitramfsArguments),
    /// Check which features this host supports, and say how to enable the others.
    Doctor(DoctorArguments),
    /// Show statistics of running guests: exits, launches, queues, GPU memory.
    Stat(StatArguments),
    /// Show or change limits of running guests: GPU memory, compute time.
    Limit(LimitArguments),
    /// Show, pause, resume or stop a run that was started with --control.
    Control(ControlArguments),
    /// Serve the GPU to processes of this host over a socket, without VMs: for development.
    Serve(ServeArguments),
    /// Run a CUDA program of this host, unmodified, with the library of this command as its driver.
    Cuda(CudaArguments),
    /// Run a benchmark.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print a script by which a shell completes this command's arguments.
    Completions(CompletionsArguments),
    /// Write manual pages for this command and its subcommands.
    Man(ManualArguments),
    /// Hold the session of one VM. `run` and `serve` start this command; do not start it by hand.
    #[command(hide = true)]
    Worker(WorkerArguments),
    /// Start the workers of a VMM. `run` and `serve` start this command; do not start it by hand.
    #[command(hide = true)]
    Starter(StarterArguments),
    /// Print what GPUs have free, or where they are. `run` starts this command; do not start it by
    /// hand.
    #[command(hide = true)]
    GpuRooms(RoomsArguments),
    /// Print how fast pairs of GPUs copy to each other. `doctor` starts this command; do not start
    /// it by hand.
    #[command(hide = true)]
    GpuLinks,
    /// Write a report for the process that started this one. Do not start it by hand.
    #[command(hide = true)]
    ReportKeeper {
        /// The file.
        file: std::path::PathBuf,
    },
    /// Remove a socket after the process that started this one has ended. Do not start it by hand.
    #[command(hide = true)]
    SocketKeeper {
        /// The socket.
        socket: std::path::PathBuf,
    },
    /// Open disk images for the process that started this one. Do not start it by hand.
    #[command(hide = true)]
    ImageOpener {
        /// The folder of the images.
        folder: std::path::PathBuf,
    },
    /// End the process that serves a disk after the process that started this one has ended. Do not
    /// start it by hand.
    #[command(hide = true)]
    DiskKeeper(causeway_run::disk_keeper::KeeperArguments),
    /// Restore the terminal after the process that started this one has ended. Do not start it by
    /// hand.
    #[command(hide = true)]
    TerminalKeeper,
}

/// Revision from which this program was built (`build.rs`).
pub const REVISION: &str = env!("CAUSEWAY_REVISION");
/// Text of `--version`.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("CAUSEWAY_REVISION"),
    ")"
);

const EXIT_CODES: &str = "\
Exit codes (with --program, the program's own status if it ended; docs/guests.md):
  0  every guest passed            5  a guest crashed or could not go on
  1  a guest reported a failure    6  the run took longer than --timeout
  2  bad argument                  7  the report or initramfs cannot be written
  3  KVM is missing or forbidden   8  the GPU is not available
  4  not an image that can boot    9  a device for --vfio is not available, or was reclaimed
 10  the data path had exits, or was not marked, with --require-zero-exits
129, 130, 141, 143  ended by SIGHUP, SIGINT, SIGPIPE, SIGTERM; what was measured is kept,
     unless the command cannot end in order within 2 s, or a second signal comes
`bench exits --compare` ends with 1 if it found changes, with 2 if it could not compare.

Logs go to standard error: warnings and errors, or what -v, -q or RUST_LOG=LEVEL says.";
