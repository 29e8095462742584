//! Measures loads and stores over the aperture.

use crate::platform::{
    DeviceTransport, Machine, Phase, Totals, baseline, bench_address, figure, println, ratio,
};
use crate::{Required, median, per, touch};
use causeway_shim::{AddressSpace, Buffer, Device, MemoryKind};
use causeway_testdev_records::{Loop, PhasePath};

/// Size of the allocation over which the loops run, in bytes.
pub const STREAM_BYTES: u64 = 64 << 20;
/// Number of passes that make at least 10^8 accesses of 8 bytes.
const PASSES: u32 = 12;
const _: () = assert!(STREAM_BYTES / 8 * PASSES as u64 >= 100_000_000);

/// Number of fresh allocations whose first access is timed.
const FRESH: usize = 9;
/// Number of turns of guest and host in the comparison. Each turn is one pass over the whole
/// allocation: so every pass finds the caches in the state that the other side's pass has left, and
/// is shorter than most time slices.
const TURNS: usize = 48;

/// Measures the first accesses to fresh memory, and a second pass for comparison.
pub fn first_touch(
    machine: &Machine,
    device: &'static Device<'static>,
    space: &AddressSpace<'static>,
) {
    let (mut first, mut second) = ([0; FRESH], [0; FRESH]);
    for sample in 0..FRESH {
        let buffer = Buffer::new(device, space, STREAM_BYTES, MemoryKind::Host)
            .required("memory to be touched");
        let window = buffer.cpu.window();
        // One sample has phases of its own, so that its page faults are counted.
        let pass = if sample == 0 {
            marked_pass
        } else {
            unmarked_pass
        };
        first[sample] = pass(PhasePath::Setup, "first touch of 64 MiB", window);
        second[sample] = pass(PhasePath::Data, "second pass over 64 MiB", window);
        buffer.free().required("freeing");
    }
    let clock = machine.clock();
    let first = clock.nanoseconds(median(&mut first));
    let second = clock.nanoseconds(median(&mut second));
    let pages = STREAM_BYTES / touch::PAGE_BYTES as u64;
    figure("first touch of 64 MiB", first as f64 / 1e6, "ms");
    figure("second pass over 64 MiB", second as f64 / 1e6, "ms");
    figure(
        "first touch beyond a second pass",
        per(first.saturating_sub(second), pages),
        "ns/4 KiB",
    );
    println!(
        "first touch of 64 MiB: {} us, second pass: {} us",
        first / 1000,
        second / 1000
    );
}

fn unmarked_pass(_: PhasePath, _: &str, window: &causeway_shim::Window) -> u64 {
    touch::store(window, 1)
}

fn marked_pass(path: PhasePath, name: &str, window: &causeway_shim::Window) -> u64 {
    let phase = Phase::begin(path, name);
    let ticks = touch::store(window, 1);
    phase.end(Totals {
        operations: STREAM_BYTES / 8,
        bytes: STREAM_BYTES,
        doorbells: 0,
    });
    ticks
}

/// Measures 10^8 stores and 10^8 loads, and compares them with a host thread on the same memory.
pub fn steady_state(
    machine: &Machine,
    transport: &DeviceTransport,
    device: &'static Device<'static>,
    space: &AddressSpace<'static>,
) {
    let buffer =
        Buffer::new(device, space, STREAM_BYTES, MemoryKind::Host).required("memory to stream");
    let window = buffer.cpu.window();
    touch::store(window, 1);
    let accesses = STREAM_BYTES / 8 * u64::from(PASSES);
    let totals = Totals {
        operations: accesses,
        bytes: accesses * 8,
        doorbells: 0,
    };

    let phase = Phase::begin(PhasePath::Data, "10^8 stores of 8 bytes");
    touch::store(window, PASSES);
    phase.end(totals);

    let phase = Phase::begin(PhasePath::Data, "10^8 loads of 8 bytes");
    let (_, sum) = touch::load(window, PASSES);
    phase.end(totals);
    assert_eq!(
        sum,
        touch::expected_sum(window, PASSES),
        "the loads must see the stores"
    );

    match bench_address(transport, buffer.cpu.aperture_offset()) {
        Some(address) => compare(machine, window, address),
        None => println!("no host thread to compare with"),
    }
    buffer.free().required("freeing");
}

/// Times guest and host in turns, one right after the other.
fn compare(machine: &Machine, window: &causeway_shim::Window, address: u64) {
    let mut samples = [[0; TURNS]; 4];
    let [guest_store, host_store, guest_load, host_load] = &mut samples;
    let host = |kind| {
        baseline(kind, address, STREAM_BYTES, 1).required("the host's own loop over the memory")
    };
    for turn in 0..TURNS {
        guest_store[turn] = touch::store(window, 1);
        host_store[turn] = host(Loop::Store);
        guest_load[turn] = touch::load(window, 1).0;
        host_load[turn] = host(Loop::Load);
    }
    let [guest_store, host_store, guest_load, host_load] = samples.map(|mut s| median(&mut s));
    ratio(
        "store bandwidth vs host thread",
        per(host_store, guest_store),
    );
    ratio("load bandwidth vs host thread", per(host_load, guest_load));
    let clock = machine.clock();
    // Bytes per nanosecond are GB/s.
    let bandwidth = |ticks| per(STREAM_BYTES, clock.nanoseconds(ticks));
    figure("guest stores", bandwidth(guest_store), "GB/s");
    figure("host stores", bandwidth(host_store), "GB/s");
    figure("guest loads", bandwidth(guest_load), "GB/s");
    figure("host loads", bandwidth(host_load), "GB/s");
}
