//! Measures the time of a sample's timed part, which has its own phase.

use core::fmt::{self, Write};

use causeway_bare::{Machine, Phase, Totals, ticks};
use causeway_bench_workloads::{CELL_NAME_BYTES, Cell, Stopwatch};
use causeway_testdev_records::PhasePath;

/// Measures the time of one part.
pub struct Watch {
    machine: Machine,
    phase: Option<Phase>,
    begin: u64,
    taken: u64,
}

impl Watch {
    /// Returns a watch that has measured nothing yet.
    pub const fn new(machine: &Machine) -> Self {
        Self {
            machine: *machine,
            phase: None,
            begin: 0,
            taken: 0,
        }
    }

    /// Returns the time that the part took.
    pub fn nanoseconds(&self) -> u64 {
        self.machine.clock().nanoseconds(self.taken)
    }
}

impl Stopwatch for Watch {
    fn mark(&mut self, cell: &Cell) {
        let path = if cell.workload.description().is_data {
            PhasePath::Data
        } else {
            PhasePath::Control
        };
        let mut name = Name::default();
        // The host would not find a phase whose name does not fit.
        let _ = write!(name, "{cell}");
        self.phase = Some(Phase::begin(path, name.text()));
    }

    fn start(&mut self) {
        self.begin = ticks();
    }

    fn stop(&mut self, cell: &Cell, doorbells: u64) {
        self.taken = ticks() - self.begin;
        if let Some(phase) = self.phase.take() {
            phase.end(Totals {
                operations: cell.operations,
                bytes: 0,
                doorbells,
            });
        }
    }
}

/// A text of at most [`CELL_NAME_BYTES`] bytes.
#[derive(Default)]
struct Name {
    bytes: [[u8; 8]; CELL_NAME_BYTES / 8],
    used: usize,
}

impl Name {
    fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes.as_flattened()[..self.used]).unwrap_or("")
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.as_flattened_mut().get_mut(self.used..);
        let room = room.and_then(|room| room.get_mut(..text.len()));
        room.ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}
