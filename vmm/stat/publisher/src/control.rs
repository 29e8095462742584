//! The control socket of a run (`--control`): requests to pause, resume and stop its VMs, and their
//! answers, all as JSON.
//!
//! The thread that answers monitors answers here, too. So it never waits for a VM: the answer to a
//! request to pause is put off until all virtual CPUs stand still, for a limited time.

pub mod client;
mod disks;
mod pausable;
mod request;

use std::cell::Cell;
use std::path::Path;

use causeway_vmm::pause::RunState;
use causeway_vmm::pause_switch::Standing;
use serde::{Deserialize, Serialize};

use crate::http::{Action, Refusal};
use crate::snapshot::make_printable;
pub use disks::{DiskRefusal, DiskStanding, Disks};
pub use pausable::Pausable;
use request::{AddDiskRequest, PauseRequest, RemoveDiskRequest, StopRequest, read};

/// Name and version of the format of [`RunStanding`].
pub const SCHEMA: &str = "causeway.control/1";
/// Name and version of the format of [`ErrorAnswer`].
pub const ERROR_SCHEMA: &str = "causeway.control-error/1";

/// The answer to each request that is carried out: how the run stands afterwards.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunStanding {
    /// Name and version of this format: always [`SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: String,
    /// Version of Causeway that the process runs.
    pub causeway: String,
    /// Process ID of the process that runs the VMs.
    pub pid: u32,
    /// Name of the guest program or kernel that runs in every VM.
    pub guest: String,
    /// Whether the run was told by `stop` to end.
    pub stopping: bool,
    /// The VMs of the run, in their order.
    pub vms: Vec<VmStanding>,
}

/// How a VM stands.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmStanding {
    /// Name of the VM.
    pub vm: String,
    /// Whether the VM runs.
    pub state: State,
    /// Number of its virtual CPUs.
    pub vcpus: u32,
    /// Guest RAM in bytes.
    pub memory_bytes: u64,
    /// Time from its first instruction until now or its end, in nanoseconds, pauses included.
    pub ran_ns: u64,
    /// Number of its pauses.
    pub pauses: u64,
    /// Their duration in all, in nanoseconds, with that of the present one.
    pub paused_ns: u64,
    /// Its disks that get their images while it runs, in the order in which its guest finds them. A
    /// VM that has ended keeps its images until they are removed or the run ends.
    pub disks: Vec<DiskStanding>,
}

/// Whether a VM runs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No virtual CPU has run yet.
    Starting,
    /// The VM runs.
    Running,
    /// A pause was asked for, and not all virtual CPUs stand still yet.
    Pausing,
    /// All virtual CPUs stand still.
    Paused,
    /// The VM has ended.
    Ended,
}

/// The answer to each request that is refused.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorAnswer {
    /// Name and version of this format: always [`ERROR_SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = ERROR_SCHEMA)))]
    pub schema: String,
    /// What is wrong with the request, and the way out, as text for people.
    pub error: String,
}

/// Why a request is refused whose path and method are right.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The body is not what the path takes.
    #[error("the body is wrong ({source}): send {takes}")]
    Malformed {
        /// What the path takes.
        takes: &'static str,
        /// Why the body cannot be parsed.
        source: serde_json::Error,
    },
    /// No VM of the run has this name.
    #[error("there is no VM {name}: choose one of {known}", known = .known.join(", "))]
    UnknownVm {
        /// Name that was asked for.
        name: String,
        /// Names of the VMs of the run.
        known: Vec<String>,
    },
    /// The request is for one VM, and there are several.
    #[error(
        "the run has several VMs: choose one with --vm (the field \"vm\" of the body): {known}",
        known = .0.join(", ")
    )]
    Several(Vec<String>),
    /// The VM has ended, or all have.
    #[error("{what} ended: start another run")]
    Ended {
        /// Which VM has, as the beginning of a sentence.
        what: String,
    },
    /// The run ends.
    #[error("the run is ending, as `stop` has asked for: start another run")]
    Stopping,
    /// The VMs have no disks that get their images while they run.
    #[error(
        "this run has no disks for images that are added later: start it with --disk-folder DIR"
    )]
    NoDisks,
    /// A disk does not change.
    #[error(transparent)]
    Disk(#[from] DiskRefusal),
}

