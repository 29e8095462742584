//! What the report of a VM says about its passed-through devices.

use serde::Serialize;

use super::interrupts::Mode;

/// The report on a device that was passed through to a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceReport {
    /// The device's PCI address on the host, such as `0000:00:03.0`.
    pub address: String,
    /// Vendor and device ID, such as `1af4:1044`.
    pub id: String,
    /// PCI class code of the device: six hexadecimal digits.
    pub class: String,
    /// The VFIO interface through which the VMM held the device: `group and type-1 container`, or
    /// `iommufd`.
    pub held_by: String,
    /// PCI addresses of the other functions in the device's IOMMU group. Nobody could use them
    /// while the VM had the device.
    pub companions: Vec<String>,
    /// The device's memory BARs.
    pub bars: Vec<BarReport>,
    /// The device's interrupts.
    pub interrupts: InterruptReport,
    /// Number of the guest's loads from configuration space, each of which is an exit.
    pub config_reads: u64,
    /// Number of the guest's stores to configuration space, each of which is an exit.
    pub config_writes: u64,
    /// Number of the guest's loads from BARs that were exits.
    pub trapped_reads: u64,
    /// Number of the guest's stores to BARs that were exits.
    pub trapped_writes: u64,
    /// Number of times that the guest moved a BAR, or enabled it again.
    pub moved_bars: u64,
    /// Number of the guest's accesses and interrupt settings that the device or the host's kernel
    /// refused.
    pub failures: u64,
    /// Number of times that the VMM reset the device, not counting the reset at its return to the
    /// host.
    pub resets: u64,
    /// Size in bytes of the guest memory that the device could access by DMA.
    pub dma_bytes: u64,
    /// Events that the device reported, as text: such as a request of the host to have the device
    /// back.
    pub events: Vec<String>,
}

/// The report on a memory BAR of a passed-through device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BarReport {
    /// Number of the BAR, 0 to 5.
    pub bar: usize,
    /// Size of the BAR in bytes.
    pub bytes: u64,
    /// Whether the BAR has a 64-bit address.
    pub wide: bool,
    /// Whether the BAR is prefetchable: loads from it have no side effects.
    pub prefetchable: bool,
    /// The guest-physical address that the BAR had last; `None` if the guest had disabled it.
    pub address: Option<u64>,
    /// The parts of the BAR that the guest reaches without an exit.
    pub mapped: Vec<MappedRange>,
    /// Total size in bytes of the parts that the guest reaches without an exit.
    pub mapped_bytes: u64,
    /// Total size in bytes of the rest of the BAR: each access to it is an exit.
    pub trapped_bytes: u64,
}

/// A part of a BAR that the guest reaches without an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MappedRange {
    /// Offset of the part in the BAR.
    pub offset: u64,
    /// Size of the part in bytes.
    pub bytes: u64,
}

/// The report on the interrupts of a passed-through device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterruptReport {
    /// The best kind of interrupt that the guest has enabled: `none`, `INTx`, `MSI` or `MSI-X`,
    /// from worst to best.
    pub mode: &'static str,
    /// Maximum number of interrupt vectors that were enabled at a time.
    pub vectors: usize,
    /// Number of times that the guest changed the kind of interrupt.
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
