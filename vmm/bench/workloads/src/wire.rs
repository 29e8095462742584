//! What guests say to the devices of the mechanisms. They are no part of the product's protocol.

pub mod forward;
pub mod sample;
pub mod trap;

/// First port of the mechanisms.
pub const PORT: u16 = 0xcc0;
/// Four-byte stores of the number of the page at which the area of [`forward`] begins: its batch is
/// executed.
pub const PORT_FORWARD: u16 = PORT;
/// Four-byte stores of the address of a [`sample::Sample`], in RAM.
pub const PORT_SAMPLE: u16 = PORT + 4;
