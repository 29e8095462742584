//! The objects that launches have used last, found by handle without a lock of their own: they are
//! behind the ring's, which a launch takes anyway.
//!
//! An object that ends is taken out of its table first, and then out of here. The second takes the
//! ring's lock, so that a launch is either earlier in the ring than what follows, or finds nothing.

use std::sync::Arc;

use crate::error::Answer;

/// Handles are multiples of this.
const HANDLE_STEP: usize = 16;

/// Up to `PLACES` objects. A handle has one place, which it shares with others.
pub(crate) struct Recent<T, const PLACES: usize>([Option<(usize, Arc<T>)>; PLACES]);

impl<T, const PLACES: usize> Default for Recent<T, PLACES> {
    fn default() -> Self {
        Self([const { None }; PLACES])
    }
}

impl<T, const PLACES: usize> Recent<T, PLACES> {
    /// Returns the object of a handle, which `look_up` finds if it is not here. What was in its
    /// place goes to `replaced`, which the caller drops once the ring's lock is free: the last of a
    /// module's kernels unloads the module, and that waits for the ring.
    #[inline]
    pub(crate) fn find(
        &mut self,
        handle: usize,
        replaced: &mut Option<Arc<T>>,
        look_up: impl FnOnce(usize) -> Answer<Arc<T>>,
    ) -> Answer<&Arc<T>> {
        let place = &mut self.0[handle / HANDLE_STEP % PLACES];
        if !matches!(place, Some((known, _)) if *known == handle) {
            let found = look_up(handle)?;
            *replaced = place.take().map(|(_, object)| object);
            *place = Some((handle, found));
        }
        match place {
            Some((_, object)) => Ok(object),
            None => unreachable!("the place was filled above"),
        }
    }

    /// Takes out the objects for which `is_ended` holds. The caller drops them once the ring's lock
    /// is free.
    pub(crate) fn forget(&mut self, is_ended: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let ended = |place: &mut Option<(usize, Arc<T>)>| {
            let taken = place.take_if(|(_, object)| is_ended(object));
            taken.map(|(_, object)| object)
        };
        self.0.iter_mut().filter_map(ended).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    /// Finds `handle` in `recent`, behind which there is a table with `value` or nothing.
    fn find(recent: &mut Recent<u32, 4>, handle: usize, value: Option<u32>) -> Answer<u32> {
        let mut replaced = None;
        let look_up = |_| value.map(Arc::new).ok_or(Code::INVALID_HANDLE);
        recent
            .find(handle, &mut replaced, look_up)
            .map(|found| **found)
    }

    #[test]
    fn a_handle_is_looked_up_once() {
        let mut recent = Recent::default();
        assert_eq!(find(&mut recent, 16, Some(1)), Ok(1));
        assert_eq!(find(&mut recent, 16, None), Ok(1));
        assert_eq!(find(&mut recent, 32, Some(2)), Ok(2));
        assert_eq!(find(&mut recent, 16, None), Ok(1), "another place");
    }

    #[test]
    fn another_handle_of_the_same_place_is_another_object() {
        let mut recent = Recent::default();
        assert_eq!(find(&mut recent, 16, Some(1)), Ok(1));
        // A forged handle of the same place leaves the object there.
        for forged in [17, 31, 16 + 64, 16 + (1 << 40)] {
            assert_eq!(find(&mut recent, forged, None), Err(Code::INVALID_HANDLE));
        }
        assert_eq!(find(&mut recent, 16, None), Ok(1));
        let mut replaced = None;
        let found = recent.find(16 + 64, &mut replaced, |_| Ok(Arc::new(3)));
        assert_eq!(found.map(|found| **found), Ok(3));
        assert_eq!(replaced.as_deref(), Some(&1), "given to the caller");
        assert_eq!(find(&mut recent, 16, None), Err(Code::INVALID_HANDLE));
    }

    #[test]
    fn an_object_that_has_ended_is_not_found() {
        let mut recent = Recent::default();
        find(&mut recent, 16, Some(1)).unwrap();
        find(&mut recent, 32, Some(2)).unwrap();
        let ended = recent.forget(|value| *value == 1);
        assert_eq!(ended.iter().map(|value| **value).collect::<Vec<_>>(), [1]);
        assert_eq!(find(&mut recent, 16, None), Err(Code::INVALID_HANDLE));
        assert_eq!(find(&mut recent, 32, None), Ok(2));
    }
}
