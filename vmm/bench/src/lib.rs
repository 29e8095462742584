//! `causeway bench`: benchmarks that compare guests with the host.

mod arguments;
mod exits;
mod gpu;
mod lives;
mod outputs;
mod suite;
mod text_file;

use std::process::ExitCode;

pub use arguments::BenchCommand;

use causeway_terminal::Failure;

/// Returns the JSON schemas of all reports, each with its title.
#[cfg(feature = "schema")]
pub fn schemas() -> [serde_json::Value; 5] {
    [
        gpu::schema(),
        exits::schema(),
        exits::comparison_schema(),
        lives::schema(),
        suite::schema(),
    ]
}

/// Runs the benchmark that `command` names, prints its report, and returns the exit code.
///
/// # Errors
/// A failure, with the exit code of the command, if an argument is invalid, if KVM, the back end or
/// a device is not available, or if a report cannot be written.
pub fn run(command: &BenchCommand) -> Result<ExitCode, Failure> {
    match command {
        BenchCommand::Gpu(arguments) => gpu::run(arguments),
        BenchCommand::Exits(arguments) => exits::run(arguments),
        BenchCommand::Lives(arguments) => lives::run(arguments),
        BenchCommand::Suite(arguments) => suite::run(arguments),
    }
}
