//! Memory objects that a worker uses in the VMM, and how many bytes of them may be its own.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use causeway_mediator::LiveLimits;
use causeway_memory::{MemoryError, SharedMemory};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::wire::page_size_from_wire;

/// Number of memory objects from which the map is searched for those that no longer exist.
const SWEEP: usize = 64;
/// Descriptors that memory of workers leaves free in the VMM, for its messages to and from all
/// workers.
const RESERVE: u64 = 64;

/// What a memory object is known by: device, inode, and time of birth in nanoseconds, by which an
/// object is told from a later one with the same numbers. A time is 0 if the kernel knows none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectKey {
    device: (u32, u32),
    inode: u64,
    born: (i64, u32),
}

impl ObjectKey {
    /// Returns the key of the object behind a descriptor.
    pub fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let status = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
        let born = status.stx_btime;
        Ok(Self {
            device: (status.stx_dev_major, status.stx_dev_minor),
            inode: status.stx_ino,
            born: (born.tv_sec, born.tv_nsec),
        })
    }
}

/// Why the VMM does not use a memory object for a worker.
#[derive(Debug, thiserror::Error)]
pub(super) enum Overdraft {
    #[error(
        "the VMM has no file descriptor left for memory of this VM's worker process: raise the \
         limit (`ulimit -n`), or run fewer VMs"
    )]
    Descriptors,
    #[error(
        "the worker process shows {bytes} bytes of memory more to its VM, which has {used} of \
         {limit}: more than its `memory=` allows"
    )]
    Bytes { bytes: u64, used: u64, limit: u64 },
    #[error("the worker process shows more than {limit} memory objects to its VM")]
    Count { limit: u64 },
    #[error("the worker process has changed the size of memory that its VM uses")]
    Resized,
    #[error(
        "the worker process shows memory of another VM to its own VM, and has no import that \
         allows it"
    )]
    Foreign,
}

/// The objects that one worker uses in the VMM: placed in the aperture, under a command buffer, or
/// exported. An object counts once, with its whole size, however often it is used.
pub(super) struct Objects {
    limits: Arc<LiveLimits>,
    /// Of the objects that are the worker's own.
    own_bytes: u64,
    used: HashMap<ObjectKey, Use>,
    /// Each takes one descriptor, however often it is placed.
    known: HashMap<ObjectKey, Weak<SharedMemory>>,
}

struct Use {
    /// Size of the object.
    bytes: u64,
    own_bytes: u64,
    count: u64,
    /// Whether its owner has taken it back, and it is still used here. Its owner may have ended
    /// since, so that nobody else claims it.
    is_revoked: bool,
}

