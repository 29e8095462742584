//! `causeway cuda`: runs an unmodified CUDA program of this host on Causeway, with
//! `guest-driver-shim/cuda` in place of NVIDIA's driver library, `guest-driver-shim/cudart` in
//! place of its runtime library, and a server for it alone.

mod library;
mod private_folder;
mod program;
mod report;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use causeway_embedded_libraries::ARCHIVES;
use causeway_run::sandbox::SandboxArguments;
use causeway_run::{GRACE, raise_descriptor_limit, watch_signals};
use causeway_serve::PrivateServer;
use causeway_terminal::{
    Code, Failure, Origin, ReportFile, number, print_results, say, shown_path,
};
use causeway_vmm::signals::Signals;
use clap::Args;
use rustix::process::Signal;

pub use library::write as write_libraries;
use private_folder::PrivateFolder;
use program::Program;
use report::CudaReport;

#[cfg(feature = "schema")]
pub use report::schema;

/// Arguments of `causeway cuda`, as the user typed them.
#[derive(Debug, Args)]
pub struct CudaArguments {
    /// Back end and the limits of each process of the program, as for `run`. Given several times,
    /// each is one more GPU.
    #[arg(long, value_name = "GPU", default_value = "software")]
    pub gpu: Vec<String>,
    /// How worker processes are confined.
    #[command(flatten)]
    pub sandbox: SandboxArguments,
    /// Use the `causeway serve` that listens at this path instead of a server for this program
    /// alone.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["gpu", "processes", "sandbox"])]
    pub socket: Option<PathBuf>,
    /// Maximum number of processes of the program that use the GPU at a time, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number::<u32>(1..=64, ""))]
    pub processes: u32,
    /// Write what the program did on the GPU to this file, as JSON; - writes it to standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    pub json: Option<PathBuf>,
    /// Write libcuda.so.1, libnvidia-ml.so.1, libcudart.so.12 and .13, libcudart_static.a and
    /// cuda-12/libcudart_static.a to this directory, and run no program.
    #[arg(
        long,
        value_name = "DIRECTORY",
        conflicts_with_all = ["gpu", "socket", "processes", "sandbox", "json", "program"]
    )]
    pub install: Option<PathBuf>,
    /// Print the options of nvcc that put the libcudart_static.a of --install into a program. CUDA
    /// is nvcc's version, 12 or 13; 13 if it is left out.
    #[arg(
        long,
        requires = "install",
        value_name = "CUDA",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "13",
        value_parser = number::<u32>(12..=13, "")
    )]
    pub nvcc_flags: Option<u32>,
    /// Program to run, and its arguments. The command ends with the program's exit status, or with
    /// 128 and the number of the signal that ended it.
    #[arg(
        last = true,
        value_name = "PROGRAM",
        required_unless_present_any = ["install", "nvcc_flags"]
    )]
    pub program: Vec<OsString>,
}

/// Runs a program on a server of its own, or installs the library.
///
/// # Errors
/// A usage failure if an argument is invalid or the program cannot be started; a GPU failure if the
/// back end is not available; a report failure if the library cannot be written.
pub fn run(arguments: &CudaArguments) -> Result<ExitCode, Failure> {
    if let Some(directory) = &arguments.install {
        install(directory, arguments.nvcc_flags)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (origin, file) = (
        Origin::now(),
        ReportFile::prepare(arguments.json.as_deref())?,
    );
    // Threads of the server inherit the mask.
    let mut signals = Signals::block_for_program().map_err(|e| {
        let message = "cannot prepare to pass signals such as SIGINT (Ctrl-C) on to the program";
        Failure::new(Code::Crashed, message, e)
    })?;
    signals = watch_signals(signals, GRACE)?;
    let folder = PrivateFolder::create()?;
    library::write(folder.path())?;
    let (server, socket) = match &arguments.socket {
        Some(socket) => (None, socket.clone()),
        None => {
            let socket = folder.path().join("socket");
            (
                Some(start_server(&socket, arguments, &mut signals)?),
                socket,
            )
        }
    };
    // Dropped at each failure from here on, before the server ends.
    let passed_on = signals.pass_on();
    let begun = Instant::now();
    let program = Program::start(&arguments.program, folder.path(), &socket, &signals)?;
    // Only now, because the program inherits its limit from this process.
    raise_descriptor_limit();
    let status = program.wait(&mut signals)?;
    let lived = begun.elapsed();
    passed_on.program_ended(status.into());
    if let Some(server) = server {
        let ended = server.end();
        file.write(&CudaReport::new(
            origin,
            &arguments.gpu,
            (status, lived),
            &ended,
        ))?;
    }
    Ok(status.into())
}

/// Writes the libraries, and says what for, or prints the options of nvcc alone.
fn install(directory: &Path, flags_for: Option<u32>) -> Result<(), Failure> {
    let flags = flags_for
        .map(|cuda| nvcc_flags(directory, cuda))
        .transpose()?;
    library::install(directory)?;
    if let Some(flags) = flags {
        return print_results(&flags);
    }
    let shown = shown_path(directory);
    say(&format!(
        "causeway: wrote libcuda.so.1, libnvidia-ml.so.1, libcudart.so.12 and .13, \
         libcudart_static.a and cuda-12/libcudart_static.a to {shown}; programs find the first \
         four with LD_LIBRARY_PATH={shown} and the server with CAUSEWAY_SOCKET"
    ));
    Ok(())
}

/// Returns the options of nvcc of a version of CUDA that make it link the `libcudart_static.a` in
/// `directory`: its own `-cudart static`, and where to look first.
fn nvcc_flags(directory: &Path, cuda: u32) -> Result<String, Failure> {
    let archive = ARCHIVES.iter().find(|archive| archive.cuda == cuda);
    let folder = archive.map_or("", |archive| archive.folder);
    let whole = std::path::absolute(directory).ok();
    let whole = match folder {
        "" => whole,
        folder => whole.map(|whole| whole.join(folder)),
    };
    let text = whole.as_deref().and_then(Path::to_str);
    let text = text.filter(|text| !text.contains(char::is_whitespace));
    let text = text.ok_or_else(|| {
        Failure::usage(format!(
            "invalid value {} for --install: its path has a space, or is no text, which a shell \
             would not pass on as one of --nvcc-flags: choose another directory",
            shown_path(directory)
        ))
    })?;
    Ok(format!("-cudart static -L{text}\n"))
}

/// Starts the server of the program. A signal that would end the program ends this, too: a driver
/// may take long to start, or hang.
fn start_server(
    socket: &Path,
    arguments: &CudaArguments,
    signals: &mut Signals,
) -> Result<PrivateServer, Failure> {
    let mut ended_by = None;
    let mut gives_up = || {
        let arrived = signals.take().filter(|signal| !is_for_program(*signal));
        ended_by = ended_by.or(arrived);
        ended_by.is_some()
    };
    let (gpu, processes) = (&arguments.gpu, arguments.processes);
    let sandbox = arguments.sandbox.sandbox;
    let server = PrivateServer::start(socket, gpu, processes, sandbox, &mut gives_up)?;
    server.ok_or_else(|| {
        let signal = ended_by.unwrap_or(0);
        let message = format!("signal {signal} ended the command before its program started");
        Failure::without_cause(Code::of_signal(signal), message)
    })
}

/// Whether a signal means nothing before there is a program.
fn is_for_program(signal: i32) -> bool {
    [Signal::USR1, Signal::USR2]
        .map(Signal::as_raw)
        .contains(&signal)
}
