//! What the workloads need of a machine without an operating system.

use causeway_shim::{AddressSpace, Device, Module, RamRange, Window};

pub use causeway_bare::{
    Barrier, Machine, NoMail, PciTransport as DeviceTransport, Phase, Shared, Totals, baseline,
    fetch, figure, post, println, ratio, ticks,
};

use crate::Required;

/// Size of the buffer for the log of a refused module, in bytes.
const LOG_BYTES: usize = 4096;

static TRANSPORT: Shared<DeviceTransport> = Shared::new();
static DEVICE: Shared<Device<'static>> = Shared::new();

/// Finds and opens the device. One CPU calls this function; the others use [`device`].
pub fn open(machine: &Machine) -> (&'static DeviceTransport, &'static Device<'static>) {
    let transport = TRANSPORT.set(DeviceTransport::find(machine).required("finding the device"));
    let device = Device::open(transport).required("opening the device");
    (transport, DEVICE.set(device))
}

/// Returns the device. Waits until another CPU has opened it.
pub fn device() -> &'static Device<'static> {
    DEVICE.wait()
}

/// Returns the guest-physical address of `offset` in the aperture, for the test device.
pub const fn bench_address(transport: &DeviceTransport, offset: u64) -> Option<u64> {
    Some(transport.aperture_address(offset))
}

/// Returns whether holes of the aperture can be accessed, and such accesses are counted.
pub const fn holes_can_be_touched(_: &DeviceTransport) -> bool {
    true
}

/// Returns whether a fault loses the device for this guest only.
pub const fn faults_are_private(_: &DeviceTransport) -> bool {
    true
}

/// Returns RAM for the packets of a recording, and its address for the device.
pub fn recording_memory(machine: &Machine, _: &Device<'_>, bytes: usize) -> (Window, u64) {
    let ram = machine.ram().window(bytes);
    let ram = ram.required("guest RAM for packets");
    // Identity-mapped.
    (ram, ram.as_ptr().as_ptr() as u64)
}

/// Loads GPU modules.
#[derive(Debug)]
pub struct ModuleLoader {
    machine: Machine,
    log: &'static mut [u8],
}

impl ModuleLoader {
    /// Returns a loader, which allocates RAM for the logs of refused modules.
    pub fn new(machine: &Machine) -> Self {
        let log = machine.ram().bytes(LOG_BYTES);
        Self {
            machine: *machine,
            log: log.required("guest RAM for a log"),
        }
    }

    /// Loads the PTX text `ptx` as a module of `space`. If the device refuses the module, this ends
    /// the guest with the compiler's log.
    pub fn load<'d>(&mut self, space: &AddressSpace<'d>, ptx: &str) -> Module<'d> {
        let ram = self.machine.ram();
        let image = ram.range_of(ptx.as_bytes());
        let log = RamRange {
            bytes: self.log.len() as u64,
            ..ram.range_of(self.log)
        };
        match Module::load(space, image, log) {
            Ok(module) => module,
            Err(error) => {
                let log = &self.log[..(error.log_bytes as usize).min(LOG_BYTES)];
                panic!(
                    "{error}: {}",
                    core::str::from_utf8(log).unwrap_or("log is not UTF-8")
                );
            }
        }
    }
}
