//! Guests that boot an operating system: Linux kernels, and the machine that they expect.
//!
//! The machine is a small PC: one PCI bus, a serial port, interrupt chips in KVM, and
//! hardware-reduced ACPI, which says that there is nothing else. There is no firmware: the kernel
//! is entered where its boot protocol says.
//!
//! | guest-physical | what |
//! |---|---|
//! | 0x500 | global descriptor table |
//! | 0x6000 | PVH start information, memory map and module list |
//! | 0x7000 | Linux boot parameters ("zero page") |
//! | 0x9000 … 0xf000 | page tables that map 4 GiB one to one |
//! | 0x20000 | command line |
//! | 0xe0000 … | ACPI tables |
//! | 0xffff0 | code at which a processor begins after a reset: it resets the machine |
//! | 0x100000 … | the kernel, where it wants to be; the initramfs, as high as the kernel reaches |
//!
//! Memory types: the MTRRs say write-back for everything, so that the guest's page tables alone
//! decide.

mod acpi;
mod boot_params;
mod elf;
mod kernel;
mod memory_map;
mod payload;
mod placement;
mod power;
mod processor;
mod setup;

pub use kernel::{BootProtocol, Kernel, KernelError};
pub use placement::PlacementError;
pub(crate) use power::{KEYBOARD_COMMAND, POWER_PORTS, POWER_PORTS_BYTES, Power};
pub use processor::needs_timer;
pub use setup::{Disk, Linux, SetupError, prepare};

pub(crate) use processor::{cpuid_of, enter, set_memory_types};

/// Number (GSI) of the interrupt line of the serial port COM1, which is also the number of the I/O
/// APIC's input.
pub const SERIAL_GSI: u32 = 4;

/// First part of every Linux guest's kernel command line. The user's own options follow.
///
/// `panic=-1` makes a kernel that panics restart at once, which ends the VM; otherwise it would
/// loop for ever. `8250.nr_uarts=1` announces one serial port, since probing for three more takes
/// time.
pub const COMMAND_LINE: &str = "console=ttyS0 panic=-1 8250.nr_uarts=1";
