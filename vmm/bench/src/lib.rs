//! `causeway bench`: measurements that say what they are compared with.

mod arguments;
mod exits;
mod figures;
mod gpu;
mod lives;
mod native;
mod report;
mod statistics;
mod table;

use std::process::ExitCode;

pub use arguments::BenchCommand;

use crate::failure::{Code, Failure};

/// Runs a benchmark.
pub fn run(command: &BenchCommand) -> Result<ExitCode, Failure> {
    let typed: Vec<String> = std::env::args().skip(1).collect();
    match command {
        BenchCommand::Gpu(arguments) => gpu::run(arguments, typed),
        BenchCommand::Exits(arguments) => exits::run(arguments, &typed),
        BenchCommand::Lives(arguments) => Ok(if lives::run(arguments, typed)? {
            ExitCode::SUCCESS
        } else {
            Code::GuestFailed.into()
        }),
    }
}
