//! A BAR on the MMIO bus: what of it is no memory slot, or is none at the moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_host_vfio::{AccessError, Device, RegionIndex};

use super::capabilities::MsixPlace;
use super::failure_counter::FailureCounter;
use super::interrupts::Interrupts;
use crate::bus::{BusDevice, Refusal, Response};

/// Names of the devices of a VM, in order, as exits are counted by.
const NAMES: [&str; 8] = [
    "vfio0", "vfio1", "vfio2", "vfio3", "vfio4", "vfio5", "vfio6", "vfio7",
];
/// Registers of them, as exits are counted by.
const BAR_NAMES: [&str; 6] = ["bar0", "bar1", "bar2", "bar3", "bar4", "bar5"];

/// Returns the name of device number `index` of a VM.
pub fn name(index: usize) -> &'static str {
    NAMES.get(index).unwrap_or(&"vfio")
}

/// Accesses that were exits.
#[derive(Debug, Default)]
pub struct AccessCounters {
    /// Loads from BARs.
    pub reads: AtomicU64,
    /// Stores to BARs.
    pub writes: AtomicU64,
    /// Loads from configuration space.
    pub config_reads: AtomicU64,
    /// Stores to configuration space.
    pub config_writes: AtomicU64,
}

impl AccessCounters {
    /// Counts one.
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A BAR.
pub struct BarDevice {
    /// Name of the device.
    pub name: &'static str,
    /// Number of the BAR.
    pub index: u8,
    /// The device.
    pub device: Arc<Device>,
    /// Where its MSI-X table and pending bits are.
    pub msix: Option<MsixPlace>,
    /// The device's interrupts.
    pub interrupts: Arc<Interrupts>,
    /// Counts.
    pub counters: Arc<AccessCounters>,
    /// Accesses that the device refused.
    pub failures: Arc<FailureCounter>,
}

/// The part of a BAR that an access hits.
enum Part {
    /// The MSI-X table, at this offset.
    Table(u64),
    /// The pending bits, at this offset.
    Pending(u64),
    /// Both of that and something else.
    Edge,
    /// The device.
    Region,
}

impl BarDevice {
    fn part(&self, offset: u64, bytes: usize) -> Part {
        let Some(msix) = &self.msix else {
            return Part::Region;
        };
        let end = offset.saturating_add(bytes as u64);
        let hit = |(bar, start): (u8, u64), length: u64| {
            let touches = bar == self.index && offset < start + length && end > start;
            touches.then(|| offset.checked_sub(start).filter(|_| end <= start + length))
        };
        match hit(msix.table, msix.table_bytes()) {
            Some(Some(offset)) => return Part::Table(offset),
            Some(None) => return Part::Edge,
            None => {}
        }
        match hit(msix.pending, msix.pending_bytes()) {
            Some(Some(offset)) => Part::Pending(offset),
            Some(None) => Part::Edge,
            None => Part::Region,
        }
    }

    fn register(&self) -> &'static str {
        BAR_NAMES.get(usize::from(self.index)).unwrap_or(&"bar")
    }

    fn answer(&self, result: Result<(), AccessError>) -> Response {
        match result {
            Ok(()) => Response::ok(self.register()),
            Err(e) => {
                self.failures.add(&e);
                Response::refused(Refusal::Device)
            }
        }
    }
}

impl BusDevice for BarDevice {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        AccessCounters::add(&self.counters.reads);
        match self.part(offset, into.len()) {
            Part::Table(offset) => self.interrupts.read_table(offset, into),
            Part::Pending(offset) => self.interrupts.read_pending(offset, into),
            Part::Edge => Response::refused(Refusal::CrossesEdge),
            Part::Region => {
                let region = RegionIndex::Bar(self.index);
                self.answer(self.device.read(region, offset, into))
            }
        }
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        AccessCounters::add(&self.counters.writes);
        match self.part(offset, from.len()) {
            Part::Table(offset) => self.interrupts.write_table(offset, from),
            Part::Pending(_) => Response::refused(Refusal::ReadOnly),
            Part::Edge => Response::refused(Refusal::CrossesEdge),
            Part::Region => {
                let region = RegionIndex::Bar(self.index);
                self.answer(self.device.write(region, offset, from))
            }
        }
    }
}
