//! Memory and ports by which a guest of `bench exits` reaches the devices of the mechanisms on the
//! host. They are not part of the protocol between shim and mediator.

pub mod forward;
pub mod sample;
pub mod singles;
pub mod trap;

/// First of the I/O ports by which the guest of `bench exits` reaches the devices of the benchmark.
pub const PORT: u16 = 0xcc0;
/// I/O port of mechanism `forward`. A four-byte store executes the calls in an area of guest RAM,
/// as [`forward`] describes. The stored value is the guest-physical address of the area divided by
/// 4096.
pub const PORT_FORWARD: u16 = PORT;
/// I/O port for samples. A four-byte store hands a [`sample::Sample`] in guest RAM over to the
/// host. The stored value is the guest-physical address of the sample.
pub const PORT_SAMPLE: u16 = PORT + 4;
/// I/O port for times of single operations. A four-byte store hands a [`singles::Singles`] in guest
/// RAM over to the host. The stored value is the guest-physical address of the record.
pub const PORT_SINGLES: u16 = PORT + 8;
