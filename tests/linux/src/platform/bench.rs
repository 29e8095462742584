//! Reports. A process that has no test bench around it prints its figures and keeps the rest to itself.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use causeway_protocol::harness::{Loop, PhasePath};

use super::letters::Folder;

/// Where letters go.
pub(super) static LETTERS: OnceLock<Folder> = OnceLock::new();

/// What was done in a phase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Operations.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Doorbells rung.
    pub doorbells: u64,
}

/// A phase of the workload. Phases do not nest.
#[derive(Debug)]
#[must_use = "a phase lasts until it is ended"]
pub struct Phase(());

impl Phase {
    /// Begins a phase.
    pub fn begin(_: PhasePath, _: &str) -> Self {
        Self(())
    }

    /// Ends it.
    pub fn end(self, _: Totals) {}
}

/// Reports a figure with its unit.
pub fn figure(name: &str, value: f64, unit: &str) {
    println!("{name}: {value:.3} {unit}");
}

/// Reports a plain ratio.
pub fn ratio(name: &str, value: f64) {
    println!("{name}: {value:.3}");
}

/// Why there is no letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLetter {
    /// None has been left so far.
    NotYet,
    /// None will be that is worth waiting for: the other side has failed.
    Hopeless,
}

impl fmt::Display for NoLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotYet => "there is none so far",
            Self::Hopeless => "the other side has failed",
        })
    }
}

/// Leaves a letter for the other side in box `slot`, below 64.
///
/// # Panics
/// If there is no way to it.
pub fn post(slot: u32, data: &[u8; 64]) {
    let folder = LETTERS.get().expect("letters need another process");
    folder
        .post(slot, data)
        .expect("the folder of letters can be written");
}

/// Fetches the letter in box `slot`, waiting up to `wait_ms` milliseconds for it.
///
/// # Errors
/// There is none.
pub fn fetch(slot: u32, wait_ms: u32) -> Result<[u8; 64], NoLetter> {
    let folder = LETTERS.get().ok_or(NoLetter::Hopeless)?;
    folder.fetch(slot, Duration::from_millis(wait_ms.into()))
}

/// Runs a loop on a host thread over memory that this guest has mapped; nobody does that here.
#[must_use]
pub const fn baseline(_: Loop, _: u64, _: u64, _: u32) -> Option<u64> {
    None
}
