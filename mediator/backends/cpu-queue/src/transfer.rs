//! Copies, fills and single words: what the copy engine of a GPU does.
#![allow(
    unsafe_code,
    reason = "reaches mapped memory through raw pointers, in blocks that the compiler cannot look \
              into"
)]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use causeway_mediator::backend::{CopyShape, Fault, FillShape, MemoryWork, Place};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::crossing::Crossing;
use crate::mapped::Caching;
use crate::table::{HostRange, Table};
use crate::uncached;

/// `CUDA_ERROR_ILLEGAL_ADDRESS` of `cuda.h`.
const ILLEGAL_ADDRESS: u32 = 700;
/// Bytes moved between two looks at the session's `stop`.
const CHUNK_BYTES: u64 = 1 << 20;

/// Copies `bytes` bytes; returns early, without an error, when `stop` is set.
pub(crate) fn copy(
    table: &Table,
    (destination, source): (u64, u64),
    bytes: u64,
    stop: &AtomicBool,
    crossing: &mut Crossing,
) -> Result<(), Fault> {
    let mut done = 0;
    while done < bytes && !stop.load(Ordering::Relaxed) {
        let left = (bytes - done).min(CHUNK_BYTES);
        let from = reach(table, source, done, Access::Read, "copy", left)?;
        let to = reach(table, destination, done, Access::ReadWrite, "copy", left)?;
        let count = left.min(from.left).min(to.left);
        crossing.pass((from.place, to.place), count, |buffer| {
            // SAFETY: both ranges lie within mappings that the table keeps alive, with the rights
            // needed.
            unsafe { copy_through(buffer, &from, &to, count) };
        })?;
        done += count;
    }
    Ok(())
}

/// Fills `bytes` bytes with the low `width` bytes of `pattern`; returns early when `stop` is set.
pub(crate) fn fill(
    table: &Table,
    destination: u64,
    bytes: u64,
    (pattern, width): (u32, u32),
    stop: &AtomicBool,
) -> Result<(), Fault> {
    let mut done = 0;
    while done < bytes && !stop.load(Ordering::Relaxed) {
        let left = (bytes - done).min(CHUNK_BYTES);
        let to = reach(table, destination, done, Access::ReadWrite, "fill", left)?;
        refuse_apart(&to, "fill", destination.wrapping_add(done), left)?;
        let count = left.min(to.left);
        // SAFETY: the range lies within a mapping that the table keeps alive, with the right to
        // write.
        unsafe { fill_reached(&to, count, (pattern, width)) };
        done += count;
    }
    Ok(())
}

/// Copies rows, each side of which lies in one mapping; returns early when `stop` is set.
pub(crate) fn copy_rect(
    table: &Table,
    shape: CopyShape,
    stop: &AtomicBool,
    crossing: &mut Crossing,
) -> Result<(), Fault> {
    let work = MemoryWork::CopyRect(shape);
    let from = work.read().unwrap_or((0, u64::MAX));
    let from = whole(table, from, Access::Read, "copy of rows")?;
    let to = whole(table, work.written(), Access::ReadWrite, "copy of rows")?;
    crossing.pass((from.place, to.place), shape.bytes(), |mut buffer| {
        for (to_row, from_row) in shape.rows() {
            for part in parts(shape.width) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (from, to) = (from.behind(from_row + part.0), to.behind(to_row + part.0));
                // SAFETY: all rows lie within the mappings that were found, which the table keeps
                // alive, with the rights needed.
                unsafe { copy_through(buffer.as_deref_mut(), &from, &to, part.1) };
            }
        }
    })
}

/// Fills rows that lie in one mapping; returns early when `stop` is set.
pub(crate) fn fill_rect(table: &Table, shape: FillShape, stop: &AtomicBool) -> Result<(), Fault> {
    let range = MemoryWork::FillRect(shape).written();
    let to = whole(table, range, Access::ReadWrite, "fill of rows")?;
    refuse_apart(&to, "fill of rows", range.0, range.1)?;
    for row in shape.rows() {
        for part in parts(shape.width) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // SAFETY: as for `copy_rect`.
            unsafe {
                fill_reached(
                    &to.behind(row + part.0),
                    part.1,
                    (shape.pattern, shape.element),
                );
            }
        }
    }
    Ok(())
}

/// Refuses a range that only copies reach.
fn refuse_apart(to: &HostRange, what: &'static str, address: u64, bytes: u64) -> Result<(), Fault> {
    match to.place {
        Place::Apart { .. } => Err(outside(what, Access::ReadWrite, address, bytes)),
        Place::Host | Place::Own | Place::Peer => Ok(()),
    }
}

/// Divides a row: returns offset and size of each part.
fn parts(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let part = move |index| {
        let offset = index * CHUNK_BYTES;
        (offset, CHUNK_BYTES.min(bytes - offset))
    };
    (0..bytes.div_ceil(CHUNK_BYTES)).map(part)
}

