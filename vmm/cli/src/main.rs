//! The `causeway` command: parses the arguments and calls the crate of the chosen subcommand.

mod arguments;
mod completions;
mod manual;
#[cfg(test)]
mod schemas;
mod usage_error;

use std::process::ExitCode;
use std::time::Instant;

use causeway_terminal::Failure;
use clap::CommandFactory;

use arguments::{Arguments, Command, Refusal};

fn main() -> ExitCode {
    let started = causeway_run::progress::process_start(Instant::now());
    let arguments = match Arguments::parse(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(Refusal::Help(help)) => help.exit(),
        Err(Refusal::Failure(failure)) => return end(failure),
    };
    causeway_terminal::set_revision(arguments::REVISION);
    let described = arguments.described();
    let result = causeway_terminal::start_logging(arguments.logs.into())
        .map_err(|failure| described.explain(failure))
        .and_then(|()| execute(arguments.command, started));
    match result {
        Ok(code) => code,
        Err(failure) => end(failure),
    }
}

/// Prints why the command fails, and returns its exit code.
fn end(failure: Failure) -> ExitCode {
    failure.print();
    failure.exit_code()
}

fn execute(command: Command, started: Instant) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(arguments) => causeway_run::run(&arguments, started),
        Command::Initramfs(arguments) => causeway_run::initramfs::run(&arguments),
        Command::Doctor(arguments) => causeway_doctor::run(&arguments),
        Command::Serve(arguments) => causeway_serve::run(&arguments),
        Command::Cuda(arguments) => causeway_cuda_command::run(&arguments),
        Command::Stat(arguments) => causeway_stat::run(&arguments),
        Command::Limit(arguments) => causeway_limit::run(&arguments),
        Command::Control(arguments) => causeway_control::run(&arguments),
        Command::Bench(command) => causeway_bench::run(&command),
        Command::Completions(arguments) => completions::run(&arguments, &Arguments::command()),
        Command::Man(arguments) => manual::run(&arguments, Arguments::command()),
        Command::Worker(arguments) => causeway_run::worker::run(&arguments),
        Command::Starter(arguments) => causeway_run::worker::start_workers(&arguments),
        Command::GpuRooms(arguments) => causeway_run::rooms::print(&arguments),
        Command::GpuLinks => causeway_doctor::print_links(),
        Command::ReportKeeper { file } => causeway_terminal::keep_report(&file),
        Command::SocketKeeper { socket } => causeway_run::metrics::keep_socket(&socket),
        Command::ImageOpener { folder } => causeway_run::image_opener::serve(&folder),
        Command::DiskKeeper(arguments) => causeway_run::disk_keeper::run(&arguments),
        Command::TerminalKeeper => causeway_terminal::keep(),
    }
}
