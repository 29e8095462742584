//! The life of a program: what is known of a run of it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a program did on the GPU.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Work {
    /// Kernels launched by packets of their own, not by a replay.
    pub launches: u64,
    /// Recordings (graphs) replayed.
    pub replays: u64,
    /// Copies executed by the GPU.
    pub copies: u64,
    /// Fills executed by the GPU.
    pub fills: u64,
    /// Bytes that these copies and fills were asked to write.
    pub written_bytes: u64,
    /// Control batches: for allocations, loads of modules and the like. In a guest, each is an
    /// exit.
    pub batches: u64,
}

/// VM exits during the life of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exits {
    /// Exits that reached the VMM: their number in one life.
    pub user_space_per_operation: f64,
    /// Those of them that the GPU's function caused; the others are those of the console, disks and
    /// the like.
    pub of_gpu: u64,
    /// Stores to doorbells, which the host's kernel takes; absent if the host does not tell them.
    pub doorbells: Option<u64>,
    /// What the parts that the program marks had; absent if it marks none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_path: Option<DataPath>,
    /// KVM's statistics, by name.
    pub kvm: BTreeMap<String, u64>,
    /// Exits that reached the VMM, by reason, device and register.
    pub vmm: BTreeMap<String, u64>,
}

/// The parts of a program that it marks as its data path, by `cudaProfilerStart` and
/// `cudaProfilerStop`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DataPath {
    /// Launches, copies and other pieces of work that the GPU was given in them.
    pub operations: u64,
    /// Exits to user space in them, by the larger one of two counts in each.
    pub exits: u64,
}

/// A run of a program from its start to its end.
#[derive(Debug, Default)]
pub struct Life {
    /// Exit status, or 128 and the number of the signal that ended it.
    pub status: u8,
    /// From the start to the end, in nanoseconds: of the command that the user types, and in a
    /// guest of the program.
    pub time_ns: f64,
    /// What it wrote to standard output and standard error.
    pub output: String,
    /// What Causeway's libraries said.
    pub said: Vec<String>,
    /// What stopped the device, if anything did.
    pub fault: Option<String>,
    /// What it did on the GPU; `None` where nobody counts that.
    pub work: Option<Work>,
    /// Exits of its guest, if it ran in one.
    pub exits: Option<Exits>,
}

/// Why a program has no life to be judged.
#[derive(Debug, thiserror::Error)]
pub enum LifeError {
    /// A file or folder could not be read or written.
    #[error("{0}: {1}")]
    Files(PathBuf, #[source] io::Error),
    /// The command could not be started or waited for.
    #[error("cannot run {0}: {1}")]
    Command(PathBuf, #[source] io::Error),
    /// The program did not end in time.
    #[error("it did not end within {} s", .0.as_secs())]
    Overdue(Duration),
    /// The program printed too much.
    #[error("it printed more than {} MiB", .0 >> 20)]
    Noisy(u64),
    /// A signal to this process ended it.
    #[error("signal {0} ended it")]
    Signal(i32),
    /// The command of Causeway failed.
    #[error("{0}")]
    Refused(String),
    /// Its report is not what it should be.
    #[error("{0} is no report: {1}")]
    Report(PathBuf, #[source] serde_json::Error),
}
