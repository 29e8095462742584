//! What the workloads need of Linux: threads as CPUs, memory of the process, the shim's transports,
//! and reports to the test device if the VM has one.

mod bench;
mod machine;
mod mail;
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

/// The transport by which this program reaches the device. All its threads share one.
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
    /// Finds the device: the PCI function of this guest, or the socket of `causeway serve`.
    ///
    /// # Errors
    /// [`FindError`], as [`LinuxTransport::find`] returns it.
    pub fn find(_: &Machine) -> Result<Self, FindError> {
        transport().map(Self)
    }
}

/// Returns the transport of the program, which the first call finds.
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

/// Finds and opens the device. One thread calls this; the others use [`device`].
///
/// # Panics
/// If no device is found, or the device cannot be opened.
pub fn open(machine: &Machine) -> (&'static DeviceTransport, &'static Device<'static>) {
    let find = || DeviceTransport::find(machine).required("finding the device");
    let transport = OPENED.get_or_init(find);
    let device = DEVICE.get_or_init(|| Device::open(transport).required("opening the device"));
    (transport, device)
}

/// Waits until another thread has opened the device, and returns it.
pub fn device() -> &'static Device<'static> {
    DEVICE.wait()
}

/// Returns the guest-physical address of `offset` in the aperture, for the test device; `None` if
/// the VM has no test device.
pub fn bench_address(transport: &DeviceTransport, offset: u64) -> Option<u64> {
    match transport.0 {
        LinuxTransport::Pci(pci) if bench::is_there() => Some(pci.aperture_address(offset)),
        _ => None,
    }
}

/// Returns the interrupts of the device; `None` if the program reaches the device over a socket.
pub fn interrupts() -> Option<&'static Interrupts> {
    match TRANSPORT.get()? {
        LinuxTransport::Pci(pci) => Some(pci.interrupts()),
        LinuxTransport::Socket(_) => None,
    }
}

/// Returns whether the program can access holes of the aperture, so that such accesses are counted.
/// A process that reaches the device over a socket has nothing mapped there.
pub fn holes_can_be_touched(transport: &DeviceTransport) -> bool {
    !matches!(transport.0, LinuxTransport::Socket(_))
}

/// Returns whether a fault that loses the device loses it for this program alone. The processes of
/// a guest share its session, so they lose the device together.
pub fn faults_are_private(transport: &DeviceTransport) -> bool {
    matches!(transport.0, LinuxTransport::Socket(_)) || !bench::is_one_of_several_processes()
}

/// Returns `bytes` bytes of memory for the packets of a recording, and their address for the
/// device. The memory is never freed.
///
/// # Panics
/// If the device has no memory left.
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

/// Loads GPU modules.
#[derive(Debug)]
pub struct ModuleLoader(());

impl ModuleLoader {
    /// Returns a loader. On Linux it needs no memory of its own.
    pub const fn new(_: &Machine) -> Self {
        Self(())
    }

    /// Loads the PTX text `ptx` as a module of `space`.
    ///
    /// # Panics
    /// If the device refuses the module; the message has the compiler's log.
    pub fn load<'d>(&mut self, space: &AddressSpace<'d>, ptx: &str) -> Module<'d> {
        causeway_shim_linux::load_module(space, ptx.as_bytes()).required("loading a module")
    }
}
