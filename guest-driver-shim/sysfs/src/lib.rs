//! The Causeway function of a guest as Linux shows it in sysfs, without a driver in the kernel.
//!
//! * [`Function`]: where it is, its BARs, and [mappings](Registers) of them.
//! * [`Clients`]: which process has which page of BAR 0, and what is done for those that died.
//!
//! The shim and the init of guests stand on it.

mod clients;
mod function;
mod registers;

pub use clients::{ClientState, Clients, Page};
pub use function::{Bar, Function, FunctionError, NotUsable};
pub use registers::Registers;
