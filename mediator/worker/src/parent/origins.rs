//! Which worker has exported which memory object, also when the export has ended.
//!
//! A worker that a guest has taken over keeps the descriptors of what it has once imported, and can
//! send them to the VMM as its own memory. The VMM has to know that they are not.

use std::collections::{HashMap, VecDeque};

use causeway_mediator::share::TokenBytes;

use super::objects::ObjectKey;

/// Ended exports that are remembered of each worker. A worker that has exported more objects than
/// this protects the oldest no longer; by then it has most likely freed them.
const PAST_MAX: usize = 1 << 16;

/// The objects that workers have exported. After the end of its owner, an object is nobody's.
#[derive(Default)]
pub(super) struct Origins {
    by_object: HashMap<ObjectKey, Origin>,
    /// By owner, the objects whose last export has ended, oldest first.
    past: HashMap<u64, VecDeque<ObjectKey>>,
}

struct Origin {
    owner: u64,
    /// Size of the object when it was first exported.
    bytes: u64,
    /// Of its present exports.
    tokens: Vec<TokenBytes>,
    /// Whether it is among the past ones.
    is_past: bool,
}

impl Origins {
    /// Adds an export of `object`, which has this many bytes, by `owner`. Returns false if another
    /// worker has exported it.
    #[must_use]
    pub fn add(&mut self, object: (ObjectKey, u64), owner: u64, token: TokenBytes) -> bool {
        let (object, bytes) = object;
        let origin = self.by_object.entry(object).or_insert_with(|| Origin {
            owner,
            bytes,
            tokens: Vec::new(),
            is_past: false,
        });
        if origin.owner != owner {
            return false;
        }
        origin.tokens.push(token);
        true
    }

    /// Returns the tokens of the present exports of `object`, and its size; `None` if no other
    /// worker than `worker` has exported it.
    pub fn of_another(&self, object: ObjectKey, worker: u64) -> Option<(&[TokenBytes], u64)> {
        let origin = self.by_object.get(&object);
        let other = origin.filter(|origin| origin.owner != worker)?;
        Some((&other.tokens, other.bytes))
    }

    /// Removes an export of `object`.
    pub fn end(&mut self, object: ObjectKey, token: &TokenBytes) {
        let Some(origin) = self.by_object.get_mut(&object) else {
            return;
        };
        origin.tokens.retain(|known| known != token);
        if !origin.tokens.is_empty() || std::mem::replace(&mut origin.is_past, true) {
            return;
        }
        let past = self.past.entry(origin.owner).or_default();
        past.push_back(object);
        if past.len() > PAST_MAX
            && let Some(oldest) = past.pop_front()
        {
            self.forget(oldest);
        }
    }

    /// Removes an object, unless it has been exported again.
    fn forget(&mut self, object: ObjectKey) {
        if let Some(origin) = self.by_object.get_mut(&object) {
            origin.is_past = false;
            if origin.tokens.is_empty() {
                self.by_object.remove(&object);
            }
        }
    }

    /// Removes everything of a worker that has ended.
    pub fn end_all(&mut self, owner: u64) {
        self.past.remove(&owner);
        self.by_object.retain(|_, origin| origin.owner != owner);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const ONE: TokenBytes = [1; 32];
    const OTHER: TokenBytes = [2; 32];

    fn object() -> ObjectKey {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        ObjectKey::of(file.as_fd()).unwrap()
    }

    #[test]
    fn an_object_stays_its_owners_when_its_exports_have_ended() {
        let (mut origins, object) = (Origins::default(), object());
        assert!(origins.of_another(object, 2).is_none());
        assert!(origins.add((object, 9), 1, ONE) && origins.add((object, 8), 1, OTHER));
        assert!(!origins.add((object, 9), 2, OTHER), "it is another's");
        assert_eq!(origins.of_another(object, 2), Some((&[ONE, OTHER][..], 9)));
        assert!(origins.of_another(object, 1).is_none());
        origins.end(object, &ONE);
        assert_eq!(origins.of_another(object, 2), Some((&[OTHER][..], 9)));
        origins.end(object, &OTHER);
        assert_eq!(origins.of_another(object, 2), Some((&[][..], 9)));
        origins.end_all(1);
        assert!(origins.of_another(object, 2).is_none());
    }

    #[test]
    fn the_oldest_of_many_are_forgotten_but_for_those_that_are_exported() {
        let mut origins = Origins::default();
        let (exported, ended) = (object(), object());
        for object in [exported, ended] {
            assert!(origins.add((object, 9), 1, ONE));
            origins.end(object, &ONE);
        }
        assert!(origins.add((exported, 9), 1, OTHER));
        for _ in 0..PAST_MAX {
            assert!(origins.of_another(ended, 2).is_some(), "there is room");
            let object = object();
            assert!(origins.add((object, 9), 1, ONE));
            origins.end(object, &ONE);
        }
        assert!(origins.of_another(exported, 2).is_some());
        assert!(origins.of_another(ended, 2).is_none());
    }
    #[test]
    fn an_object_that_is_exported_again_and_again_counts_once() {
        let mut origins = Origins::default();
        let (first, again) = (object(), object());
        let mut come_and_go = |object| {
            assert!(origins.add((object, 9), 1, ONE));
            origins.end(object, &ONE);
        };
        come_and_go(first);
        (0..=PAST_MAX).for_each(|_| come_and_go(again));
        assert!(origins.of_another(first, 2).is_some());
    }
}
