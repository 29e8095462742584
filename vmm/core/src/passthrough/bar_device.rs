//! A BAR of a passed-through device on the MMIO bus: carries out the accesses to those parts that
//! are no memory slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_host_vfio::{AccessError, Device, RegionIndex};

use super::capabilities::MsixPlace;
use super::failure_counter::FailureCounter;
use super::interrupts::Interrupts;
use crate::bus::{AccessResult, BusDevice, Refusal, Response};

/// Names of a VM's passed-through devices in exit counters, in order.
const NAMES: [&str; 8] = [
    "vfio0", "vfio1", "vfio2", "vfio3", "vfio4", "vfio5", "vfio6", "vfio7",
];
/// Names of the BARs in exit counters.
const BAR_NAMES: [&str; 6] = ["bar0", "bar1", "bar2", "bar3", "bar4", "bar5"];

/// Returns the name under which exits of passed-through device number `index`, from 0, of a VM are
/// counted.
pub fn name(index: usize) -> &'static str {
    NAMES.get(index).unwrap_or(&"vfio")
}

/// Counters of the guest's accesses to a passed-through device, as far as they were exits.
#[derive(Debug, Default)]
pub struct AccessCounters {
    /// Number of the guest's loads from BARs that were exits.
    pub reads: AtomicU64,
    /// Number of the guest's stores to BARs that were exits.
    pub writes: AtomicU64,
    /// Number of the guest's loads from configuration space.
    pub config_reads: AtomicU64,
    /// Number of the guest's stores to configuration space.
    pub config_writes: AtomicU64,
}

impl AccessCounters {
    /// Adds one to `counter`.
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A memory BAR of a passed-through device, as a device on the MMIO bus. It carries out the
/// accesses to the BAR that are exits.
pub struct BarDevice {
    /// Name under which the device's exits are counted.
    pub name: &'static str,
    /// Number of the BAR, 0 to 5.
    pub index: u8,
    /// The host's device.
    pub device: Arc<Device>,
    /// Where the MSI-X table and pending bits are in the device's BARs; `None` if the device has no
    /// MSI-X.
    pub msix: Option<MsixPlace>,
    /// The device's interrupts. They emulate its MSI-X table for the guest.
    pub interrupts: Arc<Interrupts>,
    /// Counters of the guest's accesses to the device that were exits.
    pub counters: Arc<AccessCounters>,
    /// Counts and logs accesses that the host's device or kernel refused.
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
    /// Neither: the access goes to the host's device.
    Region,
}

impl BarDevice {
    fn part(&self, offset: u64, bytes: usize) -> Part {
        let Some(msix) = &self.msix else {
            return Part::Region;
        };
        let (bytes, end) = (bytes as u64, offset.saturating_add(bytes as u64));
        let places = [
            (msix.table, Part::Table as fn(u64) -> Part),
            (msix.pending, Part::Pending),
        ];
        for ((bar, area), part) in places {
            if bar != self.index || offset >= area.offset + area.bytes || end <= area.offset {
                continue;
            }
            return match area.contains(offset, bytes) {
                true => part(offset - area.offset),
                false => Part::Edge,
            };
        }
        Part::Region
    }

    fn answer(&self, result: Result<(), AccessError>) -> AccessResult {
        let result = result.inspect_err(|e| self.failures.add(e));
        result.map_err(|_| Refusal::Device)?;
        Ok(BAR_NAMES.get(usize::from(self.index)).unwrap_or(&"bar"))
    }
}

impl BusDevice for BarDevice {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        AccessCounters::add(&self.counters.reads);
        let access = match self.part(offset, into.len()) {
            Part::Table(offset) => self.interrupts.read_table(offset, into),
            Part::Pending(offset) => self.interrupts.read_pending(offset, into),
            Part::Edge => Err(Refusal::CrossesEdge),
            Part::Region => {
                let region = RegionIndex::Bar(self.index);
                self.answer(self.device.read(region, offset, into))
            }
        };
        access.into()
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        AccessCounters::add(&self.counters.writes);
        let access = match self.part(offset, from.len()) {
            Part::Table(offset) => self.interrupts.write_table(offset, from),
            Part::Pending(_) => Err(Refusal::ReadOnly),
            Part::Edge => Err(Refusal::CrossesEdge),
            Part::Region => {
                let region = RegionIndex::Bar(self.index);
                self.answer(self.device.write(region, offset, from))
            }
        };
        access.into()
    }
}
