//! A machine without an operating system.

use causeway_shim::{AddressSpace, Device, Module, RamRange, Window};

pub use causeway_bare::{
    Barrier, Machine, NoMail, PciTransport as DeviceTransport, Phase, Shared, Totals, baseline,
    fetch, figure, post, println, ratio, ticks,
};

use crate::Required;

/// Bytes of room for the log of a refused module.
const LOG_BYTES: usize = 4096;

static TRANSPORT: Shared<DeviceTransport> = Shared::new();
static DEVICE: Shared<Device<'static>> = Shared::new();

/// Finds and opens the device. Called by one CPU; the others use [`device`].
pub fn open(machine: &Machine) -> (&'static DeviceTransport, &'static Device<'static>) {
    let transport = TRANSPORT.set(DeviceTransport::find(machine).required("finding the device"));
    let device = Device::open(transport).required("opening the device");
    (transport, DEVICE.set(device))
}

/// The device, once the CPU that opens it has done so.
pub fn device() -> &'static Device<'static> {
    DEVICE.wait()
}

/// Where the test device finds an offset of the aperture.
pub const fn bench_address(transport: &DeviceTransport, offset: u64) -> Option<u64> {
    Some(transport.aperture_address(offset))
}

/// Whether holes of the aperture can be touched, and such accesses are counted.
pub const fn holes_can_be_touched(_: &DeviceTransport) -> bool {
    true
}

/// Whether a fault that loses the device does so for this guest alone.
pub const fn faults_are_private(_: &DeviceTransport) -> bool {
    true
}

/// RAM to write packets of a recording into, and its address for the device.
pub fn recording_memory(machine: &Machine, _: &Device<'_>, bytes: usize) -> (Window, u64) {
    let ram = machine.ram().window(bytes);
    let ram = ram.required("guest RAM for packets");
    // Identity-mapped.
    (ram, ram.as_ptr().as_ptr() as u64)
}

/// Loads modules.
#[derive(Debug)]
pub struct ModuleLoader {
    machine: Machine,
    log: &'static mut [u8],
}

impl ModuleLoader {
    /// Takes RAM for logs.
    pub fn new(machine: &Machine) -> Self {
        let log = machine.ram().bytes(LOG_BYTES);
        Self {
            machine: *machine,
            log: log.required("guest RAM for a log"),
        }
    }

    /// Loads a module; a refusal ends the guest with the log.
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
