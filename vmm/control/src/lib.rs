//! `causeway control`: shows, pauses, resumes and stops a run at its control socket, and changes
//! disks of its VMs.
//!
//! The run does the work ([`causeway_publisher::control`]).

mod arguments;
mod table;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use arguments::{Action, ControlArguments};
use causeway_publisher::control::client::{AskError, send};
use causeway_publisher::control::{RunStanding, State};
use causeway_terminal::{Code, Failure, print_results, shown_path};

/// How long a virtual CPU may take to come back from a call of a device before it stands still.
const PAUSE_PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks whether it has.
const LOOK: Duration = Duration::from_millis(100);

/// Asks the run for what the user typed, and prints how the run stands then.
///
/// # Errors
/// A usage failure if an argument is invalid, no run listens at the path, the run does not answer,
/// or it refuses; a report failure if the output cannot be written.
pub fn run(arguments: &ControlArguments) -> Result<ExitCode, Failure> {
    let body = arguments.body()?;
    let path = &arguments.path;
    let mut standing = ask(path, arguments.action.request(), &body)?;
    if arguments.action == Action::Pause {
        standing = wait_for_pause(arguments, standing)?;
    }
    let text = match arguments.json {
        true => serde_json::to_string(&standing).unwrap_or_default() + "\n",
        false => table::render(&standing),
    };
    print_results(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn ask(path: &Path, what: &str, body: &str) -> Result<RunStanding, Failure> {
    send(path, what, body).map_err(|error| match error {
        AskError::Refused { why } => Failure::usage(why),
        error => {
            let what = format!("cannot control a run at {}", shown_path(path));
            Failure::new(Code::Usage, what, error)
        }
    })
}

/// Waits until the VMs that are to pause stand still.
fn wait_for_pause(
    arguments: &ControlArguments,
    mut standing: RunStanding,
) -> Result<RunStanding, Failure> {
    let asked = Instant::now();
    while let Some(vm) = still_pausing(&standing, arguments.vm.as_deref()) {
        if asked.elapsed() > PAUSE_PATIENCE {
            return Err(Failure::usage(format!(
                "{vm} does not stand still yet, because a virtual CPU waits for a device: ask for \
                 info later, or resume it"
            )));
        }
        std::thread::sleep(LOOK);
        standing = ask(&arguments.path, Action::Info.request(), "")?;
    }
    Ok(standing)
}

/// Returns a VM that is about to pause: the one that is named, or any.
fn still_pausing<'a>(standing: &'a RunStanding, name: Option<&str>) -> Option<&'a str> {
    let mut vms = standing.vms.iter();
    let found = vms.find(|vm| vm.state == State::Pausing && name.is_none_or(|name| name == vm.vm));
    found.map(|vm| &*vm.vm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_publisher::control::{Control, VmStanding};

    #[test]
    fn only_vms_that_were_asked_for_are_waited_for() {
        let mut standing = Control::new("guest", Vec::new(), Box::new(|| ())).standing();
        assert_eq!(still_pausing(&standing, None), None);
        standing.vms = [("vm0", State::Pausing), ("vm1", State::Paused)]
            .map(|(vm, state)| VmStanding {
                vm: vm.to_owned(),
                state,
                vcpus: 1,
                memory_bytes: 0,
                ran_ns: 0,
                pauses: 1,
                paused_ns: 0,
                disks: Vec::new(),
            })
            .to_vec();
        assert_eq!(still_pausing(&standing, None), Some("vm0"));
        assert_eq!(still_pausing(&standing, Some("vm0")), Some("vm0"));
        assert_eq!(still_pausing(&standing, Some("vm1")), None);
    }
}
