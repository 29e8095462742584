//! Accesses to the aperture where nothing is mapped, or without the right to access.

use causeway_guests::Required;
use causeway_shim::{Access, MemoryKind, Transport};

use crate::target::Target;

const GOOD: u64 = 0x600d_600d_600d_600d;

pub fn attack(target: &mut Target) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let aperture = transport.aperture();
    // At places where no memory slot has ever been, and at places where slots may be.
    let last = aperture.bytes() - 8;
    for at in [last, aperture.bytes() / 2, 3 << 30, 8] {
        hole(target, at);
    }

    let memory = device
        .allocate(16 << 10, MemoryKind::Host)
        .required("memory");
    let write = Access::ReadWrite;
    let mapping = memory.map_cpu(0, 16 << 10, write).required("mapping");
    mapping.store_u64(0, GOOD).required("inside");
    let at = mapping.aperture_offset() as usize;

    // Read-only: loads work, stores change nothing, whatever their size; then writable again.
    mapping.set_access(Access::Read).required("read-only");
    let before = target.strays();
    mapping.store_u8(0, 0xee).required("inside");
    mapping.store_u16(2, 0xeeee).required("inside");
    mapping.store_u32(4, 0xeeee_eeee).required("inside");
    mapping.store_u64(0, 0).required("inside");
    assert_eq!(target.strays() - before, 4, "four stores that were refused");
    assert_eq!(
        mapping.load_u64(0),
        Ok(GOOD),
        "a read-only mapping must not change"
    );
    target.survived();

    // Without any rights, the mapping is a hole; with rights again, the memory is unchanged.
    mapping.set_access(Access::None).required("no access");
    hole(target, at);
    mapping.set_access(write).required("read-write");
    assert_eq!(mapping.load_u64(0), Ok(GOOD), "memory must be as it was");
    mapping.store_u64(8, GOOD).required("inside");
    assert_eq!(mapping.load_u64(8), Ok(GOOD));

    // A hole between two mappings does not touch its neighbours.
    let part = |offset| memory.map_cpu(offset, 4096, write).required("a page");
    let (first, second, third) = (part(0), part(4096), part(8192));
    let gap = second.aperture_offset() as usize;
    second.unmap().required("unmapping");
    hole(target, gap);
    assert_eq!(first.load_u64(0), Ok(GOOD));
    assert_eq!(third.load_u64(0), Ok(0));
    // An access across the edge of a mapping ends too.
    let mut across = [0; 8];
    aperture
        .read(first.aperture_offset() as usize + 4092, &mut across)
        .required("inside");
    target.survived();

    // Freed memory is gone at once, with every mapping.
    memory.free().required("freeing");
    hole(target, at);
}

/// Checks that a hole reads as all-ones and ignores stores, and that both are counted.
#[track_caller]
fn hole(target: &mut Target, at: usize) {
    let aperture = target.transport.aperture();
    let before = target.strays();
    assert_eq!(aperture.load_u64(at), Ok(u64::MAX), "hole at {at:#x}");
    assert_eq!(aperture.load_u8(at + 3), Ok(u8::MAX));
    aperture.store_u64(at, 0).required("inside");
    assert_eq!(aperture.load_u32(at), Ok(u32::MAX), "a hole keeps nothing");
    assert_eq!(
        target.strays() - before,
        4,
        "four accesses to a hole at {at:#x}"
    );
    target.survived();
}
