//! The Causeway function: what the guest finds on the PCI bus, and what the mediator sees of the
//! guest.
//!
//! | BAR | part | backed by |
//! |---|---|---|
//! | 0 | [`Registers`], a page for each client | exits |
//! | 2 | [`crate::aperture::Aperture`] | memory slots |
//! | 4 | [`DoorbellBar`]: [`crate::pci::MsixTable`] and [`Doorbells`] | exits; ioeventfds |
//!
//! Lock order: [`CausewayFunction`]'s own, then a bus's or those of a page of registers, then those
//! of aperture, doorbells and [`ClientInterrupts`], which are leaves but for what they drive. No
//! lock of the device is held while a session executes a batch or resets a client, so a guest that
//! sleeps in a wait message on one virtual CPU blocks no other.

mod client_interrupts;
mod control_window;
mod doorbell_bar;
mod doorbells;
mod function;
mod host;
mod page;
mod registers;
mod signal_count;

pub use client_interrupts::ClientInterrupts;
pub use doorbell_bar::{DoorbellBar, VECTORS};
pub use doorbells::{DoorbellPlaces, Doorbells};
pub use function::{CausewayFunction, FunctionError, Wiring};
pub use host::GuestHost;
pub use registers::Registers;
