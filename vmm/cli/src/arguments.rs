//! What was typed: the commands, each with the arguments that its crate defines.

use causeway_bench::BenchCommand;
use causeway_doctor::DoctorArguments;
use causeway_run::arguments::RunArguments;
use causeway_run::initramfs::ImageArguments;
use causeway_run::worker::WorkerArguments;
use causeway_serve::ServeArguments;
use causeway_stat::StatArguments;
use clap::{Parser, Subcommand};

/// Mediated pass-through GPU virtualization: guests on KVM compute on a shared GPU, and their data path never exits.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Boot guests, let them compute on the GPU, and print what it cost in VM exits.
    Run(Box<RunArguments>),
    /// Write the initramfs that `run --program` makes to a file.
    Image(ImageArguments),
    /// Find out what this host can do, by trying, and how to get what is missing.
    Doctor(DoctorArguments),
    /// Watch the guests of running processes: exits, launches, queues, GPU memory.
    Stat(StatArguments),
    /// Give processes of this host the GPU over a socket, without VMs: for development.
    Serve(ServeArguments),
    /// Measure.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Hold the session of one VM. The program starts itself as this; it is of no use by hand.
    #[command(hide = true)]
    Worker(WorkerArguments),
    /// Restore the terminal when the process that started this one is gone. Of no use by hand, either.
    #[command(hide = true)]
    TerminalKeeper,
}

const EXIT_CODES: &str = "\
Exit codes (with --program, the program's own status if it ended; docs/guests.md):
  0  every guest passed            5  a guest crashed or could not go on
  1  a guest reported a failure    6  the time given by --timeout was over
  2  bad argument                  7  the report or image cannot be written
  3  KVM is missing or forbidden   8  the GPU is not available
  4  not an image that can boot    9  a device for --vfio is not available, or the host wants it back
                                   130, 143  ended by SIGINT, SIGTERM

Logs go to standard error; RUST_LOG=info (or debug) shows more of them.";
