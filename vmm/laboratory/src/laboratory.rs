//! The devices of the laboratory on a VM's buses, and the samples that its guest takes.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_laboratory_workloads::wire::sample::{self, Sample};
use causeway_laboratory_workloads::wire::{PORT_FORWARD, PORT_SAMPLE, trap};
use causeway_laboratory_workloads::{MechanismKind, plan::Effort, workloads};
use causeway_mediator::backend::Backend;
use causeway_protocol::Access;
use causeway_vmm::bus::{
    BusDevice, BusError, GuestAddress, MmioBus, Port, PortBus, Refusal, Response,
};
use causeway_vmm::memory::GuestRam;
use causeway_vmm::vm::Attach;

use crate::card::{Card, CardError};
use crate::forward::Forward;
use crate::native::Native;
use crate::trap::{Trap, TrapMemory, TrapRegisters};

/// Most samples that are kept.
pub const SAMPLES_MAX: usize = 65_536;

/// A sample that was taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// What, and how long it took.
    pub sample: Sample,
    /// Processor time of the process in nanoseconds, for samples of the host. Those of guests have it in their phases.
    pub cpu_ns: Option<u64>,
}

/// Devices for one VM, which begin with nothing when they are attached.
pub struct Laboratory {
    backend: Arc<dyn Backend>,
    effort: Effort,
    stop: Arc<AtomicBool>,
    taken: Arc<Mutex<Vec<Taken>>>,
    native: Arc<Mutex<Native>>,
}

impl fmt::Debug for Laboratory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Laboratory").finish_non_exhaustive()
    }
}

impl Laboratory {
    /// A laboratory on this back end.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn new(backend: Arc<dyn Backend>, effort: Effort) -> Result<Self, CardError> {
        let stop = Arc::new(AtomicBool::new(false));
        let card = Card::new(&backend, &stop)?;
        let native = Native::new(card, workloads::host_bytes(effort))?;
        Ok(Self {
            backend,
            effort,
            stop,
            taken: Arc::default(),
            native: Arc::new(Mutex::new(native)),
        })
    }

    /// The samples that were taken, in order.
    pub fn taken(&self) -> Vec<Taken> {
        lock(&self.taken).clone()
    }

    /// How many samples were taken, and the last.
    pub fn progress(&self) -> (usize, Option<Taken>) {
        let taken = lock(&self.taken);
        (taken.len(), taken.last().copied())
    }

    fn cards(&self) -> Result<(Card, Card), CardError> {
        let card = || Card::new(&self.backend, &self.stop);
        Ok((card()?, card()?))
    }
}

impl Attach for Laboratory {
    fn attach(&self, ports: &PortBus, mmio: &MmioBus, ram: &Arc<GuestRam>) -> Result<(), BusError> {
        let samples = Samples {
            ram: Arc::clone(ram),
            effort: self.effort,
            taken: Arc::clone(&self.taken),
            native: Arc::clone(&self.native),
        };
        ports.insert(Port(PORT_SAMPLE), 4, Arc::new(samples))?;
        let low = ram
            .object(0, ram.low_end())
            .map_err(|e| e.to_string())
            .and_then(|(object, offset)| {
                let mapping = object.map(offset, ram.low_end(), Access::ReadWrite);
                mapping.map_err(|e| e.to_string())
            });
        let devices = self
            .cards()
            .map_err(|e| e.to_string())
            .and_then(|cards| Ok((cards, low?)));
        let ((trapped, forwarded), low) = match devices {
            Ok(devices) => devices,
            Err(error) => {
                // The guest ends as soon as it looks for them.
                log::error!("the laboratory has no devices: {error}");
                return Ok(());
            }
        };
        let trap = Trap::new(trapped);
        let memory = Arc::new(TrapMemory(Arc::clone(&trap)));
        mmio.insert(GuestAddress(trap::MEMORY), trap::MEMORY_BYTES, memory)?;
        let registers = Arc::new(TrapRegisters(trap));
        mmio.insert(
            GuestAddress(trap::REGISTERS),
            trap::REGISTERS_BYTES,
            registers,
        )?;
        ports.insert(
            Port(PORT_FORWARD),
            4,
            Arc::new(Forward::new(forwarded, low)),
        )
    }
}

/// The port by which samples are handed over, and asked for.
struct Samples {
    ram: Arc<GuestRam>,
    effort: Effort,
    taken: Arc<Mutex<Vec<Taken>>>,
    native: Arc<Mutex<Native>>,
}

impl BusDevice for Samples {
    fn name(&self) -> &'static str {
        "laboratory"
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Response {
        Response::refused(Refusal::NoRegister)
    }

    fn write(&self, _: u64, from: &[u8]) -> Response {
        let Ok(address) = from.try_into().map(u32::from_le_bytes) else {
            return Response::refused(Refusal::BadSize);
        };
        if self.take(address.into()).is_none() {
            log::debug!("laboratory: the sample at {address:#x} is none, or one too many");
        }
        Response::ok("sample")
    }
}

impl Samples {
    fn take(&self, address: u64) -> Option<()> {
        let mut bytes = [0; 8 * sample::WORDS];
        self.ram.read(address, &mut bytes).ok()?;
        let mut words = [0; sample::WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let sample = Sample::from_words(words)?;
        // Nothing that is not in the table is ever run by the host, or kept.
        if !sample.cell.is_planned(self.effort) || lock(&self.taken).len() >= SAMPLES_MAX {
            return None;
        }
        let taken = self.complete(sample);
        lock(&self.taken).push(taken);
        Some(())
    }

    /// The sample as it is, or as the host has taken it.
    fn complete(&self, mut sample: Sample) -> Taken {
        let mut cpu_ns = None;
        if sample.cell.mechanism == MechanismKind::Native {
            let time = lock(&self.native).measure(&sample.cell);
            sample.ns = nanoseconds(time.elapsed);
            cpu_ns = Some(nanoseconds(time.cpu));
        }
        Taken { sample, cpu_ns }
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
