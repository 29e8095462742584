//! Baseline measurements: the loops that a guest times on its memory, run by a host thread on the
//! same memory.
//!
//! The memory is mapped once more, for the thread alone, and held while the loop runs: nothing that
//! the guest or another session does meanwhile can take it from under the loop. But the loop ends
//! when the guest's mapping does: it must not go on storing to memory that was revoked, nor keep
//! what was freed.
#![allow(unsafe_code)] // Runs assembly loops over a mapping.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_kernels::loops;
use causeway_memory::{Mapping, SharedMemory};
use causeway_protocol::Access;
use causeway_testdev_records::{Baseline, Loop, RecordKind};
use causeway_vmm::aperture::{Lease, LeasedMemory};

use crate::record::{RecordError, field};

/// Largest measurement: bytes times passes. At 1 GB/s it takes a minute.
const WORK_BYTES_MAX: u64 = 64 << 30;
/// Maximum number of bytes that one call of a loop goes over before it is seen whether to stop:
/// what a revocation or the end of the VM may have to wait for.
const CALL_BYTES: u64 = 16 << 20;
/// Bytes that one turn of a loop takes.
const TURN_BYTES: u64 = (loops::WORDS_PER_TURN * size_of::<u64>()) as u64;
const _: () = assert!(CALL_BYTES.is_multiple_of(TURN_BYTES));

/// A checked measurement: the loop that a guest asks the host to run, and over how many bytes and
/// passes.
#[derive(Debug)]
pub(crate) struct Work {
    kind: Loop,
    bytes: u64,
    passes: u32,
}

impl Work {
    /// Checks `request`, the record by which a guest asks the host to time a loop on the guest's
    /// memory, and returns the measurement to run.
    pub fn new(request: &Baseline) -> Result<Self, RecordError> {
        let refuse = |name, value: u64| Err(field(RecordKind::Baseline, name, value));
        let Some(kind) = Loop::from_wire(request.kind) else {
            return refuse("kind", request.kind.into());
        };
        if !request.address.is_multiple_of(TURN_BYTES) {
            return refuse("address", request.address);
        }
        if request.bytes == 0 || !request.bytes.is_multiple_of(TURN_BYTES) {
            return refuse("bytes", request.bytes);
        }
        match request.bytes.checked_mul(request.passes.into()) {
            Some(1..=WORK_BYTES_MAX) => Ok(Self {
                kind,
                bytes: request.bytes,
                passes: request.passes,
            }),
            _ => refuse("passes", request.passes.into()),
        }
    }

    /// Runs the loop over `memory` on a thread of its own, and returns how long the loop took.
    /// Returns `None` if the guest may not access `memory` as the loop does, if the memory cannot
    /// be mapped, if the guest's mapping ends meanwhile, or if `stop` is set.
    pub fn run(&self, memory: &LeasedMemory, stop: &AtomicBool) -> Option<Duration> {
        let wanted = match self.kind {
            Loop::Store => Access::ReadWrite,
            Loop::Load => Access::Read,
        };
        if !memory.access.allows(wanted) {
            return None;
        }
        let range = Range::map(&memory.memory, memory.offset, self.bytes, wanted)
            .inspect_err(|e| log::debug!("no baseline: {e}"))
            .ok()?;
        std::thread::scope(|scope| {
            let measure = || self.measure(&range, &memory.lease, stop);
            let thread = std::thread::Builder::new().name("baseline".to_owned());
            match thread.spawn_scoped(scope, measure) {
                Ok(thread) => thread.join().ok().flatten(),
                Err(e) => {
                    log::warn!(
                        "cannot start the thread that measures the host's own memory speed, so the \
                         guest gets no baseline to compare with: {e}"
                    );
                    None
                }
            }
        })
    }

    fn measure(&self, range: &Range, lease: &Lease, stop: &AtomicBool) -> Option<Duration> {
        let at_once = u32::try_from(CALL_BYTES / self.bytes)
            .unwrap_or(u32::MAX)
            .max(1);
        let mut left = self.passes;
        let begin = Instant::now();
        while left != 0 {
            let passes = left.min(at_once);
            for from in (0..self.bytes).step_by(CALL_BYTES as usize) {
                if stop.load(Ordering::Acquire) {
                    return None;
                }
                let bytes = CALL_BYTES.min(self.bytes - from);
                lease.during(|| self.call(range, from, bytes, passes))?;
            }
            left -= passes;
        }
        Some(begin.elapsed())
    }

    /// Runs the loop over `[from, from + bytes)` of the range, which lies within its `self.bytes`.
    fn call(&self, range: &Range, from: u64, bytes: u64, passes: u32) {
        let words = (bytes / 8) as usize;
        // SAFETY: the range is mapped as long as `range` lives, with the rights the loop needs; its
        // size and [`CALL_BYTES`] are whole numbers of turns and its start is 64-byte aligned
        // (checked in `new`), hence so are `bytes` and `from`. No references to it exist.
        unsafe {
            let base = range.base().add(from as usize).cast::<u64>();
            match self.kind {
                Loop::Store => loops::store(base, words, passes),
                Loop::Load => {
                    std::hint::black_box(loops::load(base, words, passes));
                }
            }
        }
    }
}

/// A range of an object, mapped whole pages around it.
struct Range {
    mapping: Mapping,
    within: u64,
}

