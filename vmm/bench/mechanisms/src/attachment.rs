//! The devices of all mechanisms on a VM's buses.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_bench_workloads::host_bytes;
use causeway_bench_workloads::host_interface::{PORT_FORWARD, PORT_SAMPLE, PORT_SINGLES, trap};
use causeway_bench_workloads::measurement_plan::{Effort, Plan};
use causeway_mediator::backend::Backend;
use causeway_memory::Mapping;
use causeway_protocol::Access;
use causeway_vmm::bus::{GuestAddress, Port};
use causeway_vmm::memory::GuestRam;
use causeway_vmm::vm::{Attach, AttachError, Bay};
use parking_lot::Mutex;

use crate::card::{BYTES_MAX, Card, CardError};
use crate::forward::Forward;
use crate::native::Native;
use crate::passthrough::PassthroughDevice;
use crate::samples::{Measurement, Samples};
use crate::singles::{SingleTimes, SinglesPort};
use crate::trap::{Trap, TrapMemory, TrapRegisters};

/// Number of cards: two of devices, and one of the host.
const CARDS: u64 = 3;

/// Attaches to each VM the devices by which the guest of `bench exits` reaches a GPU with the
/// mechanisms `forward` and `trap`, and keeps the samples of all VMs. Every VM gets new devices,
/// which have no allocations.
pub struct Mechanisms {
    /// What the devices and the host use; `None` if only the guest's own mechanism is measured.
    host: Option<Host>,
    plan: Plan,
    taken: Arc<Mutex<Vec<Measurement>>>,
    singles: Arc<Mutex<Vec<SingleTimes>>>,
    device: Option<Arc<PassthroughDevice>>,
}

/// The back end of the devices, and the host's own work on it.
struct Host {
    backend: Arc<dyn Backend>,
    native: Arc<Mutex<Native>>,
}

causeway_vmm::debug_by_name!(Mechanisms);

impl Mechanisms {
    /// Returns mechanisms whose devices allocate memory and launch kernels on `backend`, without
    /// samples. `effort` decides the sizes at which the workloads are measured: few small ones, or
    /// all.
    ///
    /// # Errors
    /// [`CardError::Small`] if the back end has too little memory for the benchmark, another
    /// [`CardError`] if the back end cannot provide what the host needs for its own samples.
    pub fn new(backend: Arc<dyn Backend>, effort: Effort) -> Result<Self, CardError> {
        let (bytes, wanted) = (backend.attributes().memory_bytes, CARDS * BYTES_MAX);
        if bytes < wanted {
            return Err(CardError::Small { bytes, wanted });
        }
        // Work of the host ends without a stop signal.
        let never = Arc::new(AtomicBool::new(false));
        let card = Card::new(&backend, &never)?;
        let native = Native::new(card, host_bytes(effort))?;
        Ok(Self {
            host: Some(Host {
                backend,
                native: Arc::new(Mutex::new(native)),
            }),
            ..Self::of_guest(effort)
        })
    }

    /// Returns mechanisms without devices, for a guest that only uses its session. The process of
    /// the VMM then does nothing on a GPU.
    #[must_use]
    pub fn of_guest(effort: Effort) -> Self {
        Self {
            host: None,
            plan: Plan::all(effort, 1),
            taken: Arc::default(),
            singles: Arc::default(),
            device: None,
        }
    }

    /// Sets the PCI device that is passed through to the guest, so that samples on the device's
    /// memory can be taken; with `None`, none are. The caller must also give the device to the VM,
    /// which opens it.
    #[must_use]
    pub fn with_device(self, device: Option<Arc<PassthroughDevice>>) -> Self {
        let memory = device.as_ref().map(|device| device.memory());
        Self {
            plan: self.plan.with_device(memory),
            device,
            ..self
        }
    }

    /// Returns all samples taken so far, the guest's and the host's, in the order in which they
    /// were taken.
    pub fn taken(&self) -> Vec<Measurement> {
        self.taken.lock().clone()
    }

    /// Returns the times of single operations taken so far, the guest's and the host's: one element
    /// for each cell.
    pub fn singles(&self) -> Vec<SingleTimes> {
        self.singles.lock().clone()
    }

    /// Returns the number of samples taken so far, and the last sample, if there is one.
    pub fn progress(&self) -> (usize, Option<Measurement>) {
        let taken = self.taken.lock();
        (taken.len(), taken.last().copied())
    }

    fn native(&self) -> Option<Arc<Mutex<Native>>> {
        self.host.as_ref().map(|host| Arc::clone(&host.native))
    }
}

impl Host {
    fn card(&self, stop: &Arc<AtomicBool>) -> Result<Card, AttachError> {
        let card = Card::new(&self.backend, stop);
        card.map_err(|e| AttachError::Devices(e.into()))
    }
}

/// Maps the contiguous guest RAM from address 0 a second time.
fn low_ram(ram: &GuestRam) -> Result<Mapping, Box<dyn Error + Send + Sync>> {
    let (object, offset) = ram.object(0, ram.low_end())?;
    Ok(object.map(offset, ram.low_end(), Access::ReadWrite)?)
}

impl Attach for Mechanisms {
    fn attach(&self, bay: &Bay<'_>) -> Result<(), AttachError> {
        let Bay {
            ports,
            mmio,
            ram,
            stop,
            ..
        } = *bay;
        let samples = Samples {
            ram: Arc::clone(ram),
            plan: self.plan,
            taken: Arc::clone(&self.taken),
            native: self.native(),
            device: self.device.clone(),
        };
        ports.insert(Port(PORT_SAMPLE), 4, Arc::new(samples))?;
        let singles = SinglesPort {
            ram: Arc::clone(ram),
            plan: self.plan,
            taken: Arc::clone(&self.singles),
            native: self.native(),
            device: self.device.clone(),
        };
        ports.insert(Port(PORT_SINGLES), 4, Arc::new(singles))?;
        let Some(host) = &self.host else {
            return Ok(());
        };
        let low = low_ram(ram).map_err(AttachError::Devices)?;
        let forward = Forward::new(host.card(stop)?, low, Arc::clone(stop));
        ports.insert(Port(PORT_FORWARD), 4, Arc::new(forward))?;
        let trap = Trap::new(host.card(stop)?);
        let memory = Arc::new(TrapMemory(Arc::clone(&trap)));
        let registers = Arc::new(TrapRegisters(trap));
        mmio.insert(GuestAddress(trap::MEMORY), trap::MEMORY_BYTES, memory)?;
        let at = GuestAddress(trap::REGISTERS);
        mmio.insert(at, trap::REGISTERS_BYTES, registers)?;
        Ok(())
    }
}
