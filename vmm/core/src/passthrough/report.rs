//! What was done with a device, for the report.

use serde::Serialize;

use super::interrupts::Mode;

/// A device that a VM had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// Its address on the host, such as `0000:00:03.0`.
    pub address: String,
    /// Vendor and device ID, such as `1af4:1044`.
    pub id: String,
    /// Class code, six hexadecimal digits.
    pub class: String,
    /// How it was held: `group and type-1 container`, or `iommufd`.
    pub held_by: String,
    /// Addresses of the other functions of its IOMMU group, which nobody used meanwhile.
    pub companions: Vec<String>,
    /// Its memory BARs.
    pub bars: Vec<BarReport>,
    /// Its interrupts.
    pub interrupts: InterruptReport,
    /// Loads from configuration space. Each is an exit.
    pub config_reads: u64,
    /// Stores to configuration space. Each is an exit.
    pub config_writes: u64,
    /// Loads from BARs that were exits.
    pub trapped_reads: u64,
    /// Stores to BARs that were exits.
    pub trapped_writes: u64,
    /// Times that a BAR was put elsewhere, or decoded again.
    pub moved_bars: u64,
    /// Accesses and settings that the device or the host's kernel refused.
    pub failures: u64,
    /// Resets by the VMM so far; one more follows when the device is given back.
    pub resets: u64,
    /// Guest memory that the device could reach, in bytes.
    pub dma_bytes: u64,
    /// Events that the host or the device caused meanwhile.
    pub events: Vec<String>,
}

/// A memory BAR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BarReport {
    /// Number of its register.
    pub bar: usize,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether its register is of 64 bits.
    pub wide: bool,
    /// Whether loads have no side effects.
    pub prefetchable: bool,
    /// Where it was in the guest last, if it was decoded.
    pub address: Option<u64>,
    /// Parts that the guest reaches without an exit.
    pub mapped: Vec<MappedRange>,
    /// Bytes of these parts.
    pub mapped_bytes: u64,
    /// Bytes of which each access is an exit.
    pub trapped_bytes: u64,
}

/// A part of a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MappedRange {
    /// First byte in the BAR.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The interrupts that a device had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterruptReport {
    /// `none`, `INTx`, `MSI` or `MSI-X`: the best that the guest has enabled.
    pub mode: &'static str,
    /// Most vectors that were set up at a time.
    pub vectors: usize,
    /// Times that the guest changed the kind.
    pub changes: u64,
}

impl From<Mode> for &'static str {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::None => "none",
            Mode::Pin => "INTx",
            Mode::Messages(_) => "MSI",
            Mode::Table => "MSI-X",
        }
    }
}

/// Identity of a device.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Vendor and device ID.
    pub id: String,
    /// Class code.
    pub class: String,
}