/// Finds a range that lies in one mapping.
fn whole(
    table: &Table,
    (address, bytes): (u64, u64),
    wanted: Access,
    what: &'static str,
) -> Result<HostRange, Fault> {
    let found = reach(table, address, 0, wanted, what, bytes)?;
    match found.left >= bytes {
        true => Ok(found),
        false => Err(outside(
            what,
            wanted,
            address.wrapping_add(found.left),
            bytes,
        )),
    }
}

/// Fills with the low `width` bytes of `pattern`. The range begins at a multiple of `width`.
///
/// # Safety
/// `bytes` bytes at `to` can be written.
unsafe fn fill_reached(to: &HostRange, bytes: u64, (pattern, width): (u32, u32)) {
    let word = match width {
        1 => (pattern & 0xff) * 0x0101_0101,
        2 => (pattern & 0xffff) * 0x0001_0001,
        _ => pattern,
    };
    // Bytes of the word follow the address.
    let turned = word.rotate_right(8 * (to.at as u32 & 3 & (width - 1)));
    let at = to.at as *mut u8;
    // SAFETY: by this function's contract.
    unsafe {
        match to.caching {
            Caching::Cached => fill_bytes(at, bytes, turned),
            Caching::Uncached => uncached::fill_uncached(at, bytes, turned),
        }
    }
}

/// Stores a 64-bit word with release ordering.
pub(crate) fn store_release(
    table: &Table,
    address: u64,
    value: u64,
    what: &'static str,
) -> Result<(), Fault> {
    let to = word(table, address, 8, Access::ReadWrite);
    let to = to.ok_or_else(|| outside(what, Access::ReadWrite, address, 8))?;
    // SAFETY: `word` checked range, alignment and right; others may access it meanwhile,
    // atomically.
    unsafe { AtomicU64::from_ptr(to as *mut u64) }.store(value, Ordering::Release);
    Ok(())
}

/// Loads a 64-bit word with acquire ordering.
pub(crate) fn load_acquire(table: &Table, address: u64) -> Option<u64> {
    let from = word(table, address, 8, Access::Read)?;
    // SAFETY: as in `store_release`.
    Some(unsafe { AtomicU64::from_ptr(from as *mut u64) }.load(Ordering::Acquire))
}

/// Stores `value` as the 32-bit word at GPU virtual address `address`, with release ordering.
///
/// # Errors
/// [`Status::MemoryFault`] if `address` is not a multiple of 4, or if no writable mapping contains
/// all four bytes.
pub fn store_release_u32(table: &Table, address: u64, value: u32) -> Result<(), Fault> {
    let to = word(table, address, 4, Access::ReadWrite);
    let to = to.ok_or_else(|| outside("write", Access::ReadWrite, address, 4))?;
    // SAFETY: as in `store_release`.
    unsafe { AtomicU32::from_ptr(to as *mut u32) }.store(value, Ordering::Release);
    Ok(())
}

/// Loads the 32-bit word at GPU virtual address `address`, with acquire ordering. Returns `None` if
/// `address` is not a multiple of 4, or if no readable mapping contains all four bytes.
pub fn load_acquire_u32(table: &Table, address: u64) -> Option<u32> {
    let from = word(table, address, 4, Access::Read)?;
    // SAFETY: as in `store_release`.
    Some(unsafe { AtomicU32::from_ptr(from as *mut u32) }.load(Ordering::Acquire))
}

/// Host address of the word of `bytes` bytes at `address`; `None` if it is not aligned, or if no
/// mapping that allows `wanted` contains all of it.
fn word(table: &Table, address: u64, bytes: u64, wanted: Access) -> Option<u64> {
    let (at, left) = table.host(address, wanted)?;
    (left >= bytes && address.is_multiple_of(bytes)).then_some(at)
}

/// Host address of `start + done`, and the bytes that can be accessed from there on.
fn reach(
    table: &Table,
    start: u64,
    done: u64,
    wanted: Access,
    what: &'static str,
    bytes: u64,
) -> Result<HostRange, Fault> {
    let found = start
        .checked_add(done)
        .and_then(|at| table.reach(at, wanted));
    found.ok_or_else(|| outside(what, wanted, start.wrapping_add(done), bytes))
}

fn outside(what: &'static str, wanted: Access, address: u64, bytes: u64) -> Fault {
    let kind = if wanted == Access::Read {
        "load"
    } else {
        "store"
    };
    Fault::new(
        Status::MemoryFault,
        format!(
            "{what}: {kind} of {bytes} bytes at {address:#x}: not aligned, or no mapping allows it"
        ),
    )
    .with_cuda_result(ILLEGAL_ADDRESS)
}