impl Range {
    fn map(
        memory: &SharedMemory,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Self, causeway_memory::MemoryError> {
        // From a large page's start, so that large pages stay large.
        let start = offset / causeway_memory::LARGE_PAGE_BYTES * causeway_memory::LARGE_PAGE_BYTES;
        let within = offset - start;
        let mapping = memory.map(start, within.saturating_add(bytes), access)?;
        mapping.populate()?;
        Ok(Self { mapping, within })
    }

    fn base(&self) -> *mut u8 {
        // SAFETY: `map` has mapped more than `within` bytes.
        unsafe { self.mapping.as_ptr().as_ptr().add(self.within as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_memory::PageSize;
    use causeway_testdev_records::RecordHeader;
    use causeway_vmm::aperture::Aperture;
    use causeway_vmm::hypervisor::NoGuest;
    use std::sync::Arc;

    fn memory(bytes: u64, offset: u64, access: Access) -> LeasedMemory {
        let memory = SharedMemory::new("test", bytes, PageSize::Small).unwrap();
        LeasedMemory {
            memory: Arc::new(memory),
            offset,
            access,
            lease: Lease::default(),
        }
    }

    fn request(kind: u32, bytes: u64, passes: u32) -> Baseline {
        Baseline {
            header: RecordHeader::default(),
            kind,
            passes,
            address: 64,
            bytes,
            ticks: 0,
        }
    }

    #[test]
    fn figures_beyond_reason_are_refused() {
        for (kind, bytes, passes) in [
            (0, 64, 1),
            (3, 64, 1),
            (1, 0, 1),
            (1, 63, 1),
            (1, 64, 0),
            (1, 1 << 40, 1),
            (1, 64 << 20, u32::MAX),
            (1, u64::MAX - 63, u32::MAX),
        ] {
            assert!(Work::new(&request(kind, bytes, passes)).is_err(), "{bytes}");
        }
        let mut misaligned = request(1, 64, 1);
        misaligned.address = 8;
        assert!(Work::new(&misaligned).is_err());
    }

    #[test]
    fn loops_touch_their_range_and_nothing_else() {
        let leased = memory(8192, 64, Access::ReadWrite);
        let memory = &leased.memory;
        let run = AtomicBool::new(false);
        let store = Work::new(&request(1, 4096, 3)).unwrap();
        store.run(&leased, &run).expect("memory is mapped");
        let own = memory.map(0, 8192, Access::Read).unwrap();
        let word = |offset| own.load_u64(offset, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(word(56), Ok(0));
        assert_eq!(word(64), Ok(1));
        assert_eq!(word(64 + 4088), Ok(64));
        assert_eq!(word(64 + 4096), Ok(0));
    }

    #[test]
    fn rights_and_the_end_are_respected() {
        let (run, end) = (AtomicBool::new(false), AtomicBool::new(true));
        let (store, load) = (request(1, 4096, 1), request(2, 4096, 1));
        let (store, load) = (Work::new(&store).unwrap(), Work::new(&load).unwrap());
        let memory = |offset, access| memory(4096, offset, access);
        assert!(store.run(&memory(0, Access::Read), &run).is_none());
        assert!(load.run(&memory(0, Access::Read), &run).is_some());
        assert!(load.run(&memory(0, Access::None), &run).is_none());
        assert!(load.run(&memory(0, Access::Read), &end).is_none());
        let short = memory(64, Access::Read);
        assert!(load.run(&short, &run).is_none(), "too short");
    }

    #[test]
    fn ranges_longer_than_a_call_are_gone_over_whole() {
        let bytes = CALL_BYTES + 4096;
        let memory = memory(bytes, 0, Access::ReadWrite);
        let store = Work::new(&request(1, bytes, 1)).unwrap();
        store.run(&memory, &AtomicBool::new(false)).unwrap();
        let own = memory.memory.map(0, bytes, Access::Read).unwrap();
        for offset in [0, CALL_BYTES - 8, CALL_BYTES, bytes - 8] {
            let word = own.load_u64(offset, std::sync::atomic::Ordering::Relaxed);
            assert_ne!(word, Ok(0), "{offset:#x}");
        }
    }

    #[test]
    fn a_loop_ends_when_the_memory_is_taken_from_the_guest() {
        use std::sync::atomic::Ordering::Relaxed;
        let memory_object = memory(64 << 20, 0, Access::ReadWrite).memory;
        let aperture = Aperture::new(1 << 30, Arc::new(NoGuest)).unwrap();
        let at = aperture
            .place(
                &Arc::clone(&memory_object).into(),
                0,
                64 << 20,
                Access::ReadWrite,
            )
            .unwrap();
        let leased = aperture.object(at, 64 << 20).unwrap();
        let own = memory_object.map(0, 64 << 20, Access::ReadWrite).unwrap();
        let last = (64 << 20) - 8;
        let run = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Minutes of work, were it not taken away.
            let store = Work::new(&request(1, 64 << 20, 1024)).unwrap();
            let (leased, run) = (&leased, &run);
            let loop_ = scope.spawn(move || store.run(leased, run));
            while own.load_u64(last, Relaxed) == Ok(0) {
                std::thread::yield_now();
            }
            aperture.remove(at).unwrap();
            own.store_u64(last, u64::MAX, Relaxed).unwrap();
            assert!(loop_.join().unwrap().is_none());
            assert_eq!(own.load_u64(last, Relaxed), Ok(u64::MAX));
        });
    }
}
