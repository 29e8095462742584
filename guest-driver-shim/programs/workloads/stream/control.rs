//! Measures the cost of the control path.

use crate::platform::{Machine, Phase, Totals, figure, ticks};
use crate::{Required, median};
use causeway_shim::{AddressSpace, Buffer, Device, MemoryKind};
use causeway_testdev_records::PhasePath;

const ROUND_TRIPS: usize = 1000;
const BYTES: u64 = 64 << 10;

/// Measures an allocation of 64 KiB that is mapped for GPU and CPU and then freed: two batches, so
/// two exits.
pub fn measure(machine: &Machine, device: &'static Device<'static>, space: &AddressSpace<'static>) {
    let mut samples = [0; ROUND_TRIPS];
    let phase = Phase::begin(PhasePath::Control, "allocate 64 KiB, map, free");
    for sample in &mut samples {
        let start = ticks();
        let buffer = Buffer::new(device, space, BYTES, MemoryKind::Host).required("64 KiB");
        buffer.free().required("freeing");
        *sample = ticks() - start;
    }
    phase.end(Totals {
        operations: ROUND_TRIPS as u64,
        ..Totals::default()
    });
    let ns = machine.clock().nanoseconds(median(&mut samples));
    figure("control round trip (median)", ns as f64 / 1e3, "us");
}
