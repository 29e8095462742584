//! What the host's GPUs have free, which a process of its own asks the driver: the driver starts
//! threads for that, which a VMM must not have when it confines itself.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use causeway_cuda::Room;
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure};
use clap::Args;
use serde::{Deserialize, Serialize};

/// Arguments of `causeway gpu-rooms`.
#[derive(Debug, Args)]
pub struct RoomsArguments {
    /// Number of multiprocessors that each VM wants for itself.
    #[arg(long)]
    pub sms: Option<u32>,
}

/// What one process tells the other: the GPUs, or why there are none.
type Answer = Result<Vec<Told>, String>;

#[derive(Debug, Deserialize, Serialize)]
struct Told {
    name: String,
    free_bytes: u64,
    groups: Option<u32>,
}

/// Why a process does not tell what GPUs have free.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoomsError {
    /// The process cannot be started.
    #[error("cannot start the process that asks the driver")]
    Start(#[source] std::io::Error),
    /// The process has ended without an answer.
    #[error("the process that asks the driver ended with {0}")]
    Ended(std::process::ExitStatus),
    /// The driver cannot be used.
    #[error("{0}")]
    Driver(String),
}

/// Asks the driver what each GPU has free, and prints that for the process that started this one.
///
/// # Errors
/// A report failure if standard output cannot be written.
pub fn print(arguments: &RoomsArguments) -> Result<ExitCode, Failure> {
    let told = |room: Room| Told {
        name: room.name,
        free_bytes: room.free_bytes,
        groups: room.groups,
    };
    let rooms = causeway_cuda::rooms(arguments.sms);
    let answer: Answer = match rooms {
        Ok(rooms) => Ok(rooms.into_iter().map(told).collect()),
        Err(error) => Err(error.to_string()),
    };
    let text = serde_json::to_string(&answer)
        .map_err(|e| Failure::new(Code::Report, "cannot encode the answer as JSON", e))?;
    terminal::print_results(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what each GPU of the host has free, in the order of their numbers. `sms` is the number
/// of multiprocessors that each VM wants for itself.
pub(crate) fn ask(sms: Option<u32>) -> Result<Vec<Room>, RoomsError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("causeway").arg("gpu-rooms");
    if let Some(sms) = sms {
        command.args(["--sms", &sms.to_string()]);
    }
    let output = command
        // The driver counts GPUs as it does for workers.
        .envs(causeway_cuda::ENVIRONMENT.iter().copied())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(RoomsError::Start)?;
    let answer = serde_json::from_slice(&output.stdout);
    let answer: Answer = answer.map_err(|_| RoomsError::Ended(output.status))?;
    let room = |told: Told| Room {
        name: told.name,
        free_bytes: told.free_bytes,
        groups: told.groups,
    };
    let told = answer.map_err(RoomsError::Driver)?;
    Ok(told.into_iter().map(room).collect())
}
