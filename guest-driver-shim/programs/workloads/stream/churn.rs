//! One CPU allocates and frees memory while another streams: the stream must not become slower.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::platform::{Barrier, Machine, Phase, Totals, figure, println, ratio};
use crate::{Required, median, per, touch};
use causeway_shim::{AddressSpace, Buffer, Device, MemoryKind, Window};
use causeway_testdev_records::PhasePath;
use zerocopy::FromBytes;

use super::memory::STREAM_BYTES;

/// Number of allocations that are made and freed.
const ROUNDS: u32 = 1000;
/// Size of each allocation in bytes.
const CHURNED_BYTES: u64 = 4 << 20;
/// Number of rounds after which a pass over memory that was not accessed meanwhile must cause no
/// page fault.
const ROUNDS_BEFORE_PASS: u32 = 100;
/// Bytes of the stream between two looks at the clock.
const SLICE_BYTES: u64 = 8 << 20;
/// Number of slices that are timed without allocations, before the rounds and again after them.
const UNDISTURBED: usize = 400;
/// Most slices that are timed during the rounds: far more than are needed.
const DISTURBED: usize = 1 << 16;

static BARRIER: Barrier = Barrier::new();
static CHURNED: AtomicBool = AtomicBool::new(false);

/// Allocates memory, maps it for GPU and CPU, accesses it, and frees it.
fn round(device: &'static Device<'static>, space: &AddressSpace<'static>) {
    let buffer =
        Buffer::new(device, space, CHURNED_BYTES, MemoryKind::Host).required("memory to churn");
    touch::pages(buffer.cpu.window());
    buffer.free().required("freeing");
}

/// Runs the part of the second CPU: allocates and frees while the first CPU streams.
pub fn beside(machine: &Machine, device: &'static Device<'static>) {
    assert_eq!(machine.cpu(), 1);
    BARRIER.wait(2);
    let space = device.create_space().required("an address space");
    (0..ROUNDS).for_each(|_| round(device, &space));
    drop(space);
    CHURNED.store(true, Ordering::Release);
    // While the other CPU ends its phase, this one does nothing: an exit at that time might be
    // counted in part.
    BARRIER.wait(2);
}

/// Streams over its memory again and again, in timed slices.
struct Stream<'w> {
    window: &'w Window,
    at: usize,
}

impl Stream<'_> {
    fn slice(&mut self) -> u64 {
        let bytes = SLICE_BYTES as usize;
        let slice = self.window.part(self.at, bytes).required("a slice");
        self.at = (self.at + bytes) % self.window.bytes();
        touch::store(&slice, 1)
    }

    fn fill(&mut self, samples: &mut [u64]) {
        samples.iter_mut().for_each(|sample| *sample = self.slice());
    }
}

/// Runs the part of the first CPU: the stream, and its comparison with and without allocations.
pub fn measure(machine: &Machine, device: &'static Device<'static>, space: &AddressSpace<'static>) {
    let buffer =
        Buffer::new(device, space, STREAM_BYTES, MemoryKind::Host).required("memory to stream");
    touch::store(buffer.cpu.window(), 1);
    let mut stream = Stream {
        window: buffer.cpu.window(),
        at: 0,
    };
    let samples = machine
        .ram()
        .bytes(DISTURBED * 8)
        .required("guest RAM for samples");
    samples.fill(0);
    let Ok(samples) = <[u64]>::mut_from_bytes(samples) else {
        unreachable!("guest RAM comes in pages")
    };

    let mut undisturbed = [0; 2 * UNDISTURBED];
    stream.fill(&mut undisturbed[..UNDISTURBED]);
    let slices = if machine.cpus() > 1 {
        concurrently(&mut stream, samples)
    } else {
        interleaved(&mut stream, samples, device, space)
    };
    stream.fill(&mut undisturbed[UNDISTURBED..]);
    report(
        machine,
        median(&mut undisturbed),
        median(&mut samples[..slices]),
        slices,
    );
    left_alone(device, space, buffer.cpu.window());
    buffer.free().required("freeing");
}

/// Streams until the second CPU has done its rounds. Returns the number of samples.
fn concurrently(stream: &mut Stream<'_>, samples: &mut [u64]) -> usize {
    let phase = Phase::begin(
        PhasePath::Control,
        "4 MiB churned 1000 times beside a stream",
    );
    BARRIER.wait(2);
    let mut slices = 0;
    while !CHURNED.load(Ordering::Acquire) {
        // If there are more slices than room for samples, the oldest samples are replaced.
        samples[slices % DISTURBED] = stream.slice();
        slices += 1;
    }
    phase.end(totals(slices));
    BARRIER.wait(2);
    slices.min(DISTURBED)
}

/// Streams a slice after each round. Returns the number of samples.
fn interleaved(
    stream: &mut Stream<'_>,
    samples: &mut [u64],
    device: &'static Device<'static>,
    space: &AddressSpace<'static>,
) -> usize {
    let phase = Phase::begin(
        PhasePath::Control,
        "4 MiB churned 1000 times between slices",
    );
    for sample in &mut samples[..ROUNDS as usize] {
        round(device, space);
        *sample = stream.slice();
    }
    phase.end(totals(ROUNDS as usize));
    ROUNDS as usize
}

fn totals(slices: usize) -> Totals {
    let bytes = slices as u64 * SLICE_BYTES;
    Totals {
        operations: u64::from(ROUNDS),
        bytes,
        doorbells: 0,
    }
}

fn report(machine: &Machine, undisturbed: u64, disturbed: u64, slices: usize) {
    let clock = machine.clock();
    let bandwidth = |ticks| per(SLICE_BYTES, clock.nanoseconds(ticks));
    ratio(
        "stream bandwidth beside churn vs undisturbed",
        per(undisturbed, disturbed),
    );
    figure("stream, undisturbed", bandwidth(undisturbed), "GB/s");
    figure("stream, beside churn", bandwidth(disturbed), "GB/s");
    println!("churn: {slices} slices, {undisturbed} ticks undisturbed, {disturbed} beside it");
}

/// Checks that a pass over the stream's memory causes no page fault after rounds during which that
/// memory was not accessed.
fn left_alone(device: &'static Device<'static>, space: &AddressSpace<'static>, window: &Window) {
    touch::store(window, 1);
    let phase = Phase::begin(
        PhasePath::Control,
        "4 MiB churned 100 times, stream at rest",
    );
    (0..ROUNDS_BEFORE_PASS).for_each(|_| round(device, space));
    phase.end(Totals {
        operations: u64::from(ROUNDS_BEFORE_PASS),
        ..Totals::default()
    });
    let phase = Phase::begin(PhasePath::Data, "64 MiB pass right after churn");
    touch::store(window, 1);
    phase.end(Totals {
        operations: STREAM_BYTES / 8,
        bytes: STREAM_BYTES,
        doorbells: 0,
    });
}
