//! `causeway limit`: shows and changes limits of guests in running processes.
//!
//! The process that has the guests checks and makes the change ([`causeway_publisher::limits`]).

mod arguments;
mod table;

use std::process::ExitCode;

pub use arguments::{LimitArguments, Target};
use causeway_publisher::absent;
use causeway_publisher::client::{FetchError, change_limits, fetch_limits};
use causeway_publisher::limits::{ChangeRequest, Limits};
use causeway_publisher::runtime;
use causeway_terminal::{Code, Failure, print_results, say};

/// Changes limits of running guests if the user has typed any, and prints the limits that the
/// guests then have.
///
/// # Errors
/// A usage failure if an argument is invalid, the process or the guest does not exist, the process
/// does not answer, or it refuses the change; a report failure if the output cannot be written.
pub fn run(arguments: &LimitArguments) -> Result<ExitCode, Failure> {
    let change = arguments.change()?;
    let limits = ask(arguments.target.pid, change.as_ref())?;
    let limits = of_target(limits, &arguments.target)?;
    for late in limits.guests.iter().filter(|guest| guest.is_late) {
        say(&format!(
            "causeway: the worker process of {} does not answer: the limits hold for its guest \
             when it does",
            late.guest
        ));
    }
    if let Some(warning) = &limits.warning {
        say(&format!("causeway: warning: {warning}"));
    }
    if limits.guests.is_empty() {
        let pid = limits.pid;
        say(&format!(
            "causeway: nothing to show: process {pid} has no guest that runs"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    print_results(&table::render(&limits))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks process `pid` for the limits of its guests, or to make `change`.
fn ask(pid: u32, change: Option<&ChangeRequest>) -> Result<Limits, Failure> {
    let mut trouble = None;
    // Another user may have put a socket with this name in another folder.
    for entry in runtime::entries().iter().filter(|entry| entry.pid == pid) {
        let answer = match change {
            Some(change) => change_limits(entry, change),
            None => fetch_limits(entry),
        };
        match answer {
            Ok(limits) => return Ok(limits),
            Err(FetchError::Gone { .. }) => runtime::forget(entry),
            Err(FetchError::Refused { why }) => return Err(Failure::usage(why)),
            Err(error) => trouble = Some(error),
        }
    }
    Err(match trouble {
        Some(error) => Failure::new(
            Code::Usage,
            "cannot ask for limits of running guests",
            error,
        ),
        None => absent::explain(pid),
    })
}

/// Returns the limits of the guests that `target` names.
fn of_target(mut limits: Limits, target: &Target) -> Result<Limits, Failure> {
    let Some(wanted) = &target.guest else {
        return Ok(limits);
    };
    let (found, others) = std::mem::take(&mut limits.guests)
        .into_iter()
        .partition::<Vec<_>, _>(|guest| guest.guest == *wanted);
    if found.is_empty() {
        let pid = target.pid;
        let known: Vec<_> = others.into_iter().map(|guest| guest.guest).collect();
        return Err(Failure::usage(match known.is_empty() {
            true => format!("process {pid} has no guest {wanted}, and none that runs"),
            false => format!(
                "process {pid} has no guest {wanted} that runs: it has {}",
                known.join(", ")
            ),
        }));
    }
    limits.guests = found;
    Ok(limits)
}
