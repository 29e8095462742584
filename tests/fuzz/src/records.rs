//! Records that a bare guest hands to its test device, and images that a person hands to the
//! loader.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_protocol::boot::IMAGE_BASE;
use causeway_testdev::{RecordMemory, Recorder, RunContext};
use causeway_vmm::aperture::Aperture;
use causeway_vmm::exit_counts::VmExits;
use causeway_vmm::hypervisor::NoGuest;
use causeway_vmm::loader;
use causeway_vmm::memory::GuestRam;

/// Bytes of guest RAM, and of a record at most.
const RAM_BYTES: u64 = 8 << 20;
/// Where records lie: their end may be beyond the end of RAM.
const AT: u64 = RAM_BYTES - 256;

/// A test device that waits for nothing.
pub struct Records {
    ram: Arc<GuestRam>,
    recorder: Recorder,
}

impl Records {
    /// A test device for one guest.
    pub fn new() -> Self {
        let ram = Arc::new(GuestRam::new("fuzz", RAM_BYTES, false).expect("8 MiB of memory"));
        let aperture = Aperture::new(2 << 20, Arc::new(NoGuest)).expect("addresses");
        let memory = RecordMemory {
            ram: Arc::clone(&ram),
            aperture: Arc::new(aperture),
        };
        let stopped = Arc::new(AtomicBool::new(true));
        let recorder = Recorder::new(
            memory,
            RunContext::default(),
            VmExits::default(),
            1_000_000,
            stopped,
        );
        Self { ram, recorder }
    }

    /// Hands over a record of these bytes.
    pub fn hand(&self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(256)];
        self.ram.write(AT, bytes).expect("records begin within RAM");
        let _ = self.recorder.record(AT as u32);
    }

    /// What was collected stays bounded.
    pub fn check(&self) {
        let report = self.recorder.report();
        assert!(report.phases.len() <= 1024 && report.figures.len() <= 1024);
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
