//! The ports of the devices of `bench exits`.

use causeway_bare::IoPorts;
use causeway_bare::shim::pci::Ports;
use causeway_bench_workloads::host_interface::PORT_SAMPLE;
use causeway_bench_workloads::host_interface::sample::Sample;

/// Hands a sample over, or has the host take it. One exit.
pub fn hand_over(sample: &Sample) {
    let words = sample.words();
    // Stacks lie below 4 GiB, one to one.
    store(PORT_SAMPLE, words.as_ptr() as usize as u32);
    // The words are there until the store is done.
    core::hint::black_box(&words);
}

/// Stores a word to a port.
pub fn store(port: u16, value: u32) {
    IoPorts.write(port, value);
}
