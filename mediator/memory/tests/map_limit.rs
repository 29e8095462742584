//! What remains possible when the process has as many mappings as it may have (`vm.max_map_count`).
//! A test alone in its process, which it fills up.
#![allow(unsafe_code)] // Maps pages to get to the limit.

use causeway_memory::{LARGE_PAGE_BYTES, PAGE_BYTES, PageSize, SharedMemory, Window};
use causeway_protocol::Access;
use rustix::mm::{MapFlags, ProtFlags};

/// Maps single pages that no two neighbours can share a mapping for, until the kernel refuses.
fn fill_up() {
    for index in 0.. {
        let protection = match index % 2 {
            0 => ProtFlags::READ,
            _ => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let page = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                PAGE_BYTES as usize,
                protection,
                MapFlags::PRIVATE,
            )
        };
        if page.is_err() {
            return;
        }
        assert!(index < 10_000_000, "no limit in sight");
    }
}

#[test]
fn what_cannot_be_removed_can_at_least_not_be_accessed() {
    let memory = SharedMemory::new("test", PAGE_BYTES, PageSize::Small).unwrap();
    let window = Window::reserve(LARGE_PAGE_BYTES).unwrap();
    window
        .place(8 * PAGE_BYTES, &memory, 0, PAGE_BYTES, Access::ReadWrite)
        .unwrap();
    fill_up();
    let populated = window.populate(8 * PAGE_BYTES, PAGE_BYTES, Access::Read);
    let cleared = window.clear(8 * PAGE_BYTES, PAGE_BYTES);
    let after = window.populate(8 * PAGE_BYTES, PAGE_BYTES, Access::Read);
    let outcome = (populated.is_ok(), cleared.is_ok(), after.is_ok());
    // The kernel may have a mapping to spare for a replacement; then the placement is gone, which
    // is better.
    assert!(matches!(outcome, (true, _, false)), "{outcome:?}");
}
