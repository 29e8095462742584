//! Any queue is served or wants a reset.
#![no_main]

use causeway_fuzz::virtio::Disk;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static DISK: Disk = Disk::new();
}

fuzz_target!(|bytes: &[u8]| DISK.with(|disk| {
    let _ = disk.feed(bytes);
    assert!(disk.serves());
}));
