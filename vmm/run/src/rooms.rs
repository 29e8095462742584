//! What the host's GPUs have free, and where they are, which a process of its own asks the driver:
//! the driver starts threads and opens files for that, which a VMM must not have when it confines
//! itself.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use causeway_cuda::{Room, SurveyError};
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure};
use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Arguments of `causeway gpu-rooms`.
#[derive(Debug, Args)]
pub struct RoomsArguments {
    /// Number of multiprocessors that each VM wants for itself.
    #[arg(long)]
    pub sms: Option<u32>,
    /// Print PCI addresses instead, without a context on each GPU.
    #[arg(long)]
    pub addresses: bool,
}

/// What one process tells the other: something about each GPU, or why there are none.
type Answer<T> = Result<Vec<T>, String>;

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

/// Asks the driver about each GPU, and prints that for the process that started this one.
///
/// # Errors
/// A report failure if standard output cannot be written.
pub fn print(arguments: &RoomsArguments) -> Result<ExitCode, Failure> {
    if arguments.addresses {
        let gpus = causeway_cuda::identities();
        return answer(gpus, |gpu| gpu.pci_address);
    }
    answer(causeway_cuda::rooms(arguments.sms), |room| Told {
        name: room.name,
        free_bytes: room.free_bytes,
        groups: room.groups,
    })
}

fn answer<F, T: Serialize>(
    found: Result<Vec<F>, SurveyError>,
    told: impl Fn(F) -> T,
) -> Result<ExitCode, Failure> {
    let answer: Answer<T> = match found {
        Ok(found) => Ok(found.into_iter().map(told).collect()),
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
    let sms = sms.map(|sms| sms.to_string());
    let words: Vec<&str> = sms.iter().flat_map(|sms| ["--sms", sms]).collect();
    let room = |told: Told| Room {
        name: told.name,
        free_bytes: told.free_bytes,
        groups: told.groups,
    };
    Ok(ask_process(&words)?.into_iter().map(room).collect())
}

/// Returns the PCI address of each GPU of the host, as sysfs names it, in the order of their
/// numbers.
pub(crate) fn ask_addresses() -> Result<Vec<String>, RoomsError> {
    ask_process(&["--addresses"])
}

/// Starts the process that asks the driver, with these arguments, and returns what it tells.
fn ask_process<T: DeserializeOwned>(words: &[&str]) -> Result<Vec<T>, RoomsError> {
    let output = Command::new("/proc/self/exe")
        .arg0("causeway")
        .arg("gpu-rooms")
        .args(words)
        // The driver counts GPUs as it does for workers.
        .envs(causeway_cuda::ENVIRONMENT.iter().copied())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(RoomsError::Start)?;
    let answer = serde_json::from_slice(&output.stdout);
    let answer: Answer<T> = answer.map_err(|_| RoomsError::Ended(output.status))?;
    answer.map_err(RoomsError::Driver)
}
