//! The `causeway` command: parses the arguments and calls the crate of the chosen subcommand.

mod arguments;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let started = causeway_run::progress::process_start(Instant::now());
    causeway_terminal::set_revision(arguments::REVISION);
    let arguments = Arguments::parse();
    causeway_terminal::start_logging();
    let result = match arguments.command {
        Command::Run(arguments) => causeway_run::run(&arguments, started),
        Command::Initramfs(arguments) => causeway_run::initramfs::run(&arguments),
        Command::Doctor(arguments) => causeway_doctor::run(&arguments),
        Command::Serve(arguments) => causeway_serve::run(&arguments),
        Command::Stat(arguments) => causeway_stat::run(&arguments),
        Command::Bench(command) => causeway_bench::run(&command),
        Command::Worker(arguments) => causeway_run::worker::run(&arguments),
        Command::TerminalKeeper => causeway_terminal::keep(),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}
