//! The port by which the guest sends samples, and requests samples of the host.

use std::sync::Arc;

use causeway_bench_workloads::MechanismKind;
use causeway_bench_workloads::host_interface::sample::{self, Sample};
use causeway_bench_workloads::measurement_plan::Plan;
use causeway_vmm::bus::{BusDevice, Refusal, Response};
use causeway_vmm::memory::GuestRam;
use parking_lot::Mutex;

use crate::native::Native;
use crate::passthrough::PassthroughDevice;

/// Maximum number of samples that are kept.
const SAMPLES_MAX: usize = 65_536;

/// A sample that the benchmark has taken of one cell: a workload at one size by one mechanism.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// The cell, and the time of its operations.
    pub sample: Sample,
    /// Processor time that this process used for the sample, in nanoseconds, if the host took the
    /// sample. `None` if the guest took it: the guest's phases contain this time.
    pub cpu_ns: Option<u64>,
}

/// The device at the port by which a guest sends samples, or asks the host to take samples.
pub(crate) struct Samples {
    pub ram: Arc<GuestRam>,
    /// The plan of the benchmark. Samples of cells that it does not allow are refused.
    pub plan: Plan,
    pub taken: Arc<Mutex<Vec<Measurement>>>,
    /// The host's own work on the card; `None` if the host takes no samples.
    pub native: Option<Arc<Mutex<Native>>>,
    pub device: Option<Arc<PassthroughDevice>>,
}

impl BusDevice for Samples {
    fn name(&self) -> &'static str {
        "mechanisms"
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Response {
        Response::refused(Refusal::NoRegister)
    }

    fn write(&self, _: u64, from: &[u8]) -> Response {
        let Ok(address) = from.try_into().map(u32::from_le_bytes) else {
            return Response::refused(Refusal::BadSize);
        };
        if self.take(address.into()).is_none() {
            log::debug!("mechanisms: the sample at {address:#x} is malformed, or one too many");
        }
        Response::ok("sample")
    }
}

impl Samples {
    fn take(&self, address: u64) -> Option<()> {
        let mut bytes = [0; 8 * sample::WORDS];
        self.ram.read(address, &mut bytes).ok()?;
        let words = bytes.as_chunks().0;
        let words = std::array::from_fn(|index| u64::from_le_bytes(words[index]));
        let sample = Sample::from_words(words)?;
        // The host runs and keeps only cells of the plan.
        if !self.plan.has(&sample.cell) || self.taken.lock().len() >= SAMPLES_MAX {
            return None;
        }
        let taken = self.complete(sample)?;
        if sample.repetition != sample::WARM_UP {
            self.taken.lock().push(taken);
        }
        Some(())
    }

    /// Returns the sample as it is, or as the host has taken it, if it could.
    fn complete(&self, sample: Sample) -> Option<Measurement> {
        let cell = &sample.cell;
        if !cell.mechanism.is_native() {
            let cpu_ns = None;
            return Some(Measurement { sample, cpu_ns });
        }
        let mut native = self.native.as_ref()?.lock();
        let time = match cell.mechanism {
            MechanismKind::NativeBar => native.measure_on(self.device.as_ref()?, cell)?,
            _ => native.measure(cell)?,
        };
        let ns = nanoseconds(time.elapsed);
        Some(Measurement {
            sample: Sample { ns, ..sample },
            cpu_ns: Some(nanoseconds(time.cpu)),
        })
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
