//! Memory objects that a worker uses in the VMM, and how many bytes of them may be its own.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use causeway_mediator::Quota;
use causeway_memory::{MemoryError, SharedMemory};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::wire::page_size_from_wire;

/// Number of memory objects from which the map is searched for those that no longer exist.
const SWEEP: usize = 64;
/// Descriptors that memory of workers leaves free in the VMM, for its messages to and from all
/// workers.
const RESERVE: u64 = 64;

/// What a memory object is known by while it exists: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectKey {
    device: u64,
    inode: u64,
}

impl ObjectKey {
    /// Returns the key of the object behind a descriptor.
    pub fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let status = rustix::fs::fstat(file)?;
        Ok(Self {
            device: status.st_dev,
            inode: status.st_ino,
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
}

/// The objects that one worker uses in the VMM: placed in the aperture, under a command buffer, or
/// exported. An object counts once, with its whole size, however often it is used.
pub(super) struct Objects {
    bytes_max: u64,
    count_max: u64,
    /// Of the objects that are the worker's own.
    own_bytes: u64,
    used: HashMap<ObjectKey, Use>,
    /// Each takes one descriptor, however often it is placed.
    known: HashMap<ObjectKey, Weak<SharedMemory>>,
}

struct Use {
    own_bytes: u64,
    count: u64,
}

impl Objects {
    pub fn new(quota: &Quota) -> Self {
        Self {
            bytes_max: quota.memory_bytes,
            count_max: quota.allocations,
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
        if let Some(known) = self.known.get(&key).and_then(Weak::upgrade)
            && known.bytes() == memory.bytes()
        {
            return Ok((known, key));
        }
        if self.known.len() >= SWEEP && self.known.len().is_power_of_two() {
            self.known.retain(|_, memory| memory.strong_count() != 0);
        }
        let memory = Arc::new(memory);
        self.known.insert(key, Arc::downgrade(&memory));
        Ok((memory, key))
    }

    /// Counts one more use of an object, of which `own_bytes` are the worker's own: 0 if another
    /// worker has exported it.
    pub fn hold(&mut self, key: ObjectKey, own_bytes: u64) -> Result<(), Overdraft> {
        if let Some(known) = self.used.get_mut(&key) {
            known.count += 1;
            return Ok(());
        }
        let (used, limit) = (self.own_bytes, self.bytes_max);
        let sum = used.checked_add(own_bytes).filter(|sum| *sum <= limit);
        let bytes = own_bytes;
        let sum = sum.ok_or(Overdraft::Bytes { bytes, used, limit })?;
        if self.used.len() as u64 >= self.count_max {
            let limit = self.count_max;
            return Err(Overdraft::Count { limit });
        }
        self.own_bytes = sum;
        self.used.insert(
            key,
            Use {
                own_bytes,
                count: 1,
            },
        );
        Ok(())
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

    fn key(inode: u64) -> ObjectKey {
        ObjectKey { device: 1, inode }
    }

    fn objects() -> Objects {
        Objects::new(&Quota {
            memory_bytes: 100,
            allocations: 3,
            ..Quota::default()
        })
    }

    #[test]
    fn an_object_counts_once_until_its_last_use_ends() {
        let mut objects = objects();
        objects.hold(key(1), 60).unwrap();
        objects.hold(key(1), 60).unwrap();
        assert!(matches!(
            objects.hold(key(2), 41),
            Err(Overdraft::Bytes {
                bytes: 41,
                used: 60,
                limit: 100
            })
        ));
        objects.release(key(1));
        assert!(objects.hold(key(2), 41).is_err());
        objects.release(key(1));
        objects.hold(key(2), 41).unwrap();
        assert!(objects.hold(key(3), u64::MAX).is_err());
    }

    #[test]
    fn objects_of_others_count_but_not_their_bytes() {
        let mut objects = objects();
        objects.hold(key(1), 100).unwrap();
        objects.hold(key(2), 0).unwrap();
        objects.hold(key(3), 0).unwrap();
        assert!(matches!(
            objects.hold(key(4), 0),
            Err(Overdraft::Count { limit: 3 })
        ));
    }
}
