//! `causeway worker`: the worker process of one VM, and `causeway starter`, which starts it. The
//! program starts itself with these commands.

use std::process::ExitCode;

use causeway_vmm::signals::Signals;
use clap::Args;

use crate::back_end::{self, Users};
use crate::gpu::{Gpu, GpuError};
use crate::sandbox::{self, SandboxArguments};
use causeway_terminal::{Code, Failure};

/// Arguments of `causeway worker`, which a VMM passes to the worker processes that it starts.
#[derive(Debug, Args)]
pub struct WorkerArguments {
    /// The values of `--gpu`, as given to `run` or `serve`.
    #[arg(long, required = true)]
    pub gpu: Vec<String>,
    /// Which of them this process is for, from 0.
    #[arg(long)]
    pub number: usize,
    /// Use 4 KiB pages for the session's memory, and seal its size, because the client process
    /// receives descriptors of the memory.
    #[arg(long)]
    pub seal: bool,
    /// How to confine this process.
    #[command(flatten)]
    pub sandbox: SandboxArguments,
    /// Process ID of the process that starts this one. This process ends with it.
    pub parent: u32,
    /// Number of the GPU's partition that the session holds, from 0. With the key sms of --gpu
    /// cuda, it decides which multiprocessors the session gets.
    pub partition: u32,
}

/// Arguments of `causeway starter`.
#[derive(Debug, Args)]
pub struct StarterArguments {
    /// Process ID of the process that starts this one. This process ends with it.
    pub parent: u32,
}

/// Starts worker processes for the process that started this one, until that ends.
///
/// # Errors
/// A failure with [`Code::Crashed`] if this process cannot be set up, or receives no valid
/// requests.
pub fn start_workers(arguments: &StarterArguments) -> Result<ExitCode, Failure> {
    let _signals = block_signals()?;
    let started = causeway_worker::start_workers(arguments.parent);
    started.map_err(|e| Failure::new(Code::Crashed, "this process cannot start workers", e))?;
    Ok(ExitCode::SUCCESS)
}

/// A terminal sends signals to the whole process group; the VMM ends its processes itself.
fn block_signals() -> Result<Signals, Failure> {
    Signals::block().map_err(|e| {
        let message = "this process cannot block signals such as SIGINT, as it must to serve a VM";
        Failure::new(Code::Crashed, message, e)
    })
}

/// Holds the session of one VM or client process for the process that started this one, and ends
/// this process when that process closes the session or ends. Returns only if the session cannot be
/// opened. If the back end is not available, tells that process why, and returns the exit code of
/// [`Code::Gpu`].
///
/// # Errors
/// A usage failure if `--gpu` is invalid; a failure with [`Code::Crashed`] if this process cannot
/// be set up, or receives no valid request for a session.
pub fn run(arguments: &WorkerArguments) -> Result<ExitCode, Failure> {
    let _signals = block_signals()?;
    let parse = |text: &String| {
        let parsed = text.parse();
        parsed.map_err(|e: GpuError| Failure::usage(e.to_string()))
    };
    let gpus: Vec<Gpu> = arguments.gpu.iter().map(parse).collect::<Result<_, _>>()?;
    let number = arguments.number;
    let gpu = gpus.get(number).ok_or_else(|| {
        let given = gpus.len();
        Failure::usage(format!(
            "invalid value {number} for --number: --gpu is given {given} times"
        ))
    })?;
    let users = match arguments.seal {
        true => Users::Processes(1),
        false => Users::Vms(1),
    };
    let confinement = sandbox::confinement(arguments.sandbox.sandbox, gpu.kind);
    causeway_worker::serve(arguments.parent, confinement, || {
        back_end::equipment(&gpus, number, users, arguments.partition)
    })
    .map_err(|e| Failure::new(Code::Crashed, "this worker process cannot serve a VM", e))?;
    Ok(Code::Gpu.into())
}
