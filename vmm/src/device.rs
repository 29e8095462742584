//! The Causeway function: what the guest finds on the PCI bus, and what the mediator sees of the guest.
//!
//! | BAR | part | backed by |
//! |---|---|---|
//! | 0 | [`Registers`] | exits |
//! | 2 | [`crate::aperture::Aperture`] | memory slots |
//! | 4 | [`DoorbellBar`]: [`crate::pci::MsixTable`] and [`Doorbells`] | exits; ioeventfds |
//!
//! Lock order: [`Function`]'s own, then a bus's, then those of aperture and doorbells, which are leaves. No lock of
//! the device is held while a session executes a batch, so a guest that sleeps in a wait message on one virtual CPU
//! blocks no other.

mod control;
mod doorbell_bar;
mod doorbells;
mod function;
mod host;
mod registers;

pub use control::Control;
pub use doorbell_bar::{DoorbellBar, VECTORS};
pub use doorbells::{DoorbellPlaces, Doorbells};
pub use function::Function;
pub use host::GuestHost;
pub use registers::Registers;
