//! PCI as far as a guest needs it to find its devices on bus 0: configuration mechanism #1, a host
//! bridge, and configuration space as a table.

use std::sync::Arc;

mod bridge;
mod config;
mod decode;
mod layout;
mod mechanism;
mod msix;

pub use bridge::host_bridge;
pub use config::{
    COMMAND_BUS_MASTER, COMMAND_INTX_DISABLE, COMMAND_MEMORY, ConfigSpace, Identity, MemoryBar,
    MsixCapability,
};
pub use decode::{DecodeError, Decoders, Follow};
pub use layout::{
    BarAllocator, FunctionBars, GPUS_MAX, LOW_BASE, LOW_END, Layout, LayoutError,
    physical_address_bits,
};
pub use mechanism::{CONFIG_PORTS, CONFIG_PORTS_BYTES, PciBus};
pub use msix::MsixTable;

/// The configuration space of a function on a guest's PCI bus. The bus calls these methods when the
/// guest accesses the space.
///
/// Each access lies within one aligned 32-bit word, and `offset` is below 256.
pub trait ConfigAccess: Send + Sync {
    /// Carries out the guest's load at `offset` of the function's configuration space. Sets all
    /// bytes of `into`.
    fn read_config(&self, offset: u8, into: &mut [u8]);
    /// Carries out the guest's store of `from` at `offset` of the function's configuration space.
    fn write_config(&self, offset: u8, from: &[u8]);
}

/// The functions of PCI bus 0; the index is the device number, and `None` means that there is no
/// such device. Each device has function 0 only.
pub type Devices = [Option<Arc<dyn ConfigAccess>>; 32];
