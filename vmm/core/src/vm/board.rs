//! The devices of a VM, and the session behind them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_mediator::host::Host;
use causeway_mediator::{GuestSession, SESSION_FEATURES};
use causeway_protocol::boot::PORT_CONSOLE;

use super::config::ConfigError;
use super::error::VmError;
use super::processors::Processors;
use super::{Bay, Boot, VmConfig, virtio};
use crate::aperture::{Aperture, Apertures};
use crate::bus::{GuestAddress, MmioBus, Port, PortBus, StrayCounters};
use crate::console::{CONSOLE_BYTES, Console, ConsoleOutput};
use crate::device::{CausewayFunction, Doorbells, GuestHost, Wiring};
use crate::exit_counts::VmExits;
use crate::hypervisor::MemorySlots;
use crate::interrupts::InterruptController;
use crate::linux::{KEYBOARD_COMMAND, POWER_PORTS, POWER_PORTS_BYTES, Power, SERIAL_GSI};
use crate::memory::GuestRam;
use crate::passthrough::{PassthroughDevices, SlotNumbers, Surroundings};
use crate::pci::{
    BarAllocator, CONFIG_PORTS, CONFIG_PORTS_BYTES, Devices, FunctionBars, LOW_END, PciBus,
    host_bridge,
};

/// Number of the first Causeway function's device on PCI bus 0. Those of further GPUs are behind the
/// other devices of the VM.
const FUNCTION_DEVICE: usize = 1;

/// The buses of a VM with all devices on them, and the VM's sessions.
pub(super) struct Board {
    pub ports: Arc<PortBus>,
    pub mmio: Arc<MmioBus>,
    pub apertures: Apertures,
    /// One for each GPU.
    pub sessions: Vec<Arc<dyn GuestSession>>,
    pub strays: Arc<StrayCounters>,
    pub console: Arc<Console>,
    pub passed: PassthroughDevices,
}

/// Opens the session of the guest of a VMM on the GPU with an index among those of the VM.
pub(super) type OpenSession<'a> =
    &'a mut dyn FnMut(usize, Arc<dyn Host>) -> Result<Arc<dyn GuestSession>, VmError>;

/// One GPU of a VM before it is on the bus.
struct Gpu {
    host: Arc<GuestHost>,
    session: Arc<dyn GuestSession>,
    bars: FunctionBars,
}

