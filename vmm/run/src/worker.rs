//! `causeway worker`: the worker process of one VM. The program starts itself with this command.

use std::process::ExitCode;

use causeway_vmm::signals::Signals;
use clap::Args;

use crate::back_end::{self, Users};
use crate::gpu::{Gpu, GpuError};
use causeway_terminal::{Code, Failure};

/// Arguments of `worker`.
#[derive(Debug, Args)]
pub struct WorkerArguments {
    /// The text of `--gpu`, as given to `run` or `serve`.
    #[arg(long)]
    pub gpu: String,
    /// Use sealed memory of 4 KiB pages, because processes receive descriptors of it.
    #[arg(long)]
    pub seal: bool,
    /// Number of the process that started this one.
    pub parent: u32,
    /// Number of the session, from 1.
    pub session: u32,
}

/// Serves the VM of the process that started this one.
pub fn run(arguments: &WorkerArguments) -> Result<ExitCode, Failure> {
    // A terminal sends signals to the whole process group; the VMM ends its workers itself.
    let _signals =
        Signals::block().map_err(|e| Failure::new(Code::Crashed, "cannot block signals", e))?;
    let gpu: Gpu = arguments
        .gpu
        .parse()
        .map_err(|e: GpuError| Failure::usage(e.to_string()))?;
    let users = match arguments.seal {
        true => Users::Processes(1),
        false => Users::Vms(1),
    };
    causeway_worker::serve(arguments.parent, || {
        back_end::equipment(&gpu, users, arguments.session)
    })
    .map_err(|e| Failure::new(Code::Crashed, "this worker process cannot serve a VM", e))?;
    Ok(Code::Gpu.into())
}