impl ControlError {
    /// Returns the HTTP status of the answer.
    pub(crate) const fn status(&self) -> &'static str {
        match self {
            Self::Malformed { .. } | Self::Several(_) => "400 Bad Request",
            Self::UnknownVm { .. } => "404 Not Found",
            Self::Ended { .. } | Self::Stopping | Self::NoDisks => "409 Conflict",
            Self::Disk(refusal) => refusal.status(),
        }
    }
}

/// The VMs of a run, as the control socket reaches them.
pub struct Control {
    guest: String,
    vms: Vec<Box<dyn Pausable>>,
    /// Makes the run end, as SIGTERM does.
    stop: Box<dyn Fn() + Send>,
    is_stopping: Cell<bool>,
    /// Disks that get their images while VMs run, if there are such.
    disks: Option<Box<dyn Disks>>,
}

causeway_vmm::debug_by_name!(Control);

impl Control {
    /// Returns the control of a run of `vms`, whose guest is called `guest`. `stop` makes the run
    /// end; it is called once at most.
    pub fn new(guest: &str, vms: Vec<Box<dyn Pausable>>, stop: Box<dyn Fn() + Send>) -> Self {
        Self {
            guest: guest.to_owned(),
            vms,
            stop,
            is_stopping: Cell::new(false),
            disks: None,
        }
    }

    /// Lets requests change these disks.
    #[must_use]
    pub fn with_disks(self, disks: Option<Box<dyn Disks>>) -> Self {
        Self { disks, ..self }
    }

    /// Carries out a request with this body. A pause may take effect after the return:
    /// [`Self::is_settled`] tells.
    ///
    /// # Errors
    /// Why nothing was done.
    pub(crate) fn act(&self, action: Action, body: &[u8]) -> Result<(), ControlError> {
        match action {
            Action::Pause => self.each(body, "paused", |vm| vm.pause()),
            Action::Resume => self.each(body, "resumed", |vm| vm.resume()),
            Action::Stop => {
                let StopRequest {} = read(body)?;
                if !self.is_stopping.replace(true) {
                    log::info!("the control socket ends the run");
                    (self.stop)();
                }
                Ok(())
            }
            Action::AddDisk => {
                let AddDiskRequest {
                    vm,
                    image,
                    read_only,
                } = read(body)?;
                let (disks, vm) = self.disks_of(vm.as_deref())?;
                if has_ended(vm) {
                    let what = format!("{} has", vm.name());
                    return Err(ControlError::Ended { what });
                }
                let vm = vm.name();
                disks.add(vm, Path::new(&image), read_only)?;
                log::info!("the control socket has added the disk {image} to {vm}");
                Ok(())
            }
            Action::RemoveDisk => {
                let RemoveDiskRequest { vm, image } = read(body)?;
                let (disks, vm) = self.disks_of(vm.as_deref())?;
                let vm = vm.name();
                disks.remove(vm, Path::new(&image))?;
                log::info!("the control socket has removed the disk {image} from {vm}");
                Ok(())
            }
        }
    }

    /// Returns the disks of the run, and the VM that is called `name`, or is the only one.
    fn disks_of(&self, name: Option<&str>) -> Result<(&dyn Disks, &dyn Pausable), ControlError> {
        let chosen = self.chosen(name)?;
        let [vm] = chosen[..] else {
            return Err(ControlError::Several(self.names()));
        };
        if self.is_stopping.get() {
            return Err(ControlError::Stopping);
        }
        let disks = self.disks.as_deref().ok_or(ControlError::NoDisks)?;
        Ok((disks, vm))
    }

    fn names(&self) -> Vec<String> {
        self.vms.iter().map(|vm| vm.name().to_owned()).collect()
    }

    /// Does something to the VM that `body` names, or to all that have not ended.
    fn each(&self, body: &[u8], done: &str, change: fn(&dyn Pausable)) -> Result<(), ControlError> {
        let PauseRequest { vm } = read(body)?;
        if self.is_stopping.get() {
            return Err(ControlError::Stopping);
        }
        let mut chosen = self.chosen(vm.as_deref())?;
        chosen.retain(|vm| !has_ended(*vm));
        if chosen.is_empty() {
            let what = vm.map_or("every VM has".to_owned(), |vm| format!("{vm} has"));
            return Err(ControlError::Ended { what });
        }
        for vm in chosen {
            log::info!("the control socket has {done} {}", vm.name());
            change(vm);
        }
        Ok(())
    }

