//! Doorbells: guest stores that wake a consumer inside the hypervisor, without an exit to this
//! process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use causeway_protocol::registers::doorbells::{COUNT, FIRST, STRIDE};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vmm_sys_util::eventfd::EventFd;

use super::signal_count::SignalCount;
use crate::hypervisor::IoEvents;

/// The places of doorbells in a BAR of a PCI function.
#[derive(Clone, Copy, Debug)]
pub struct DoorbellPlaces {
    /// Offset of the first doorbell in the BAR, in bytes.
    pub first: u64,
    /// Distance in bytes from one doorbell to the next.
    pub stride: u64,
    /// Number of doorbells.
    pub count: u32,
}

/// The places in BAR 4 of the Causeway function.
const OF_BAR_4: DoorbellPlaces = DoorbellPlaces {
    first: FIRST,
    stride: STRIDE,
    count: COUNT,
};

/// The doorbells in a BAR of a PCI function. Each can be bound to an event (an eventfd), and a
/// guest's store to the doorbell then signals the event, which wakes the consumer of a command
/// buffer. While the BAR has a guest-physical address, KVM itself signals the event (ioeventfd), so
/// that the store causes no exit to this process.
pub struct Doorbells {
    places: DoorbellPlaces,
    events: Arc<dyn IoEvents>,
    /// Whether [`Self::taken_by_kvm`] counts.
    is_counted: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Guest-physical address of the BAR, if the guest lets it be decoded.
    base: Option<u64>,
    bound: BTreeMap<u32, Bound>,
    /// Stores to doorbells that are no longer bound, which KVM took.
    taken_before: u64,
    /// Whether the count of a doorbell could not be read.
    is_unknown: bool,
}

/// The binding of a doorbell to an event.
struct Bound {
    event: Arc<EventFd>,
    /// The counter of `event`, and its value when the doorbell was bound; `None` if this
    /// object does not count signals, or the host does not tell the counter.
    counter: Option<(SignalCount, u64)>,
    /// Signals that came from [`Doorbells::ring`], after an exit.
    rung_here: u64,
}

impl Bound {
    fn to(event: Arc<EventFd>, is_counted: bool) -> Self {
        let count = || {
            let counter = SignalCount::of(&event).ok()?;
            let first = counter.read()?;
            Some((counter, first))
        };
        Self {
            counter: is_counted.then(count).flatten(),
            event,
            rung_here: 0,
        }
    }

    /// Returns how many stores KVM has taken since the doorbell was bound; `None` if unknown.
    fn taken(&self) -> Option<u64> {
        let (counter, first) = self.counter.as_ref()?;
        // A worker process has the event, too, and may read it, which resets it.
        let signals = counter.read()?.saturating_sub(*first);
        Some(signals.saturating_sub(self.rung_here))
    }
}

debug_by_name!(Doorbells);

impl Doorbells {
    /// Returns the doorbells in BAR 4 of the Causeway function. At first no doorbell is bound, and
    /// the BAR has no guest-physical address. `events` is the hypervisor interface through which
    /// events are registered.
    pub fn new(events: Arc<dyn IoEvents>) -> Self {
        Self {
            is_counted: true,
            ..Self::at(OF_BAR_4, events)
        }
    }

    /// Returns doorbells at `places` in a BAR of a PCI function other than Causeway's. At first no
    /// doorbell is bound, and the BAR has no guest-physical address. `events` is the hypervisor
    /// interface through which events are registered. Stores to these doorbells are not counted.
    pub fn at(places: DoorbellPlaces, events: Arc<dyn IoEvents>) -> Self {
        Self {
            places,
            events,
            is_counted: false,
            state: Mutex::default(),
        }
    }