impl Objects {
    /// Returns the objects of a worker that uses none yet, and may use as many as `limits` say at
    /// the time.
    pub fn new(limits: Arc<LiveLimits>) -> Self {
        Self {
            limits,
            own_bytes: 0,
            used: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Returns the memory object behind a descriptor; the one in use, if it is known already.
    /// `pages` is what the worker says of its pages.
    pub fn adopt(
        &mut self,
        file: OwnedFd,
        pages: u32,
    ) -> Result<(Arc<SharedMemory>, ObjectKey), MemoryError> {
        let memory = SharedMemory::adopt(file, page_size_from_wire(pages))?;
        let key = ObjectKey::of(memory.file());
        let key = key.map_err(|e| MemoryError::Adopt { source: e.into() })?;
        if let Some(known) = self.known.get(&key).and_then(Weak::upgrade) {
            return match known.bytes() == memory.bytes() {
                true => Ok((known, key)),
                false => Err(resized()),
            };
        }
        if self.known.len() >= SWEEP && self.known.len().is_power_of_two() {
            self.known.retain(|_, memory| memory.strong_count() != 0);
        }
        let memory = Arc::new(memory);
        self.known.insert(key, Arc::downgrade(&memory));
        Ok((memory, key))
    }

    /// Counts one more use of an object of `bytes` bytes, which are the worker's own if `is_own`
    /// holds.
    pub fn hold(&mut self, key: ObjectKey, bytes: u64, is_own: bool) -> Result<(), Overdraft> {
        if let Some(known) = self.used.get_mut(&key) {
            return match () {
                () if known.bytes != bytes => Err(Overdraft::Resized),
                () if known.is_revoked && is_own => Err(Overdraft::Foreign),
                () => {
                    known.count += 1;
                    Ok(())
                }
            };
        }
        let own_bytes = if is_own { bytes } else { 0 };
        let quota = self.limits.quota();
        let (used, limit) = (self.own_bytes, quota.memory_bytes);
        let sum = used.checked_add(own_bytes).filter(|sum| *sum <= limit);
        let sum = sum.ok_or(Overdraft::Bytes { bytes, used, limit })?;
        // A command buffer may outlive the allocation that it is in.
        let limit = quota.allocations.saturating_add(quota.command_buffers);
        if self.used.len() as u64 >= limit {
            return Err(Overdraft::Count { limit });
        }
        self.own_bytes = sum;
        let one = Use {
            bytes,
            own_bytes,
            count: 1,
            is_revoked: false,
        };
        self.used.insert(key, one);
        Ok(())
    }

    /// Notes that the owner of an object has taken it back.
    pub fn revoke(&mut self, key: ObjectKey) {
        if let Some(known) = self.used.get_mut(&key) {
            known.is_revoked = true;
        }
    }

    /// Returns whether an object in use was taken back.
    pub fn is_revoked(&self, key: ObjectKey) -> bool {
        self.used.get(&key).is_some_and(|known| known.is_revoked)
    }

    /// Counts one use of an object less.
    pub fn release(&mut self, key: ObjectKey) {
        let Some(known) = self.used.get_mut(&key) else {
            return;
        };
        known.count -= 1;
        if known.count == 0 {
            self.own_bytes -= known.own_bytes;
            self.used.remove(&key);
        }
    }
}

fn resized() -> MemoryError {
    let source = std::io::Error::other(Overdraft::Resized);
    MemoryError::Adopt { source }
}

/// Refuses a descriptor that a worker has sent, if it is one of the last: the kernel gives the
/// lowest number that is free.
pub(super) fn leave_reserve(file: &OwnedFd) -> Result<(), Overdraft> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let number = u64::try_from(file.as_raw_fd()).unwrap_or(0);
    match number < limit.saturating_sub(RESERVE) {
        true => Ok(()),
        false => Err(Overdraft::Descriptors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_mediator::{LimitChange, Quota};
    use causeway_memory::{PAGE_BYTES, PageSize};
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::os::fd::AsFd;

    fn key(inode: u64) -> ObjectKey {
        ObjectKey {
            device: (0, 1),
            inode,
            born: (0, 0),
        }
    }

    fn objects() -> Objects {
        Objects::new(Arc::new(LiveLimits::new(&Quota {
            memory_bytes: 100,
            allocations: 2,
            command_buffers: 1,
            ..Quota::default()
        })))
    }

    /// The kernel tells the time only if it is asked for it.
    #[test]
    fn a_key_is_the_same_for_each_descriptor_and_has_the_time_of_birth() {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let key = ObjectKey::of(memory.as_fd()).unwrap();
        let again = memory.try_clone().unwrap();
        assert_eq!(ObjectKey::of(again.as_fd()), Ok(key));
        assert_ne!(key.born, (0, 0));
    }

    #[test]
    fn the_limits_are_those_of_the_moment() {
        let mut objects = objects();
        objects.hold(key(1), 60, true).unwrap();
        let to = |memory_bytes, allocations| LimitChange {
            memory_bytes: Some(memory_bytes),
            allocations: Some(allocations),
            ..LimitChange::default()
        };
        objects.limits.change(&to(50, 2));
        let refused = objects.hold(key(2), 1, true);
        assert!(matches!(refused, Err(Overdraft::Bytes { limit: 50, .. })));
        objects.hold(key(1), 60, true).unwrap();
        objects.limits.change(&to(61, 0));
        let refused = objects.hold(key(2), 1, true);
        assert!(matches!(refused, Err(Overdraft::Count { limit: 1 })));
        objects.limits.change(&to(61, 1));
        objects.hold(key(2), 1, true).unwrap();
    }

    #[test]
    fn an_object_counts_once_until_its_last_use_ends() {
        let mut objects = objects();
        objects.hold(key(1), 60, true).unwrap();
        objects.hold(key(1), 60, true).unwrap();
        assert!(matches!(
            objects.hold(key(2), 41, true),
            Err(Overdraft::Bytes {
                bytes: 41,
                used: 60,
                limit: 100
            })
        ));
        objects.release(key(1));
        assert!(objects.hold(key(2), 41, true).is_err());
        objects.release(key(1));
        objects.hold(key(2), 41, true).unwrap();
        assert!(objects.hold(key(3), u64::MAX, true).is_err());
    }

    #[test]
    fn objects_of_others_count_but_not_their_bytes() {
        let mut objects = objects();
        objects.hold(key(1), 100, true).unwrap();
        objects.hold(key(2), 500, false).unwrap();
        objects.hold(key(3), 500, false).unwrap();
        assert!(matches!(
            objects.hold(key(4), 1, false),
            Err(Overdraft::Count { limit: 3 })
        ));
    }

    #[test]
    fn an_object_keeps_its_size_and_what_was_taken_back_is_not_the_workers() {
        let mut objects = objects();
        objects.hold(key(1), 10, false).unwrap();
        let resized = objects.hold(key(1), 11, false);
        assert!(matches!(resized, Err(Overdraft::Resized)));
        objects.revoke(key(1));
        assert!(objects.is_revoked(key(1)) && !objects.is_revoked(key(2)));
        let foreign = objects.hold(key(1), 10, true);
        assert!(matches!(foreign, Err(Overdraft::Foreign)));
        objects.release(key(1));
        objects.hold(key(1), 10, true).unwrap();
        assert!(!objects.is_revoked(key(1)));
    }

    #[test]
    fn of_many_objects_those_that_are_gone_are_forgotten() {
        let mut objects = objects();
        let mut adopt = || {
            let memory = SharedMemory::new("test", PAGE_BYTES, PageSize::Small).unwrap();
            let file = memory.file().try_clone_to_owned().unwrap();
            objects.adopt(file, 0).unwrap().0
        };
        let mut living: Vec<_> = (0..SWEEP).map(|_| adopt()).collect();
        living.truncate(1);
        living.push(adopt());
        assert_eq!(objects.known.len(), living.len());
    }
}