/// Copies through `buffer`, if there is one, piece by piece.
///
/// # Safety
/// As for [`copy_reached`].
unsafe fn copy_through(buffer: Option<&mut [u8]>, from: &HostRange, to: &HostRange, bytes: u64) {
    let Some(buffer) = buffer else {
        // SAFETY: by this function's contract.
        return unsafe { copy_reached(from, to, bytes) };
    };
    let room = buffer.len() as u64;
    let held = HostRange {
        at: buffer.as_mut_ptr() as u64,
        left: room,
        caching: Caching::Cached,
        place: Place::Host,
    };
    for offset in (0..bytes).step_by(buffer.len()) {
        let piece = room.min(bytes - offset);
        // SAFETY: by this function's contract, and `piece` bytes fit the buffer, which nobody else
        // uses.
        unsafe {
            copy_reached(&from.behind(offset), &held, piece);
            copy_reached(&held, &to.behind(offset), piece);
        }
    }
}

/// # Safety
/// `bytes` bytes at `from` can be read, and at `to` be written. Others may write both meanwhile.
unsafe fn copy_reached(from: &HostRange, to: &HostRange, bytes: u64) {
    let (source, destination) = (from.at as *const u8, to.at as *mut u8);
    // SAFETY: by this function's contract.
    unsafe {
        match (from.caching, to.caching) {
            (Caching::Cached, Caching::Cached) => copy_bytes(source, destination, bytes),
            (Caching::Uncached, Caching::Cached) => uncached::load(source, destination, bytes),
            (Caching::Cached, Caching::Uncached) => uncached::store(source, destination, bytes),
            (Caching::Uncached, Caching::Uncached) => {
                uncached::copy(source, destination, bytes);
            }
        }
    }
}

