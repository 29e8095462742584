//! Arguments of `causeway control`.

use std::path::PathBuf;

use causeway_terminal::Failure;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

/// Arguments of `causeway control`, as the user typed them.
#[derive(Debug, Args)]
pub struct ControlArguments {
    /// Path of the socket: that of --control of the run.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// What to do.
    #[arg(value_name = "ACTION")]
    pub action: Action,
    /// Image for add-disk and remove-disk: its name in the folder of --disk-folder, or its absolute
    /// path. With ,ro after it, add-disk makes it read-only.
    #[arg(value_name = "IMAGE[,ro]")]
    pub image: Option<String>,
    /// Pause or resume only this VM, as in --vm vm1; by default, all VMs of the run. With several
    /// VMs, add-disk and remove-disk need it.
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
    /// Put an image from the folder of --disk-folder into a free disk of a Linux guest.
    AddDisk,
    /// Take an image out of its disk. Unmount it in the guest first.
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
        let is_of_disks = matches!(self.action, Action::AddDisk | Action::RemoveDisk);
        let is_of_vms = matches!(self.action, Action::Pause | Action::Resume) || is_of_disks;
        if self.vm.is_some() && !is_of_vms {
            return Err(Failure::usage(
                "--vm is for pause, resume, add-disk and remove-disk: leave it out, because the \
                 other actions are about the whole run",
            ));
        }
        let mut body = Map::new();
        if let Some(vm) = &self.vm {
            body.insert("vm".to_owned(), vm.as_str().into());
        }
        match &self.image {
            Some(image) if is_of_disks => {
                let (image, read_only) = match image.strip_suffix(",ro") {
                    Some(image) => (image, true),
                    None => (&**image, false),
                };
                body.insert("image".to_owned(), image.into());
                if read_only && self.action == Action::AddDisk {
                    body.insert("read_only".to_owned(), true.into());
                }
            }
            Some(word) => {
                return Err(Failure::usage(format!(
                    "unexpected argument {word}: name a VM with --vm"
                )));
            }
            None if is_of_disks => {
                let action = match self.action {
                    Action::AddDisk => "add-disk",
                    _ => "remove-disk",
                };
                return Err(Failure::usage(format!(
                    "name the image, as in `causeway control PATH {action} work.img`"
                )));
            }
            None => {}
        }
        match body.is_empty() {
            true => Ok(String::new()),
            false => Ok(Value::Object(body).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(action: Action, vm: Option<&str>, image: Option<&str>) -> Result<String, String> {
        let arguments = ControlArguments {
            path: PathBuf::from("socket"),
            action,
            image: image.map(str::to_owned),
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
        let added = body(Action::AddDisk, Some("vm1"), Some("x.img,ro")).unwrap();
        assert_eq!(added, r#"{"image":"x.img","read_only":true,"vm":"vm1"}"#);
        let removed = body(Action::RemoveDisk, None, Some("x.img,ro")).unwrap();
        assert_eq!(removed, r#"{"image":"x.img"}"#);
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        let message = body(Action::AddDisk, None, None).unwrap_err();
        assert!(message.starts_with("name the image"), "{message}");
        for action in [Action::Info, Action::Stop] {
            let message = body(action, Some("vm0"), None).unwrap_err();
            assert!(
                message.starts_with("--vm is for pause, resume, add-disk and remove-disk"),
                "{message}"
            );
        }
        let message = body(Action::Pause, None, Some("vm0")).unwrap_err();
        assert_eq!(message, "unexpected argument vm0: name a VM with --vm");
    }
}
