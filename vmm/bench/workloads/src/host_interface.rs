//! Memory and ports by which a guest of `bench exits` reaches the devices of the mechanisms on the
//! host. They are not part of the protocol between shim and mediator.

pub mod forward;
pub mod sample;
pub mod trap;

/// First I/O port of the devices of the mechanisms.
pub const PORT: u16 = 0xcc0;
/// I/O port of [`forward`]. A four-byte store of the page number of its area executes the calls in
/// the area.
pub const PORT_FORWARD: u16 = PORT;
/// I/O port for samples. A four-byte store of the address of a [`sample::Sample`] in RAM hands the
/// sample over.
pub const PORT_SAMPLE: u16 = PORT + 4;
