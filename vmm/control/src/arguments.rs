//! Arguments of `causeway control`.

use std::ffi::OsString;
use std::path::PathBuf;

use causeway_terminal::Failure;
use clap::{Args, ValueEnum};

/// Arguments of `causeway control`, as the user typed them.
#[derive(Debug, Args)]
pub struct ControlArguments {
    /// Path of the socket: that of --control of the run.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// What to do.
    #[arg(value_name = "ACTION")]
    pub action: Action,
    /// Disks of running VMs cannot be changed. The run says so.
    #[arg(value_name = "DISK", hide = true)]
    pub disk: Option<OsString>,
    /// Pause or resume only this VM, as in --vm vm1; by default, all VMs of the run.
    #[arg(long, value_name = "NAME")]
    pub vm: Option<String>,
    /// Print the run's answer as JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// What to do to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// Show whether the VMs run.
    Info,
    /// Let the virtual CPUs stand still. GPU work that the guests have submitted goes on.
    Pause,
    /// Let the virtual CPUs go on.
    Resume,
    /// End the run as SIGTERM does.
    Stop,
    /// Add a disk: not possible while a VM runs.
    #[value(hide = true)]
    AddDisk,
    /// Remove a disk: not possible while a VM runs.
    #[value(hide = true)]
    RemoveDisk,
}

impl Action {
    /// Returns the method and the path of the request.
    pub const fn request(self) -> &'static str {
        match self {
            Self::Info => "GET /info",
            Self::Pause => "PUT /pause",
            Self::Resume => "PUT /resume",
            Self::Stop => "PUT /stop",
            Self::AddDisk => "PUT /add-disk",
            Self::RemoveDisk => "PUT /remove-disk",
        }
    }
}

impl ControlArguments {
    /// Returns the body of the request.
    ///
    /// # Errors
    /// A usage failure if an argument has no effect on the action.
    pub fn body(&self) -> Result<String, Failure> {
        let is_of_vms = matches!(self.action, Action::Pause | Action::Resume);
        let is_of_disks = matches!(self.action, Action::AddDisk | Action::RemoveDisk);
        if let Some(word) = self.disk.as_ref().filter(|_| !is_of_disks) {
            return Err(Failure::usage(format!(
                "unexpected argument {}: name a VM with --vm",
                word.display()
            )));
        }
        match &self.vm {
            None => Ok(String::new()),
            Some(vm) if is_of_vms => Ok(serde_json::json!({ "vm": vm }).to_string()),
            Some(_) => Err(Failure::usage(
                "--vm is for pause and resume: leave it out, because the others are about the \
                 whole run",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(action: Action, vm: Option<&str>, disk: Option<&str>) -> Result<String, String> {
        let arguments = ControlArguments {
            path: PathBuf::from("socket"),
            action,
            disk: disk.map(OsString::from),
            vm: vm.map(str::to_owned),
            json: false,
        };
        arguments.body().map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_request_names_the_vm_and_nothing_else() {
        let one = body(Action::Pause, Some("vm\"1"), None).unwrap();
        assert_eq!(one, r#"{"vm":"vm\"1"}"#);
        assert_eq!(body(Action::Resume, None, None).unwrap(), "");
        assert_eq!(body(Action::AddDisk, None, Some("x")).unwrap(), "");
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        for action in [Action::Info, Action::Stop, Action::AddDisk] {
            let message = body(action, Some("vm0"), None).unwrap_err();
            assert!(
                message.starts_with("--vm is for pause and resume"),
                "{message}"
            );
        }
        let message = body(Action::Pause, None, Some("vm0")).unwrap_err();
        assert_eq!(message, "unexpected argument vm0: name a VM with --vm");
    }
}
