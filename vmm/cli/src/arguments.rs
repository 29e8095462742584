//! Command line of `causeway`: its commands, each with the arguments that its crate defines.

use causeway_bench::BenchCommand;
use causeway_doctor::DoctorArguments;
use causeway_run::arguments::RunArguments;
use causeway_run::initramfs::InitramfsArguments;
use causeway_run::worker::WorkerArguments;
use causeway_serve::ServeArguments;
use causeway_stat::StatArguments;
use clap::{Parser, Subcommand};

/// Mediated pass-through GPU virtualization: guests on KVM use a shared GPU, and their data path
/// causes no VM exits.
#[derive(Debug, Parser)]
#[command(version = VERSION, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Arguments {
    /// The subcommand, with its own arguments.
    #[command(subcommand)]
    pub command: Command,
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
    /// Serve the GPU to processes of this host over a socket, without VMs: for development.
    Serve(ServeArguments),
    /// Run a benchmark.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Hold the session of one VM. `run` and `serve` start this command; do not start it by hand.
    #[command(hide = true)]
    Worker(WorkerArguments),
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
  129, 130, 141, 143  ended by SIGHUP, SIGINT, SIGPIPE, SIGTERM; what was measured is kept
`bench exits --compare` ends with 1 if it found changes, with 2 if it could not compare.

Logs go to standard error; RUST_LOG=info (or debug) shows more of them.";