impl Board {
    pub fn new(
        processors: &Processors,
        config: &VmConfig,
        open: OpenSession<'_>,
        console: ConsoleOutput,
        exits: &VmExits,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, VmError> {
        let (ram, layout) = (&processors.ram, processors.layout);
        let strays = Arc::new(StrayCounters::default());
        let mmio = Arc::new(mmio_bus(ram, &strays)?);
        let gpus = gpus(processors, config, open)?;
        let (buses, first) = ((&mmio, &strays), FUNCTION_DEVICE);
        let (one, further) = gpus.split_first().ok_or(ConfigError::Gpus(0))?;
        let console = serial_console(console, processors.interrupts.as_ref())?;
        let mut bars = layout.low_bars();
        let mut devices = Devices::default();
        devices[0] = Some(host_bridge());
        devices[first] = Some(causeway_function(processors, one, buses, first)?);
        let ports = match &config.boot {
            Boot::Bare { .. } => PortBus::new(Arc::clone(&strays)),
            // An operating system looks for devices that a PC may have. That is nothing to report.
            Boot::Linux(_) => pc_ports()?,
        };
        if let Boot::Linux(linux) = &config.boot {
            let name = &config.name;
            virtio::add(&mut devices, processors, &mmio, &mut bars, linux, name)?;
        }
        let passed = pass_through(&mut devices, processors, &mmio, &mut bars, config)?;
        for gpu in further {
            let place = devices.iter().position(Option::is_none);
            let place = place.ok_or(VmError::Room)?;
            devices[place] = Some(causeway_function(processors, gpu, buses, place)?);
        }
        fill_ports(&ports, devices, Arc::clone(&console))?;
        let hosts = gpus.iter().map(|gpu| &gpu.host);
        let exits = exits
            .clone()
            .with_doorbells(hosts.clone().map(|host| &host.doorbells));
        for attached in &config.attached {
            attached.attach(&Bay {
                ports: &ports,
                mmio: &mmio,
                ram,
                aperture: &one.host.aperture,
                exits: &exits,
                tsc_khz: processors.tsc_khz,
                stop,
            })?;
        }
        Ok(Self {
            ports: Arc::new(ports),
            mmio,
            apertures: Apertures(hosts.map(|host| Arc::clone(&host.aperture)).collect()),
            sessions: gpus.iter().map(|gpu| Arc::clone(&gpu.session)).collect(),
            strays,
            console,
            passed,
        })
    }
}

/// Opens the session of each of the VM's GPUs.
fn gpus(
    processors: &Processors,
    config: &VmConfig,
    open: OpenSession<'_>,
) -> Result<Vec<Gpu>, VmError> {
    let gpu = |(index, bars): (u32, FunctionBars)| {
        let guests = config.vms * processors.layout.functions().count() as u32;
        let host = guest_host(processors, guests, index)?;
        let session = open(index as usize, host.clone())?;
        Ok(Gpu {
            host,
            session,
            bars,
        })
    };
    (0..).zip(processors.layout.functions()).map(gpu).collect()
}

/// Creates the PCI function of a GPU, with this device number.
fn causeway_function(
    processors: &Processors,
    gpu: &Gpu,
    (mmio, strays): (&Arc<MmioBus>, &Arc<StrayCounters>),
    device: usize,
) -> Result<Arc<CausewayFunction>, VmError> {
    let wiring = processors.interrupts.as_ref().map(|controller| Wiring {
        controller,
        device: device as u8,
    });
    let function = CausewayFunction::new(
        (gpu.bars, processors.layout.address_end),
        Arc::clone(&gpu.host),
        Arc::clone(&gpu.session),
        gpu.session.attributes().features | SESSION_FEATURES,
        Arc::clone(mmio),
        Arc::clone(strays),
        wiring,
    )?;
    Ok(Arc::new(function))
}

/// Puts the host devices that are passed through on the bus, behind all others.
fn pass_through(
    devices: &mut Devices,
    processors: &Processors,
    mmio: &Arc<MmioBus>,
    low: &mut BarAllocator,
    config: &VmConfig,
) -> Result<PassthroughDevices, VmError> {
    let (Some(source), Some(controller)) = (&config.devices, &processors.interrupts) else {
        return Ok(PassthroughDevices::default());
    };
    // Slots over the interrupt controllers would hide them.
    mmio.reserve(GuestAddress(LOW_END), (4 << 30) - LOW_END, "platform")?;
    let slots: Arc<dyn MemorySlots> = Arc::new(processors.hypervisor.clone());
    let surroundings = Surroundings {
        bus: mmio,
        low,
        high: &mut processors.layout.high_bars(),
        address_end: processors.layout.address_end,
        ram: &processors.ram,
        controller,
        slots: &slots,
        numbers: &mut SlotNumbers::default(),
    };
    let kvm = || processors.hypervisor.vfio_device();
    let passed = PassthroughDevices::new(&**source, devices, &kvm, surroundings)?;
    Ok(passed)
}

/// Returns what the session on the GPU with this index sees of the guest. This process has `guests`
/// apertures.
fn guest_host(processors: &Processors, guests: u32, gpu: u32) -> Result<Arc<GuestHost>, VmError> {
    let bytes = processors.layout.aperture_bytes;
    let hypervisor = processors.hypervisor.clone();
    let hypervisor = Arc::new(hypervisor.with_slots_of_gpu(gpu));
    let aperture = Aperture::new(bytes, hypervisor.clone())
        .map_err(|source| VmError::Aperture { bytes, source })?
        .shared_among(guests);
    let doorbells = Doorbells::new(hypervisor);
    let ram = Arc::clone(&processors.ram);
    Ok(Arc::new(GuestHost::new(
        Arc::new(aperture),
        Arc::new(doorbells),
        ram,
    )))
}

/// Returns the MMIO bus, with RAM kept free of devices.
fn mmio_bus(ram: &GuestRam, strays: &Arc<StrayCounters>) -> Result<MmioBus, VmError> {
    let mmio = MmioBus::new(Arc::clone(strays));
    for region in ram.regions() {
        mmio.reserve(GuestAddress(region.base()), region.bytes(), "ram")?;
    }
    Ok(mmio)
}

fn serial_console(
    output: ConsoleOutput,
    interrupts: Option<&Arc<InterruptController>>,
) -> Result<Arc<Console>, VmError> {
    let interrupt = interrupts
        .map(|controller| controller.edge(SERIAL_GSI))
        .transpose()
        .map_err(VmError::Interrupt)?;
    Ok(Arc::new(Console::new(output, interrupt)))
}

/// Returns the ports of a PC, with those that turn it off.
fn pc_ports() -> Result<PortBus, VmError> {
    let ports = PortBus::new(Arc::new(StrayCounters::unreported()));
    let power = [(POWER_PORTS, POWER_PORTS_BYTES), (KEYBOARD_COMMAND, 1)];
    for (first, bytes) in power {
        ports.insert(Port(first), bytes, Arc::new(Power { first }))?;
    }
    Ok(ports)
}

/// Puts on the bus what every guest has at its ports: PCI configuration and console.
fn fill_ports(ports: &PortBus, devices: Devices, console: Arc<Console>) -> Result<(), VmError> {
    ports.insert(
        Port(CONFIG_PORTS),
        CONFIG_PORTS_BYTES,
        Arc::new(PciBus::new(devices)),
    )?;
    ports.insert(Port(PORT_CONSOLE), CONSOLE_BYTES, console)?;
    Ok(())
}
