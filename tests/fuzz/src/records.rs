//! Records that a bare guest hands to its test bench, and images that a person hands to the loader.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_protocol::boot::IMAGE_BASE;
use causeway_vmm::aperture::Leased;
use causeway_vmm::counters::ExitCounters;
use causeway_vmm::harness::{Harness, MappedMemory, PhaseRecorder};
use causeway_vmm::loader;
use causeway_vmm::memory::GuestRam;
use causeway_vmm::statistics::VmStatistics;

/// Bytes of guest RAM, and of a record at most.
const RAM_BYTES: u64 = 8 << 20;
/// Where records lie: their end may be beyond the end of RAM.
const AT: u64 = RAM_BYTES - 256;

struct Nothing;

impl MappedMemory for Nothing {
    fn object(&self, _: u64, _: u64) -> Option<Leased> {
        None
    }

    fn placed(&self, _: u64, _: u64) -> Option<Leased> {
        None
    }
}

/// A test bench that waits for nothing.
pub struct Records {
    ram: Arc<GuestRam>,
    harness: Harness,
}

impl Records {
    /// A test bench for one guest.
    pub fn new() -> Self {
        let ram = Arc::new(GuestRam::new("fuzz", RAM_BYTES, false).expect("8 MiB of memory"));
        let counters = vec![Arc::new(ExitCounters::default())];
        let phases = PhaseRecorder::new(Arc::new(VmStatistics::unavailable()), counters);
        let stopped = Arc::new(AtomicBool::new(true));
        let harness = Harness::new(
            Arc::clone(&ram),
            Arc::new(Nothing),
            Arc::default(),
            phases,
            1_000_000,
            stopped,
        );
        Self { ram, harness }
    }

    /// Hands over a record of these bytes.
    pub fn hand(&self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(256)];
        self.ram.write(AT, bytes).expect("records begin within RAM");
        let _ = self.harness.record(AT as u32);
    }

    /// What was collected stays bounded.
    pub fn check(&self) {
        let (phases, figures) = (self.harness.phases(), self.harness.figures());
        assert!(phases.len() <= 1024 && figures.len() <= 1024);
    }
}

/// Loads an image: what is accepted lies within RAM, from the image base on.
pub fn load(image: &[u8]) -> bool {
    let Ok(loaded) = loader::check(image, IMAGE_BASE..RAM_BYTES) else {
        return false;
    };
    assert!((IMAGE_BASE..RAM_BYTES).contains(&loaded.entry) && loaded.end <= RAM_BYTES);
    true
}