    fn chosen(&self, name: Option<&str>) -> Result<Vec<&dyn Pausable>, ControlError> {
        let all = self.vms.iter().map(|vm| &**vm);
        let chosen: Vec<_> = all
            .filter(|vm| name.is_none_or(|name| name == vm.name()))
            .collect();
        match name {
            Some(name) if chosen.is_empty() => Err(ControlError::UnknownVm {
                name: name.to_owned(),
                known: self.names(),
            }),
            _ => Ok(chosen),
        }
    }

    /// Returns whether no VM is about to pause.
    pub(crate) fn is_settled(&self) -> bool {
        let mut vms = self.vms.iter().filter_map(|vm| vm.look());
        vms.all(|vm| vm.state != RunState::Pausing)
    }

    /// Returns how the run stands.
    pub fn standing(&self) -> RunStanding {
        RunStanding {
            schema: SCHEMA.to_owned(),
            causeway: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            guest: self.guest.clone(),
            stopping: self.is_stopping.get(),
            vms: self.vms.iter().map(|vm| self.standing_of(&**vm)).collect(),
        }
    }
}

fn has_ended(vm: &dyn Pausable) -> bool {
    vm.look().is_none_or(|vm| vm.state == RunState::Ended)
}

impl RunStanding {
    /// Returns this with every character other than printable ASCII replaced by `?` in texts, which
    /// come from another process.
    #[must_use]
    pub fn printable(mut self) -> Self {
        for text in [&mut self.causeway, &mut self.guest] {
            make_printable(text);
        }
        for vm in &mut self.vms {
            make_printable(&mut vm.vm);
            let images = vm.disks.iter_mut().flat_map(|disk| &mut disk.image);
            images.for_each(make_printable);
        }
        self
    }
}

impl Control {
    fn standing_of(&self, vm: &dyn Pausable) -> VmStanding {
        let look = vm.look();
        let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos());
        let of = |time: fn(Standing) -> std::time::Duration| {
            look.map_or(0, |look| nanoseconds(time(look)).unwrap_or(u64::MAX))
        };
        let disks = self.disks.as_ref();
        VmStanding {
            vm: vm.name().to_owned(),
            state: look.map_or(State::Ended, |look| look.state.into()),
            vcpus: vm.vcpus(),
            memory_bytes: vm.memory_bytes(),
            ran_ns: of(|look| look.ran_for),
            pauses: look.map_or(0, |look| look.pauses.count),
            paused_ns: of(|look| look.pauses.duration),
            disks: disks.map_or_else(Vec::new, |disks| disks.look(vm.name())),
        }
    }
}

impl From<RunState> for State {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Starting => Self::Starting,
            RunState::Running => Self::Running,
            RunState::Pausing => Self::Pausing,
            RunState::Paused => Self::Paused,
            RunState::Ended => Self::Ended,
        }
    }
}

impl State {
    /// Returns the state as answers name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}

/// Returns the body of the answer to a request that is refused because of `error`.
pub(crate) fn error_body(error: &str) -> String {
    let answer = ErrorAnswer {
        schema: ERROR_SCHEMA.to_owned(),
        error: error.to_owned(),
    };
    serde_json::to_string(&answer).unwrap_or_default()
}

/// Returns why a request is refused that HTTP, or its path or method, makes impossible.
pub(crate) fn refusal_text(refusal: Refusal<'_>) -> String {
    const HEADER: &str = "name the length of the body in a header field Content-Length";
    match refusal {
        Refusal::Malformed => String::from("this is not a request of HTTP/1.1"),
        Refusal::NotFound(path) => format!(
            "there is no {path} here: use GET /info, PUT /pause, PUT /resume, PUT /add-disk, PUT \
             /remove-disk or PUT /stop (docs/guests.md)"
        ),
        Refusal::Method(resource) => format!(
            "{} does not take this method: use {}",
            resource.path(),
            resource.methods()
        ),
        Refusal::Length => HEADER.to_owned(),
        Refusal::Query => String::from(
            r#"what is asked for stands in the body, such as {"vm": "vm0"}, not behind `?`"#,
        ),
        Refusal::BodyTooLong => format!(
            "the request is too long: a body has at most {} bytes, and all of it {}",
            crate::http::BODY_BYTES_MAX,
            crate::http::REQUEST_BYTES_MAX
        ),
        Refusal::TooLong => String::from("the head of the request is too long: send fewer fields"),
    }
}

#[cfg(test)]
pub(crate) mod tests;
