//! The Causeway function of a guest as Linux shows it in sysfs, without a driver in the kernel.
//!
//! * [`PciFunction`]: where it is, its BARs, and [mappings](Registers) of them.
//! * [`Clients`]: which process has which page of BAR 0, and what is done for those that died.
//!
//! The Linux shim and the init of Linux guests use it.

mod clients;
mod function;
mod registers;

pub use clients::{ClientState, Clients, Page};
pub use function::{Bar, FUNCTION_VARIABLE, NotUsable, PciFunction, PciFunctionError};
pub use registers::Registers;
