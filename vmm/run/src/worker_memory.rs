//! `--worker-cgroup` and `--worker-memory`: how much host memory a worker process may use.

use std::path::PathBuf;

use causeway_terminal::Failure;
use causeway_worker::MemoryGroups;
use clap::Args;

use crate::arguments::parse_size_mib;
use crate::gpu::{Gpu, Isolation, Kind};

/// What a worker with a software back end needs beside the memory of its VM, in MiB: its program,
/// kernels, and page tables.
const OWN_MIB: u64 = 128;

/// Arguments about the host memory of worker processes.
#[derive(Clone, Debug, Default, Args)]
pub struct WorkerMemoryArguments {
    /// Give each worker process a control group in this folder, which bounds its host memory: a
    /// cgroup v2 folder that you may divide, without processes of its own (docs/security.md).
    #[arg(long, value_name = "DIRECTORY")]
    pub worker_cgroup: Option<PathBuf>,
    /// Host memory that each worker process may use, in MiB, or with suffix M, G or T. A worker
    /// that needs more is killed, and its VM loses its device.
    #[arg(
        long,
        value_name = "SIZE",
        allow_hyphen_values = true,
        value_parser = parse_size_mib
    )]
    pub worker_memory: Option<u64>,
}

impl WorkerMemoryArguments {
    /// Returns where workers get their groups, if they get any.
    ///
    /// # Errors
    /// A usage failure if one of the options is there without the other.
    pub fn groups(&self) -> Result<Option<MemoryGroups>, Failure> {
        match (self.worker_cgroup.clone(), self.worker_memory) {
            (None, None) => Ok(None),
            (Some(folder), Some(mib)) => Ok(Some(MemoryGroups {
                folder,
                memory_max_bytes: mib.saturating_mul(1 << 20),
            })),
            (Some(_), None) => Err(Failure::usage(
                "--worker-cgroup needs --worker-memory, which says how much host memory each \
                 worker process may use",
            )),
            (None, Some(_)) => Err(Failure::usage(
                "--worker-memory needs --worker-cgroup, a control group in which worker processes \
                 get groups of their own",
            )),
        }
    }
}

/// Refuses groups for workers that do not exist, and those in which a VM could not use its memory.
pub(crate) fn check(groups: &MemoryGroups, gpu: &Gpu, gpu_text: &str) -> Result<(), Failure> {
    if gpu.isolation == Isolation::None {
        let way_out = match gpu.kind {
            Kind::Software(_) | Kind::Cuda(_) => "add isolation=process to --gpu",
            Kind::Vfio(_) => "leave --worker-cgroup out",
        };
        return Err(Failure::usage(format!(
            "--worker-cgroup bounds worker processes, and --gpu {gpu_text} has none: {way_out}"
        )));
    }
    let given_mib = groups.memory_max_bytes >> 20;
    let needed_mib = (gpu.memory_bytes >> 20) + OWN_MIB;
    if matches!(gpu.kind, Kind::Software(_)) && given_mib < needed_mib {
        return Err(Failure::usage(format!(
            "invalid value {given_mib}M for --worker-memory: with --gpu {gpu_text}, a worker needs \
             up to {needed_mib}M, for the memory of its VM and {OWN_MIB}M of its own: choose that, \
             or a smaller memory= for --gpu"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(gpu: &str, mib: u64) -> Result<(), String> {
        let groups = MemoryGroups {
            folder: "/groups".into(),
            memory_max_bytes: mib << 20,
        };
        check(&groups, &gpu.parse().unwrap(), gpu).map_err(|refused| refused.to_string())
    }

    #[test]
    fn the_options_come_together_or_not_at_all() {
        let of = |folder: Option<&str>, worker_memory| {
            let worker_cgroup = folder.map(PathBuf::from);
            let arguments = WorkerMemoryArguments {
                worker_cgroup,
                worker_memory,
            };
            let groups = arguments.groups().map_err(|refused| refused.to_string());
            groups.map(|groups| groups.map(|groups| groups.memory_max_bytes))
        };
        assert_eq!(of(None, None), Ok(None));
        assert_eq!(of(Some("/g"), Some(3)), Ok(Some(3 << 20)));
        assert!(
            of(Some("/g"), None)
                .unwrap_err()
                .contains("--worker-memory")
        );
        assert!(of(None, Some(3)).unwrap_err().contains("--worker-cgroup"));
    }

    #[test]
    fn groups_are_refused_without_workers_and_if_they_are_too_small() {
        checked("software,memory=512,isolation=process", 640).unwrap();
        checked("cuda,memory=8192", 640).unwrap();
        let refused = checked("software,memory=512,isolation=process", 639).unwrap_err();
        assert!(
            refused.contains("639M") && refused.contains("640M"),
            "{refused}"
        );
        let refused = checked("software", 4096).unwrap_err();
        assert!(refused.contains("isolation=process"), "{refused}");
    }
}
