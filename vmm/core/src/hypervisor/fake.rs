//! A hypervisor that only keeps books, as strictly as KVM does, and fails when told to.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;

use parking_lot::{Mutex, MutexGuard};
use vmm_sys_util::eventfd::EventFd;

use super::{IoEvents, MemorySlots, Slot};

/// What was asked of the fake, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Set(u32),
    Delete(u32),
    Register(u64),
    Unregister(u64),
}

#[derive(Default)]
pub(crate) struct State {
    pub slots: BTreeMap<u32, Slot>,
    /// Guest-physical address of each registered event, with the descriptor of its eventfd.
    pub events: BTreeMap<u64, i32>,
    pub calls: Vec<Call>,
    failures: VecDeque<Option<i32>>,
}

#[derive(Default)]
pub(crate) struct Fake(Mutex<State>);

impl Fake {
    /// Makes one call of this fake hypervisor fail with `errno`: the one that follows `skip`
    /// successful calls.
    pub fn fail_after(&self, skip: usize, errno: i32) {
        let mut state = self.state();
        state.failures.clear();
        state.failures.extend(std::iter::repeat_n(None, skip));
        state.failures.push_back(Some(errno));
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Books of one call; the injected failure, if it is due.
    fn begin(&self, call: Call) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.calls.push(call);
        match state.failures.pop_front().flatten() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(state),
        }
    }
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl MemorySlots for Fake {
    #[allow(unsafe_code)] // Implements an unsafe method; does nothing with the addresses.
    unsafe fn set(&self, slot: Slot) -> io::Result<()> {
        let mut state = self.begin(Call::Set(slot.number))?;
        let unaligned = (slot.gpa | slot.host | slot.bytes) & 0xfff != 0;
        if unaligned || slot.bytes == 0 || slot.gpa.checked_add(slot.bytes).is_none() {
            return Err(errno(libc::EINVAL));
        }
        let overlaps = |s: &Slot| slot.gpa < s.gpa + s.bytes && s.gpa < slot.gpa + slot.bytes;
        if state.slots.contains_key(&slot.number) || state.slots.values().any(overlaps) {
            return Err(errno(libc::EEXIST));
        }
        state.slots.insert(slot.number, slot);
        Ok(())
    }

    fn delete(&self, number: u32) -> io::Result<()> {
        let removed = self.begin(Call::Delete(number))?.slots.remove(&number);
        removed.map(drop).ok_or_else(|| errno(libc::EINVAL))
    }
}

impl IoEvents for Fake {
    fn register(&self, address: u64, event: &EventFd) -> io::Result<()> {
        let mut state = self.begin(Call::Register(address))?;
        if state.events.contains_key(&address) {
            return Err(errno(libc::EEXIST));
        }
        state.events.insert(address, event.as_raw_fd());
        Ok(())
    }

    fn unregister(&self, address: u64, _event: &EventFd) -> io::Result<()> {
        let removed = self
            .begin(Call::Unregister(address))?
            .events
            .remove(&address);
        removed.map(drop).ok_or_else(|| errno(libc::ENOENT))
    }
}
