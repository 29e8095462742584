//! The I/O ports of the devices of `causeway bench exits`.

use causeway_bare::IoPorts;
use causeway_bare::shim::pci::Ports;
use causeway_bench_workloads::host_interface::sample::Sample;
use causeway_bench_workloads::host_interface::singles::Singles;
use causeway_bench_workloads::host_interface::{PORT_SAMPLE, PORT_SINGLES};

/// Reports a sample to the host, or makes the host take one. This is one exit.
pub fn hand_over(sample: &Sample) {
    let words = sample.words();
    // Stacks lie below 4 GiB and are identity-mapped.
    store(PORT_SAMPLE, words.as_ptr() as usize as u32);
    // The words stay in place until the store is done.
    core::hint::black_box(&words);
}

/// Reports times of single operations to the host, or makes the host take some. This is one exit.
pub fn hand_over_singles(singles: &Singles) {
    let words = singles.words();
    store(PORT_SINGLES, words.as_ptr() as usize as u32);
    // As above.
    core::hint::black_box(&words);
}

/// Stores a word to a port.
pub fn store(port: u16, value: u32) {
    IoPorts.write(port, value);
}