/// # Safety
/// Both ranges can be accessed. Others may write them meanwhile: what is copied then is theirs to
/// know.
unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: u64) {
    // SAFETY: by this function's contract. In assembly, the optimizer makes no assumption about
    // racing bytes; overlapping ranges are copied in ascending order.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// The range can be written.
unsafe fn fill_bytes(to: *mut u8, bytes: u64, word: u32) {
    let double = u64::from(word) | u64::from(word) << 32;
    // SAFETY: by this function's contract; eight bytes at a time, then the rest one by one.
    unsafe {
        std::arch::asm!(
            "rep stosq",
            "mov rcx, {rest}",
            "2:",
            "jrcxz 3f",
            "stosb",
            "ror rax, 8",
            "dec rcx",
            "jmp 2b",
            "3:",
            rest = in(reg) bytes % 8,
            inout("rcx") bytes / 8 => _,
            inout("rdi") to => _,
            inout("rax") double => _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use causeway_memory::PageSize;
    use causeway_protocol::packet::RectSide;
    use std::sync::Arc;

    use super::*;
    use crate::memory::HostMemory;
    use crate::table::Entry;

    fn table() -> (Table, Arc<HostMemory>) {
        let memory = Arc::new(HostMemory::allocate(3 << 20, PageSize::Large).unwrap());
        let map = |table: Table, at: u64, offset: u64, bytes: u64, access| {
            let entry = Entry::new(at, Arc::clone(&memory) as _, offset, bytes, access).unwrap();
            table.with(entry).unwrap()
        };
        let table = map(Table::default(), 0x10_0000, 0, 2 << 20, Access::ReadWrite);
        // Behind the first without a gap, but other memory, and read-only.
        let table = map(table, 0x30_0000, 2 << 20, 1 << 20, Access::Read);
        (table, memory)
    }

    #[test]
    fn fills_repeat_their_pattern_whatever_the_width_and_the_end() {
        let (table, memory) = table();
        let stop = AtomicBool::new(false);
        for (pattern, width) in [(0xab, 1), (0x1234, 2), (0xdead_beef, 4)] {
            for (start, bytes) in [(0x10_0004, 12), (0x10_0000 + (1 << 20) - 4, 20)] {
                fill(&table, start, bytes, (pattern, width), &stop).unwrap();
                let mut found = vec![0; bytes as usize];
                memory
                    .mapping()
                    .read(start - 0x10_0000, &mut found)
                    .unwrap();
                let wanted = pattern.to_le_bytes();
                for (index, byte) in found.iter().enumerate() {
                    assert_eq!(*byte, wanted[index % width as usize], "{width} {index}");
                }
            }
        }
    }

    #[test]
    fn copies_cross_mappings_and_stop_at_rights() {
        let (table, memory) = table();
        let stop = AtomicBool::new(false);
        memory.mapping().write((2 << 20) - 2, b"abcd").unwrap();
        copy(
            &table,
            (0x10_0000, 0x30_0000 - 2),
            4,
            &stop,
            &mut Crossing::default(),
        )
        .unwrap();
        let mut found = [0; 4];
        memory.mapping().read(0, &mut found).unwrap();
        assert_eq!(&found, b"abcd");
        let fault = copy(
            &table,
            (0x30_0000, 0x10_0000),
            4,
            &stop,
            &mut Crossing::default(),
        )
        .unwrap_err();
        assert_eq!(fault.status, Status::MemoryFault);
        assert!(
            fault.text.contains("store of 4 bytes at 0x300000"),
            "{fault}"
        );
        let fault = copy(
            &table,
            (0x10_0000, 0x40_0000 - 8),
            16,
            &stop,
            &mut Crossing::default(),
        )
        .unwrap_err();
        assert!(fault.text.contains("at 0x400000"), "{fault}");
        copy(
            &table,
            (u64::MAX - 1, 0x10_0000),
            16,
            &stop,
            &mut Crossing::default(),
        )
        .unwrap_err();
    }

    fn copied(
        to: (u64, u32),
        from: (u64, u32),
        (width, height, depth): (u64, u32, u32),
    ) -> CopyShape {
        let side = |(address, pitch)| RectSide {
            address,
            pitch,
            rows: height,
        };
        CopyShape {
            destination: side(to),
            source: side(from),
            width,
            height,
            depth,
        }
    }

    #[test]
    fn rows_are_copied_and_filled_and_what_is_between_stays() {
        let (table, memory) = table();
        let stop = AtomicBool::new(false);
        memory.mapping().write(0, b"abcd..efgh..ijkl").unwrap();
        let shape = copied((0x10_1000, 8), (0x10_0000, 6), (4, 3, 1));
        copy_rect(&table, shape, &stop, &mut Crossing::default()).unwrap();
        let mut found = [0; 20];
        memory.mapping().read(0x1000, &mut found).unwrap();
        assert_eq!(&found, b"abcd\0\0\0\0efgh\0\0\0\0ijkl");
        for (pattern, element) in [(0x31, 1), (0x3231, 2), (0x3433_3231, 4)] {
            let shape = FillShape {
                destination: 0x10_1000,
                pitch: 8,
                height: 2,
                width: 4,
                pattern,
                element,
            };
            fill_rect(&table, shape, &stop).unwrap();
            memory.mapping().read(0x1000, &mut found).unwrap();
            let row: Vec<u8> = (0..4).map(|i| b'1' + i % element as u8).collect();
            assert_eq!((&found[..4], &found[8..12]), (&row[..], &row[..]));
            assert_eq!((&found[4..8], &found[16..]), (&[0; 4][..], &b"ijkl"[..]));
        }
    }

    #[test]
    fn rows_stay_in_one_mapping_with_the_right() {
        let (table, memory) = table();
        let stop = AtomicBool::new(false);
        let refused = |to, from, size| {
            let fault = copy_rect(
                &table,
                copied(to, from, size),
                &stop,
                &mut Crossing::default(),
            )
            .unwrap_err();
            assert_eq!(fault.status, Status::MemoryFault);
            fault.text
        };
        // Its last byte is the last of the mapping; then one byte further, and far behind.
        let fine = copied((0x10_0000, 64), (0x30_0000 - 104, 96), (8, 2, 1));
        copy_rect(&table, fine, &stop, &mut Crossing::default()).unwrap();
        let text = refused((0x10_0000, 64), (0x30_0000 - 103, 96), (8, 2, 1));
        assert!(text.contains("at 0x300000"), "{text}");
        refused((0x10_0000, 64), (0x2f_ff00, 1 << 30), (8, 2, 1));
        refused((0x30_0000, 64), (0x10_0000, 64), (8, 2, 1));
        refused((0x10_0000, 64), (0x50_0000, 64), (8, 2, 1));
        refused((0x10_0000, 4), (0x20_0000, 8), (8, 2, 1));
        refused((0x10_0000, 1 << 30), (0x20_0000, 64), (8, 1 << 20, 1 << 20));
        let mut found = [1; 8];
        memory.mapping().read(64, &mut found).unwrap();
        assert_eq!(found, [0; 8]);
        stop.store(true, Ordering::Relaxed);
        memory.mapping().write(0x1000, b"never").unwrap();
        let stopped = copied((0x10_0000, 64), (0x10_1000, 96), (8, 2, 1));
        copy_rect(&table, stopped, &stop, &mut Crossing::default()).unwrap();
        memory.mapping().read(0, &mut found).unwrap();
        assert_eq!(found, [0; 8]);
    }

    #[test]
    fn words_want_alignment_and_rights() {
        let (table, _memory) = table();
        store_release(&table, 0x10_0008, 42, "fence").unwrap();
        assert_eq!(load_acquire(&table, 0x10_0008), Some(42));
        assert_eq!(load_acquire(&table, 0x10_0009), None);
        store_release(&table, 0x10_000c, 42, "fence").unwrap_err();
        store_release(&table, 0x30_0000, 42, "fence").unwrap_err();
    }
}
