//! The `causeway` command: parses, checks, runs, reports. Everything it does is done by the libraries.

mod arguments;
mod back_end;
mod bench;
mod boot;
mod configuration;
mod disk;
mod doctor;
mod ending;
mod failure;
mod gpu;
mod image;
mod interactive;
mod listener;
mod output_file;
mod passthrough;
mod program;
mod progress;
mod report;
mod report_file;
mod run;
mod serve;
mod stat;
mod table;
mod terminal;
mod visible;
mod worker;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let started = progress::process_start(Instant::now());
    let arguments = Arguments::parse();
    terminal::start_logging();
    let result = match arguments.command {
        Command::Run(arguments) => run::run(&arguments, started),
        Command::Image(arguments) => image::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Bench(command) => bench::run(&command),
        Command::Worker(arguments) => worker::run(&arguments),
        Command::TerminalKeeper => interactive::keep(),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}
