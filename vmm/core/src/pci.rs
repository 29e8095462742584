//! PCI as far as a guest needs it to find one function: configuration mechanism #1, a host bridge,
//! and configuration space as a table.

use std::sync::Arc;

mod bridge;
mod config;
mod decode;
mod layout;
mod mechanism;
mod msix;

pub use bridge::HostBridge;
pub use config::{
    COMMAND_BUS_MASTER, COMMAND_INTX_DISABLE, COMMAND_MEMORY, ConfigSpace, Identity, MemoryBar,
    MsixCapability,
};
pub use decode::{DecodeError, Decoders, Follow};
pub use layout::{BarAllocator, LOW_BASE, LOW_END, Layout, LayoutError, physical_address_bits};
pub use mechanism::{CONFIG_PORTS, CONFIG_PORTS_BYTES, PciBus};
pub use msix::MsixTable;

/// A function's configuration space, as the bus sees it.
///
/// Accesses lie within one aligned 32-bit word; `offset` is below 256.
pub trait ConfigAccess: Send + Sync {
    /// A load. All bytes of `into` are set.
    fn read_config(&self, offset: u8, into: &mut [u8]);
    /// A store.
    fn write_config(&self, offset: u8, from: &[u8]);
}

/// Functions by device number, on bus 0. Each device has function 0 only.
pub type Devices = [Option<Arc<dyn ConfigAccess>>; 32];
