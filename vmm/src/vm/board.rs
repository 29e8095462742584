//! The devices of a VM, and the session behind them.

use std::sync::Arc;

use causeway_mediator::{GuestSession, Quota, SessionSource};
use causeway_protocol::harness::{PORT_CONSOLE, PORT_EXIT};

use super::processors::Processors;
use super::{VmConfig, VmError};
use crate::aperture::Aperture;
use crate::bus::{GuestAddress, MmioBus, Port, PortBus, StrayCounters};
use crate::console::{CONSOLE_BYTES, Console, LineSink};
use crate::device::{Doorbells, Function, GuestHost};
use crate::memory::GuestRam;
use crate::pci::{
    CONFIG_PORTS, CONFIG_PORTS_BYTES, Devices, HostBridge, Layout, PciBus, physical_address_bits,
};

/// Number of the Causeway function's device on PCI bus 0.
const FUNCTION_DEVICE: usize = 1;
/// Ports of the harness, which the exit handler keeps from the bus.
const HARNESS_PORTS_BYTES: u64 = 8;

/// Buses with everything on them.
pub(super) struct Board {
    pub ports: Arc<PortBus>,
    pub mmio: Arc<MmioBus>,
    pub aperture: Arc<Aperture>,
    pub session: Arc<dyn GuestSession>,
    pub strays: Arc<StrayCounters>,
    pub console: Arc<Console>,
}

impl Board {
    pub fn new(
        processors: &Processors,
        config: &VmConfig,
        sessions: &dyn SessionSource,
        quota: Quota,
        console: LineSink,
    ) -> Result<Self, VmError> {
        let ram = &processors.ram;
        let bits = physical_address_bits(processors.cpuid.as_slice());
        let ram_end = ram.low_end().max(ram.high_end());
        let layout = Layout::new(bits, ram_end, config.aperture_bytes)?;
        let strays = Arc::new(StrayCounters::default());
        let mmio = Arc::new(mmio_bus(ram, &strays)?);
        let host = guest_host(processors, &layout, config.vms)?;
        let session = sessions.open(host.clone(), quota, &config.name)?;
        let function = Function::new(
            &layout,
            Arc::clone(&host),
            Arc::new(Arc::clone(&session)),
            session.attributes().features,
            Arc::clone(&mmio),
            Arc::clone(&strays),
        )?;
        let console = Arc::new(Console::new(console));
        let ports = port_bus(function, Arc::clone(&console), &strays)?;
        Ok(Self {
            ports: Arc::new(ports),
            mmio,
            aperture: Arc::clone(host.aperture()),
            session,
            strays,
            console,
        })
    }
}

fn guest_host(
    processors: &Processors,
    layout: &Layout,
    vms: u32,
) -> Result<Arc<GuestHost>, VmError> {
    let bytes = layout.aperture_bytes;
    let hypervisor = Arc::new(processors.hypervisor.clone());
    let aperture = Aperture::new(bytes, hypervisor.clone())
        .map_err(|source| VmError::Aperture { bytes, source })?
        .shared_among(vms);
    let doorbells = Doorbells::new(hypervisor);
    let ram = Arc::clone(&processors.ram);
    Ok(Arc::new(GuestHost::new(
        Arc::new(aperture),
        Arc::new(doorbells),
        ram,
    )))
}

/// The MMIO bus, with RAM kept free of devices.
fn mmio_bus(ram: &GuestRam, strays: &Arc<StrayCounters>) -> Result<MmioBus, VmError> {
    let mmio = MmioBus::new(Arc::clone(strays));
    for region in ram.regions() {
        mmio.reserve(GuestAddress(region.base()), region.bytes(), "ram")?;
    }
    Ok(mmio)
}

/// The port bus: PCI configuration, console, and the harness's ports kept free.
fn port_bus(
    function: Function,
    console: Arc<Console>,
    strays: &Arc<StrayCounters>,
) -> Result<PortBus, VmError> {
    let mut devices = Devices::default();
    devices[0] = Some(Arc::new(HostBridge::default()));
    devices[FUNCTION_DEVICE] = Some(Arc::new(function));
    let ports = PortBus::new(Arc::clone(strays));
    ports.insert(
        Port(CONFIG_PORTS),
        CONFIG_PORTS_BYTES,
        Arc::new(PciBus::new(devices)),
    )?;
    ports.insert(Port(PORT_CONSOLE), CONSOLE_BYTES, console)?;
    ports.reserve(Port(PORT_EXIT), HARNESS_PORTS_BYTES, "harness")?;
    Ok(ports)
}
