//! What the reports of commands tell of the life of a program.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use serde::Deserialize;

use crate::life::{DataPath, Exits, Life, LifeError, Work};
use crate::limited::shell_status;

/// What is known of a life beside its output.
#[derive(Default)]
pub struct Told {
    status: u8,
    time_ns: f64,
    fault: Option<String>,
    work: Option<Work>,
    exits: Option<Exits>,
}

impl Told {
    /// Of a program that this process has started.
    pub fn native(status: ExitStatus, time: Duration) -> Self {
        Self {
            status: shell_status(status),
            time_ns: time.as_nanos() as f64,
            ..Self::default()
        }
    }

    /// Adds what the program has written and the libraries said.
    pub fn life(self, output: String, said: Vec<String>) -> Life {
        Life {
            status: self.status,
            time_ns: self.time_ns,
            output,
            said,
            fault: self.fault,
            work: self.work,
            exits: self.exits,
        }
    }
}

/// Reads the report of a command of Causeway. If there is none, the last line of `output` says why.
pub fn read<T: for<'a> Deserialize<'a>>(path: &Path, output: &str) -> Result<T, LifeError> {
    let text = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let last = output.lines().rfind(|line| !line.trim().is_empty());
            let last = last.unwrap_or("the command wrote no report, and said nothing");
            return Err(LifeError::Refused(last.to_owned()));
        }
        text => text.map_err(|e| LifeError::Files(path.to_owned(), e))?,
    };
    serde_json::from_slice(&text).map_err(|e| LifeError::Report(path.to_owned(), e))
}

/// What this reads of the report of `causeway cuda`.
#[derive(Deserialize)]
pub struct ProcessReport {
    program_status: u8,
    sessions: Vec<GpuReport>,
    #[serde(default)]
    sessions_left_out: u64,
}

/// What this reads of the report of `causeway run`.
#[derive(Deserialize)]
pub struct GuestReport {
    reason: String,
    data_path_exits: u64,
    vms: Vec<VmReport>,
    phases: Vec<Phase>,
}

#[derive(Deserialize)]
struct Phase {
    path: String,
    operations: u64,
}

#[derive(Deserialize)]
struct VmReport {
    program_status: Option<u8>,
    program: Option<Counted>,
    session: Session,
    phases_refused: u64,
    #[serde(default)]
    further_gpus: Vec<GpuReport>,
}

#[derive(Deserialize)]
struct Counted {
    duration_ns: u64,
    kvm_exits: BTreeMap<String, u64>,
    vmm_exits: BTreeMap<String, u64>,
    kvm_doorbells: Option<u64>,
}

#[derive(Deserialize)]
struct GpuReport {
    session: Session,
}

#[derive(Deserialize)]
struct Session {
    launches: u64,
    replays: u64,
    copies: u64,
    fills: u64,
    written_bytes: u64,
    batches: u64,
    fault: Option<String>,
}

/// Returns what all sessions did, and the first fault of one.
fn sum(sessions: impl IntoIterator<Item = Session>) -> (Work, Option<String>) {
    let (mut work, mut fault) = (Work::default(), None);
    for session in sessions {
        work.launches += session.launches;
        work.replays += session.replays;
        work.copies += session.copies;
        work.fills += session.fills;
        work.written_bytes += session.written_bytes;
        work.batches += session.batches;
        fault = fault.or(session.fault);
    }
    (work, fault)
}

impl ProcessReport {
    /// `time` is that of the whole command: the server starts the driver before the program, which
    /// natively does so itself.
    pub fn told(self, time: Duration) -> Told {
        let (work, mut fault) = sum(self.sessions.into_iter().map(|gpu| gpu.session));
        if self.sessions_left_out != 0 {
            fault = fault.or(Some(String::from("it had more sessions than are reported")));
        }
        Told {
            status: self.program_status,
            time_ns: time.as_nanos() as f64,
            fault,
            work: Some(work),
            exits: None,
        }
    }
}

impl GuestReport {
    /// Tells of the program of the only VM, if it has ended.
    pub fn told(mut self) -> Result<Told, LifeError> {
        let vm = self.vms.pop();
        let lived = vm.and_then(|vm| {
            let further = vm.further_gpus.into_iter().map(|gpu| gpu.session);
            let sessions = [vm.session].into_iter().chain(further);
            let is_whole = vm.phases_refused == 0;
            Some((vm.program_status?, vm.program?, sum(sessions), is_whole))
        });
        let (status, counted, (work, fault), is_whole) =
            lived.ok_or(LifeError::Refused(self.reason))?;
        let data = self.phases.iter().filter(|phase| phase.path == "data");
        let data: Vec<u64> = data.map(|phase| phase.operations).collect();
        let data_path = (!data.is_empty() && is_whole).then(|| DataPath {
            operations: data.iter().sum(),
            exits: self.data_path_exits,
        });
        Ok(Told {
            status,
            time_ns: counted.duration_ns as f64,
            fault,
            work: Some(work),
            exits: Some(Exits {
                data_path,
                ..counted.into()
            }),
        })
    }
}

impl From<Counted> for Exits {
    fn from(counted: Counted) -> Self {
        let vmm = counted.vmm_exits;
        let of_gpu = vmm.iter().filter(|(name, _)| is_of_gpu(name));
        Self {
            user_space_per_operation: vmm.values().sum::<u64>() as f64,
            of_gpu: of_gpu.map(|(_, count)| count).sum(),
            doorbells: counted.kvm_doorbells,
            data_path: None,
            kvm: counted.kvm_exits,
            vmm,
        }
    }
}

/// Whether an exit, by its name of reason, device and register, is one of the GPU's function: its
/// registers, and places of its memory where there is none.
fn is_of_gpu(name: &str) -> bool {
    let device = name.split(':').nth(1);
    device.is_some_and(|device| ["registers", "aperture", "doorbells"].contains(&device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_all_processes_is_added_up() {
        let session = |fault: &str| {
            format!(
                r#"{{"session": {{"launches": 2, "replays": 1, "copies": 3, "fills": 0,
                "written_bytes": 10, "batches": 5{fault}}}}}"#
            )
        };
        let (one, other) = (session(""), session(r#", "fault": "stopped""#));
        let text = format!(r#"{{"program_status": 7, "sessions": [{one}, {other}], "more": 1}}"#);
        let report: ProcessReport = serde_json::from_str(&text).unwrap();
        let told = report.told(Duration::from_nanos(9));
        assert_eq!(told.time_ns, 9.0);
        let work = told.work.unwrap();
        assert_eq!(
            (work.launches, work.written_bytes, work.batches),
            (4, 20, 10)
        );
        assert_eq!((told.status, told.fault.as_deref()), (7, Some("stopped")));
    }

    #[test]
    fn exits_of_the_gpu_are_told_from_those_of_other_devices() {
        let vmm = [
            ("mmio:registers:control_doorbell", 4),
            ("io:console:data", 90),
        ];
        let exits = Exits::from(Counted {
            duration_ns: 1,
            kvm_exits: BTreeMap::new(),
            vmm_exits: vmm.map(|(name, count)| (name.to_owned(), count)).into(),
            kvm_doorbells: Some(2),
        });
        assert_eq!((exits.user_space_per_operation, exits.of_gpu), (94.0, 4));
    }

    #[test]
    fn a_command_without_a_report_is_quoted() {
        let read = |output| read::<ProcessReport>(Path::new("/nothing/here"), output);
        let error = read("well\ncauseway: no GPU\n\n").err().unwrap();
        assert_eq!(error.to_string(), "causeway: no GPU");
    }
}
