//! `causeway control`: shows, pauses, resumes and stops a run at its control socket.
//!
//! The run does the work ([`causeway_publisher::control`]).

mod arguments;
mod table;

use std::process::ExitCode;

pub use arguments::{Action, ControlArguments};
use causeway_publisher::control::client::{AskError, send};
use causeway_terminal::{Code, Failure, print_results, shown_path};

/// Asks the run for what the user typed, and prints how the run stands then.
///
/// # Errors
/// A usage failure if an argument is invalid, no run listens at the path, the run does not answer,
/// or it refuses; a report failure if the output cannot be written.
pub fn run(arguments: &ControlArguments) -> Result<ExitCode, Failure> {
    let body = arguments.body()?;
    let path = &arguments.path;
    let asked = send(path, arguments.action.request(), &body);
    let standing = asked.map_err(|error| match error {
        AskError::Refused { why } => Failure::usage(why),
        error => {
            let what = format!("cannot control a run at {}", shown_path(path));
            Failure::new(Code::Usage, what, error)
        }
    })?;
    let text = match arguments.json {
        true => serde_json::to_string(&standing).unwrap_or_default() + "\n",
        false => table::render(&standing),
    };
    print_results(&text)?;
    Ok(ExitCode::SUCCESS)
}
