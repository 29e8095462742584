//! Counts the multiprocessors that run a kernel with more blocks than they can hold at once.

use causeway_bare::{figure, println};
use causeway_guests::Required;
use causeway_kernels::bench::{MAP_WORDS, MULTIPROCESSORS};
use causeway_shim::{Buffer, LaunchShape, MemoryKind};

use crate::Bench;

/// Shape of the launch: several blocks of the largest size for each multiprocessor of the largest
/// GPUs.
const SHAPE: LaunchShape = LaunchShape {
    grid: [2048, 1, 1],
    block: [1024, 1, 1],
    shared_bytes: 0,
};
/// Number of steps of each thread: about 10 microseconds on a GPU, long enough that all
/// multiprocessors have blocks before the first block ends.
const STEPS: u32 = 2_000;
/// Number of steps if cores of a CPU take the place of multiprocessors.
const STEPS_ON_CPU: u32 = 8;

/// Counts the multiprocessors, and reports them with the number that the device states.
pub fn count(bench: &mut Bench<'_>) {
    let attributes = bench.device.attributes().required("the attributes");
    let on_cpu = attributes.name.starts_with(b"software");
    let map = Buffer::new(bench.device, bench.space, 4096, MemoryKind::Host);
    let map = map.required("the map of multiprocessors");
    let module = bench.module;
    let kernel = module.kernel(MULTIPROCESSORS).required(MULTIPROCESSORS);
    let steps = if on_cpu { STEPS_ON_CPU } else { STEPS };
    let parameters = kernel
        .parameters()
        .and_then(|p| p.with(0, &map.gpu.address()))
        .and_then(|p| p.with(1, &steps))
        .required("map and steps");
    let commands = &mut bench.pipeline.commands;
    commands.launch(SHAPE, &parameters).required("launching");
    bench.wait();
    let words: [u32; MAP_WORDS] =
        core::array::from_fn(|word| map.cpu.load_u32(word * 4).required("the map"));
    let seen: u32 = words.iter().map(|word| word.count_ones()).sum();
    let given = attributes.compute_units;
    assert!(
        seen <= given,
        "{seen} multiprocessors were seen, {given} are the device's"
    );
    figure("multiprocessors seen", f64::from(seen), "");
    figure("multiprocessors of the device", f64::from(given), "");
    let used = words
        .iter()
        .rposition(|word| *word != 0)
        .map_or(0, |last| last + 1);
    println!(
        "multiprocessors: {seen} seen of {given}, lowest first: {:08x?}",
        &words[..used]
    );
    map.free().required("freeing");
}
