//! What is below the workloads on Linux: threads for CPUs, memory of the process, the shim's
//! transports, and reports to the test device where there is one.

mod bench;
mod machine;
mod mail;
mod port;
mod program;

use std::sync::OnceLock;

use causeway_protocol::registers::Register;
use causeway_shim::{AddressSpace, Device, Module, Sleeping, Staging, Transport, Window};
use causeway_shim_linux::{FindError, Interrupts, LinuxTransport};

pub use bench::{Phase, baseline, fetch, figure, post, ratio};
pub use causeway_shim::{Clock, ticks};
pub use causeway_testdev_records::{NoMail, Totals};
pub use machine::{Barrier, Machine, Memory};
pub use program::{run, run_pair};
pub use std::println;

use crate::Required;

/// The way to the device: one for the program.
#[derive(Clone, Copy)]
pub struct DeviceTransport(&'static LinuxTransport);

impl std::fmt::Debug for DeviceTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceTransport").finish_non_exhaustive()
    }
}

static TRANSPORT: OnceLock<LinuxTransport> = OnceLock::new();
static OPENED: OnceLock<DeviceTransport> = OnceLock::new();
static DEVICE: OnceLock<Device<'static>> = OnceLock::new();

impl DeviceTransport {
    /// Finds the device.
    ///
    /// # Errors
    /// See [`LinuxTransport::find`].
    pub fn find(_: &Machine) -> Result<Self, FindError> {
        transport().map(Self)
    }
}

/// The transport of the program, found when it is first asked for.
fn transport() -> Result<&'static LinuxTransport, FindError> {
    if let Some(found) = TRANSPORT.get() {
        return Ok(found);
    }
    let found = LinuxTransport::find()?;
    Ok(TRANSPORT.get_or_init(|| found))
}

impl Transport for DeviceTransport {
    fn read_register(&self, register: Register) -> u32 {
        self.0.read_register(register)
    }

    fn write_register(&self, register: Register, value: u32) {
        self.0.write_register(register, value);
    }

    fn control_area(&self) -> causeway_shim::ControlArea {
        self.0.control_area()
    }

    fn aperture(&self) -> Window {
        self.0.aperture()
    }

    fn reach(&self, offset: u64, bytes: u64) -> bool {
        self.0.reach(offset, bytes)
    }

    fn sleeping(&self) -> Sleeping {
        self.0.sleeping()
    }

    fn sleep(&self, limit_ns: u64) -> u64 {
        self.0.sleep(limit_ns)
    }

    fn ring_doorbell(&self, index: u32) {
        self.0.ring_doorbell(index);
    }
}

/// Finds and opens the device. Called by one thread; the others use [`device`].
///
/// # Panics
/// If there is no device that can be opened.
pub fn open(machine: &Machine) -> (&'static DeviceTransport, &'static Device<'static>) {
    let find = || DeviceTransport::find(machine).required("finding the device");
    let transport = OPENED.get_or_init(find);
    let device = DEVICE.get_or_init(|| Device::open(transport).required("opening the device"));
    (transport, device)
}

/// The device, once the thread that opens it has done so.
pub fn device() -> &'static Device<'static> {
    DEVICE.wait()
}

/// Where the test device finds an offset of the aperture, if there is a bench that can reach it.
pub fn bench_address(transport: &DeviceTransport, offset: u64) -> Option<u64> {
    match transport.0 {
        LinuxTransport::Pci(pci) if bench::is_there() => Some(pci.aperture_address(offset)),
        _ => None,
    }
}

/// How the program learns of interrupts, if it opened the PCI function of a guest.
pub fn interrupts() -> Option<&'static Interrupts> {
    match TRANSPORT.get()? {
        LinuxTransport::Pci(pci) => Some(pci.interrupts()),
        LinuxTransport::Socket(_) => None,
    }
}

/// Whether holes of the aperture can be touched, and such accesses are counted. A process that
/// reaches the device over a socket has nothing mapped there.
pub fn holes_can_be_touched(transport: &DeviceTransport) -> bool {
    !matches!(transport.0, LinuxTransport::Socket(_))
}

/// Whether a fault that loses the device does so for this program alone. The processes of a guest
/// share its session, and lose it together.
pub fn faults_are_private(transport: &DeviceTransport) -> bool {
    matches!(transport.0, LinuxTransport::Socket(_)) || !bench::is_one_of_several_processes()
}

/// Memory to write packets of a recording into, and its address for the device. It is never given
/// back.
///
/// # Panics
/// If there is none.
pub fn recording_memory(
    _: &Machine,
    device: &'static Device<'static>,
    bytes: usize,
) -> (Window, u64) {
    let staging = Staging::new(device, bytes as u64).required("memory for packets");
    let place = (*staging.window(), staging.range().address);
    std::mem::forget(staging);
    place
}

/// Loads modules.
#[derive(Debug)]
pub struct ModuleLoader(());

impl ModuleLoader {
    /// Needs nothing.
    pub const fn new(_: &Machine) -> Self {
        Self(())
    }

    /// Loads a module.
    ///
    /// # Panics
    /// With the log, if it is refused.
    pub fn load<'d>(&mut self, space: &AddressSpace<'d>, ptx: &str) -> Module<'d> {
        causeway_shim_linux::load_module(space, ptx.as_bytes()).required("loading a module")
    }
}
