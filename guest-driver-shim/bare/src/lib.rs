//! Runtime of bare guests: entry, stacks, console, panic, clock, RAM, records for the test device,
//! and the transport by which the driver reaches the Causeway device.
//!
//! A guest is a program without an operating system that runs at CPL 3 with one identity-mapped
//! address space (see [`causeway_protocol::boot`]). It names its main function with [`main!`]:
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//! causeway_bare::main!(run);
//! fn run(machine: &causeway_bare::Machine) { … }
//! ```
//!
//! The guest's build script links it: `causeway_guest_build::link_bare_guest()`.
//! `examples/bare-guest` is a whole guest.
//!
//! Every virtual CPU runs it. When it returns on CPU 0 the guest has passed; elsewhere the CPU is
//! parked. A panic anywhere ends the guest as failed, with file and line.
#![no_std]
#![allow(unsafe_code)] // Entry, port I/O and device memory, so that the guests need no unsafe code.

mod apic;
mod console;
mod entry;
mod intrinsics;
mod machine;
mod panic;
mod port;
mod ram;
mod record;
mod shared;
mod transport;

pub use apic::LocalApic;
pub use causeway_protocol as protocol;
pub use causeway_shim as shim;
pub use causeway_shim::{Barrier, Clock, ticks};
pub use causeway_testdev_records::{Loop, NoMail, PhasePath, Totals};
pub use console::write_console;
pub use machine::Machine;
pub use port::IoPorts;
pub use ram::Ram;
pub use record::{Phase, baseline, compare, exit, fetch, figure, park, post, ratio, singles};
pub use shared::Shared;
pub use transport::{FindDeviceError, PciTransport, device_memory};

/// Declares the guest's main function, which must be a `fn(&Machine)`.
#[macro_export]
macro_rules! main {
    ($main:path) => {
        // The symbol that the runtime's entry calls; the runtime declares it with the same type.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        fn causeway_main(machine: &$crate::Machine) {
            let main: fn(&$crate::Machine) = $main;
            main(machine)
        }
    };
}

/// Prints a line on the serial console. Each character is an exit: keep lines short, and print
/// nothing in a measured phase.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => {
        $crate::write_console(::core::format_args!($($argument)*))
    };
}