    /// Binds doorbell `index` to `event`: a guest's store to the doorbell then signals the event.
    ///
    /// # Errors
    /// `EINVAL` if there is no such doorbell, `EBUSY` if it is bound, or the hypervisor's error if
    /// it does not register the event.
    pub fn bind(&self, index: u32, event: &EventFd) -> io::Result<()> {
        if index >= self.places.count {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut state = self.state.lock();
        if state.bound.contains_key(&index) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let event = Arc::new(event.try_clone()?);
        if let Some(base) = state.base {
            self.events.register(self.address(base, index), &event)?;
        }
        let bound = Bound::to(event, self.is_counted);
        state.bound.insert(index, bound);
        Ok(())
    }

    /// Returns how many stores to doorbells KVM has taken by itself, as the events' own counters
    /// say. `None` if that is not known: these doorbells are not counted, or the host tells no
    /// counter, for lack of `/proc`.
    ///
    /// A process that holds an event can change its counter: this process and, if the session is in
    /// a worker process, that one.
    pub fn taken_by_kvm(&self) -> Option<u64> {
        let state = self.state.lock();
        if state.is_unknown || !self.is_counted {
            return None;
        }
        let bound = state.bound.values().map(Bound::taken);
        bound
            .sum::<Option<u64>>()
            .map(|taken| taken + state.taken_before)
    }

    /// Ends the binding of doorbell `index` to an event. Does nothing if the doorbell is not bound.
    pub fn unbind(&self, index: u32) {
        let mut state = self.state.lock();
        let Some(bound) = state.bound.remove(&index) else {
            return;
        };
        if let Some(base) = state.base {
            self.unregister(base, index, &bound.event);
        }
        match bound.taken() {
            Some(taken) => state.taken_before += taken,
            None => state.is_unknown = true,
        }
    }

    /// Signals the event of doorbell `index` in place of KVM: a guest's store to a bound doorbell
    /// causes an exit if KVM has not registered the event. Returns false if the doorbell is not
    /// bound, or its event cannot be signalled.
    pub fn ring(&self, index: u32) -> bool {
        // A worker process may have filled the event, or may do so at any time: then the vCPU that
        // stores waits until it is kicked, but nobody waits for a lock that it holds.
        let event = self.state.lock().bound.get_mut(&index).map(|bound| {
            bound.rung_here += 1;
            Arc::clone(&bound.event)
        });
        event.is_some_and(|event| !has_room(&event) || event.write(1).is_ok())
    }

    /// Moves the doorbells to the BAR's new guest-physical address `base`; `None` if the guest has
    /// disabled the BAR.
    ///
    /// # Errors
    /// The hypervisor's error if it does not register an event. The hypervisor then signals no
    /// event, and each store to a doorbell causes an exit to this process.
    pub fn relocate(&self, base: Option<u64>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.base == base {
            return Ok(());
        }
        if let Some(old) = state.base.take() {
            for (&index, bound) in &state.bound {
                self.unregister(old, index, &bound.event);
            }
        }
        let Some(new) = base else { return Ok(()) };
        for (position, (&index, bound)) in state.bound.iter().enumerate() {
            let address = self.address(new, index);
            if let Err(e) = self.events.register(address, &bound.event) {
                for (&index, bound) in state.bound.iter().take(position) {
                    self.unregister(new, index, &bound.event);
                }
                return Err(e);
            }
        }
        state.base = base;
        Ok(())
    }

    fn unregister(&self, base: u64, index: u32, event: &EventFd) {
        if let Err(e) = self.events.unregister(self.address(base, index), event) {
            log::error!(
                "cannot unregister doorbell {index} of the BAR at address {base:#x} from KVM, so \
                 KVM may still take the guest's stores there as doorbells: {e}"
            );
        }
    }

    /// Returns the guest-physical address of a doorbell.
    fn address(&self, base: u64, index: u32) -> u64 {
        base + self.places.first + u64::from(index) * self.places.stride
    }
}

/// Returns whether a write to `event` would not wait. If it would, the event's reader has long been
/// woken.
#[allow(unsafe_code)] // The type gives only the number.
fn has_room(event: &EventFd) -> bool {
    // SAFETY: the event keeps its descriptor open for as long as it is borrowed.
    let event = unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) };
    let mut polled = [PollFd::from_borrowed_fd(event, PollFlags::OUT)];
    let polled_now = poll(&mut polled, Some(&Timespec::default()));
    polled_now.is_ok_and(|_| polled[0].revents().contains(PollFlags::OUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::fake::Fake;

    const BASE: u64 = 0xe020_0000;

    fn doorbells() -> (Doorbells, Arc<Fake>) {
        let fake = Arc::new(Fake::default());
        (Doorbells::new(Arc::clone(&fake) as _), fake)
    }

    fn event() -> EventFd {
        EventFd::new(libc::EFD_NONBLOCK).unwrap()
    }

    fn is_bound(doorbells: &Doorbells, index: u32) -> bool {
        doorbells.state.lock().bound.contains_key(&index)
    }

    fn addresses(fake: &Fake) -> Vec<u64> {
        fake.state().events.keys().copied().collect()
    }

    #[test]
    fn a_bound_doorbell_is_registered_while_the_bar_has_an_address() {
        let (doorbells, fake) = doorbells();
        doorbells.bind(3, &event()).unwrap();
        assert!(addresses(&fake).is_empty());
        doorbells.relocate(Some(BASE)).unwrap();
        doorbells.bind(0, &event()).unwrap();
        assert_eq!(addresses(&fake), [BASE + 0x2000, BASE + 0x5000]);
        doorbells.relocate(Some(0xf000_0000)).unwrap();
        assert_eq!(addresses(&fake), [0xf000_2000, 0xf000_5000]);
        doorbells.unbind(3);
        assert_eq!(addresses(&fake), [0xf000_2000]);
        doorbells.relocate(None).unwrap();
        assert!(addresses(&fake).is_empty());
        assert!(is_bound(&doorbells, 0) && !is_bound(&doorbells, 3));
    }

    #[test]
    fn what_cannot_be_bound_is_refused() {
        let (doorbells, fake) = doorbells();
        doorbells.relocate(Some(BASE)).unwrap();
        let code = |r: io::Result<()>| r.unwrap_err().raw_os_error();
        assert_eq!(code(doorbells.bind(COUNT, &event())), Some(libc::EINVAL));
        doorbells.bind(1, &event()).unwrap();
        assert_eq!(code(doorbells.bind(1, &event())), Some(libc::EBUSY));
        fake.fail_after(0, libc::ENOSPC);
        assert_eq!(code(doorbells.bind(2, &event())), Some(libc::ENOSPC));
        assert!(!is_bound(&doorbells, 2));
        doorbells.unbind(2);
    }

    #[test]
    fn a_failed_relocation_leaves_nothing_registered() {
        let (doorbells, fake) = doorbells();
        for index in 0..3 {
            doorbells.bind(index, &event()).unwrap();
        }
        fake.fail_after(2, libc::ENOMEM);
        doorbells.relocate(Some(BASE)).unwrap_err();
        assert!(addresses(&fake).is_empty());
        doorbells.relocate(Some(BASE)).unwrap();
        assert_eq!(addresses(&fake).len(), 3);
    }

    #[test]
    fn a_store_that_reaches_the_process_rings_too() {
        let (doorbells, _) = doorbells();
        let event = event();
        doorbells.bind(7, &event).unwrap();
        assert!(doorbells.ring(7) && !doorbells.ring(8));
        assert_eq!(event.read().unwrap(), 1);
    }

    #[test]
    fn only_stores_that_kvm_takes_are_counted() {
        let (doorbells, _) = doorbells();
        let event = event();
        // As KVM does at a store.
        let store = || event.write(1).unwrap();
        store();
        doorbells.bind(7, &event).unwrap();
        assert_eq!(doorbells.taken_by_kvm(), Some(0), "not those before");
        store();
        store();
        assert!(doorbells.ring(7));
        assert_eq!(doorbells.taken_by_kvm(), Some(2), "not those of the VMM");
        doorbells.unbind(7);
        store();
        assert_eq!(doorbells.taken_by_kvm(), Some(2), "not those after");
        doorbells.bind(7, &event).unwrap();
        store();
        assert_eq!(doorbells.taken_by_kvm(), Some(3));
        assert_eq!(event.read().unwrap(), 6);
        assert_eq!(
            doorbells.taken_by_kvm(),
            Some(2),
            "never below what was kept"
        );
        let others = Doorbells::at(OF_BAR_4, Arc::new(Fake::default()));
        assert_eq!(others.taken_by_kvm(), None);
    }

    #[test]
    fn a_full_event_holds_no_store_up() {
        let (doorbells, _) = doorbells();
        let event = EventFd::new(0).unwrap();
        event.write(u64::MAX - 1).unwrap();
        doorbells.bind(0, &event).unwrap();
        assert!(doorbells.ring(0));
        assert_eq!(event.read().unwrap(), u64::MAX - 1);
    }
}
