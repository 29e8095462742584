//! The port by which the guest sends times of single operations, and requests those of the host.

use std::sync::Arc;

use causeway_bench_workloads::host_interface::singles::{self, Singles};
use causeway_bench_workloads::measurement_plan::Plan;
use causeway_bench_workloads::singles::{SINGLES_MAX, Single, budget_ns, timer_cost};
use causeway_bench_workloads::{Cell, MechanismKind};
use causeway_vmm::bus::{BusDevice, Refusal, Response};
use causeway_vmm::memory::GuestRam;
use parking_lot::Mutex;

use crate::native::{Native, clock};
use crate::passthrough::PassthroughDevice;

/// Times of single operations of one cell: a workload at one size by one mechanism.
#[derive(Clone, Debug, PartialEq)]
pub struct SingleTimes {
    /// The cell.
    pub cell: Cell,
    /// What the timer adds to each time, in nanoseconds.
    pub timer_ns: u64,
    /// Time of each operation in nanoseconds, in their order; empty if too few fit into the time
    /// that the operations of a cell may take.
    pub times_ns: Vec<u64>,
}

/// The device at the port by which a guest sends times of single operations, or asks the host to
/// take some.
pub(crate) struct SinglesPort {
    pub ram: Arc<GuestRam>,
    /// The plan of the benchmark. Times of cells that it does not allow are refused.
    pub plan: Plan,
    pub taken: Arc<Mutex<Vec<SingleTimes>>>,
    /// The host's own work on the card; `None` if the host takes no samples.
    pub native: Option<Arc<Mutex<Native>>>,
    pub device: Option<Arc<PassthroughDevice>>,
}

impl BusDevice for SinglesPort {
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
            log::debug!("mechanisms: the single times at {address:#x} are malformed, or not new");
        }
        Response::ok("singles")
    }
}

impl SinglesPort {
    fn take(&self, address: u64) -> Option<()> {
        let words = self.words::<{ singles::WORDS }>(address)?;
        let record = Singles::from_words(words)?;
        let cell = record.cell;
        let is_new = || self.taken.lock().iter().all(|other| other.cell != cell);
        // Each cell once, so that a guest cannot make the host keep more than a plan has.
        if !self.plan.has(&cell)
            || cell.workload.description().single != Single::ByItself
            || !is_new()
        {
            return None;
        }
        let times = match cell.mechanism.is_native() {
            true => self.natively(cell)?,
            false => self.sent(&record)?,
        };
        self.taken.lock().push(times);
        Some(())
    }

    /// Copies the times that a guest has sent.
    fn sent(&self, record: &Singles) -> Option<SingleTimes> {
        let mut times_ns = Vec::with_capacity(record.count);
        for index in 0..record.count as u64 {
            let address = record.address.checked_add(8 * index)?;
            times_ns.extend(self.words::<1>(address)?);
        }
        Some(SingleTimes {
            cell: record.cell,
            timer_ns: record.timer_ns,
            times_ns,
        })
    }

    fn natively(&self, cell: Cell) -> Option<SingleTimes> {
        let mut native = self.native.as_ref()?.lock();
        let budget_ns = budget_ns(self.plan.effort);
        let mut times_ns = vec![0; SINGLES_MAX];
        let count = match cell.mechanism {
            MechanismKind::NativeBar => {
                let device = self.device.as_ref()?;
                native.time_singles_on(device, &cell, &mut times_ns, budget_ns)?
            }
            _ => native.time_singles(&cell, &mut times_ns, budget_ns)?,
        };
        times_ns.truncate(count);
        Some(SingleTimes {
            cell,
            timer_ns: timer_cost(clock()),
            times_ns,
        })
    }

    fn words<const COUNT: usize>(&self, address: u64) -> Option<[u64; COUNT]> {
        let mut words = [0; COUNT];
        for (index, word) in (0..).zip(&mut words) {
            let mut bytes = [0; 8];
            self.ram
                .read(address.checked_add(8 * index)?, &mut bytes)
                .ok()?;
            *word = u64::from_le_bytes(bytes);
        }
        Some(words)
    }
}
