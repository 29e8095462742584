//! The kernel `double`, which is built into the device.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use causeway_cpu_queue::{Kernels, Mappings, load_acquire_u32, store_release_u32};
use causeway_mediator::backend::{Fault, Kernel, Launch, Module, Usage};
use causeway_protocol::message::{Parameter, Status};

/// Name of the kernel.
const NAME: &str = "double";
/// Its parameters: the address of the numbers, and how many there are.
const PARAMETERS: [Parameter; 2] = [
    Parameter { offset: 0, size: 8 },
    Parameter { offset: 8, size: 4 },
];

/// The device's module, whatever code the guest has given.
pub(crate) struct BuiltIn;

impl Module for BuiltIn {
    fn kernel(&self, name: &str) -> Option<Arc<dyn Kernel>> {
        (name == NAME).then(|| Arc::new(Double) as Arc<dyn Kernel>)
    }

    fn kernels(&self) -> Vec<String> {
        vec![NAME.to_owned()]
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}

/// The kernel, as guests look it up.
struct Double;

impl Kernel for Double {
    fn parameters(&self) -> &[Parameter] {
        &PARAMETERS
    }

    fn parameter_bytes(&self) -> u32 {
        12
    }

    fn block_threads_max(&self) -> u32 {
        1024
    }

    fn shared_bytes(&self) -> u32 {
        0
    }

    fn dynamic_shared_bytes_max(&self) -> u32 {
        0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Executes launches of the kernel.
pub(crate) struct Doubling {
    /// Memory that the kernel may access, by GPU address.
    pub mappings: Arc<Mappings>,
    /// Set when work must end early.
    pub stop: Arc<AtomicBool>,
    /// Counts the numbers.
    pub doubled: Arc<AtomicU64>,
}

impl Kernels for Doubling {
    /// One core executes the kernel.
    fn launch(&self, launch: &Launch<'_>, _: u64, usage: &mut Usage) -> Result<(), Fault> {
        let begun = Instant::now();
        let doubled = self.double(launch);
        let elapsed_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        *usage += Usage::of_one_unit(elapsed_ns);
        doubled
    }
}

impl Doubling {
    /// Doubles all numbers, whatever the shape of the launch.
    fn double(&self, launch: &Launch<'_>) -> Result<(), Fault> {
        let (numbers, length) = arguments(launch.parameters())?;
        let table = self.mappings.table();
        for i in 0..u64::from(length) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            // Both arguments are the guest's: the sum may overflow, or lead to memory that is not
            // mapped or must not be written.
            let address = numbers.wrapping_add(4 * i);
            let number = load_acquire_u32(&table, address).ok_or_else(|| {
                let text = format!("{NAME} reads {address:#x}, where no memory is mapped for it");
                Fault::new(Status::MemoryFault, text)
            })?;
            store_release_u32(&table, address, number.wrapping_add(number))?;
            self.doubled.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Returns the address of the numbers, and how many there are.
fn arguments(block: &[u8]) -> Result<(u64, u32), Fault> {
    let arguments = block.split_first_chunk().and_then(|(numbers, rest)| {
        let length = rest.first_chunk()?;
        Some((u64::from_le_bytes(*numbers), u32::from_le_bytes(*length)))
    });
    arguments.ok_or_else(|| Fault::new(Status::BadParameters, "the parameter block is too short"))
}
