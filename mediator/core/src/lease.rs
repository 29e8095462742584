//! Leases of the device: sessions in processes of their own take turns on it.
//!
//! Such sessions share no arbiter. A [`Lender`] (the VMM) lends the device to one of them at a
//! time, and each keeps to that itself: its consumers submit work only while the session has the
//! lease, and so little ahead that the device is soon done with it. A session that nobody has to
//! wait for is told so ([`LeaseOrder::Free`]) and asks for nothing: before each piece of work, its
//! consumers read one word of memory. One that keeps the device busy alone keeps its lease, too,
//! without a word to the lender, until the lender wants it back for another session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long a session without work keeps a lease that another one waits for. A program that waits
/// for each of its kernels is without work for some microseconds after each of them.
const LINGER: Duration = Duration::from_micros(100);

/// How many fences and timestamps a command buffer may submit without a lease since it had one.
/// Some belong to work of the last lease; a flood of them takes time of the device.
const SMALL_MAX: u32 = 16;

/// How long after a lease was wanted back at once the same is expected to come again.
const HURRY: Duration = Duration::from_millis(250);

/// What the lender tells a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOrder {
    /// The device may be used without a lease. That is how a session begins.
    Free,
    /// From now on, a lease is needed. The session reports the end of the work that it has under
    /// way as that of a lease with number 0.
    Ask,
    /// The session has the lease with this number.
    Grant(u32),
    /// The session is to give the lease back as soon as it has no work, and to submit nothing more
    /// after this time, which runs from when the order arrives.
    Return(Duration),
}

/// What a session tells the lender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseReport {
    /// It has work, and no lease. It says so once before each lease.
    Wanted,
    /// It submits nothing more of the lease with this number, and the device has begun the last of
    /// its work: another session may begin.
    Stopped(u32),
    /// It has no work under way of the lease with this number, which it has given back.
    Returned(u32),
}

/// Lends the device to sessions.
pub trait Lender: Send + Sync {
    /// Called with a lock of the session held, in the order in which things happen.
    fn tell(&self, report: LeaseReport);
}

/// The lease of one session.
#[derive(Default)]
pub(crate) struct Lease {
    /// A [`Mode`], which follows the state.
    mode: AtomicU32,
    /// Whether the lease is soon wanted back at once; follows the state.
    is_hurried: AtomicBool,
    /// A leaf lock.
    state: Mutex<State>,
    changed: Condvar,
}

/// What consumers look at before each piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Mode {
    Free = 0,
    Granted = 1,
    Held = 2,
}

#[derive(Default)]
struct State {
    lender: Option<Arc<dyn Lender>>,
    standing: Standing,
    /// Number of the lease that the session has, or had last.
    number: u32,
    /// Whether the lender knows that the session wants the next one.
    has_asked: bool,
    /// Command buffers with work under way.
    busy: u32,
    /// Those of them whose last work the device has begun, since the lease ended.
    ending: u32,
    /// Changes with each lease.
    turn: u64,
    /// When the last of them had none any more.
    idle_since: Option<Instant>,
    /// When nothing more may be submitted.
    due: Option<Instant>,
    /// When a lease was last wanted back at once, for a session with little work.
    hurried: Option<Instant>,
}

/// What a session may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// Everything, without a lease.
    #[default]
    Free,
    /// Nothing.
    None,
    /// Everything.
    Granted,
    /// Nothing, and the device has not begun the last of its work yet.
    Stopping,
    /// Nothing, and the device has begun the last of its work.
    Stopped,
}

impl Standing {
    fn mode(self) -> Mode {
        match self {
            Self::Free => Mode::Free,
            Self::Granted => Mode::Granted,
            Self::None | Self::Stopping | Self::Stopped => Mode::Held,
        }
    }
}

impl Lease {
    /// Names the lender, which hears what the session reports from now on.
    pub fn set_lender(&self, lender: Arc<dyn Lender>) {
        self.state.lock().lender = Some(lender);
    }

    /// Does what the lender says. An order that means nothing in the present state, because the two
    /// crossed on their way, is ignored.
    pub fn obey(&self, order: LeaseOrder) {
        let mut state = self.state.lock();
        match (order, state.standing) {
            (LeaseOrder::Free, _) => {
                state.has_asked = false;
                self.enter(&mut state, Standing::Free);
            }
            (LeaseOrder::Ask, Standing::Free) => {
                state.begin_turn(0);
                match state.busy {
                    0 => self.give_back(&mut state),
                    _ => self.enter(&mut state, Standing::Stopping),
                }
            }
            // Also while work of the last one is under way, which may wait for more.
            (
                LeaseOrder::Grant(number),
                Standing::None | Standing::Stopping | Standing::Stopped,
            ) => {
                state.idle_since = Some(Instant::now());
                state.begin_turn(number);
                state.has_asked = false;
                self.note_hurry(&state);
                self.enter(&mut state, Standing::Granted);
            }
            (LeaseOrder::Return(within), Standing::Granted) => {
                let now = Instant::now();
                state.due = Some(now + within);
                if within.is_zero() {
                    state.hurried = Some(now);
                }
            }
            (LeaseOrder::Ask | LeaseOrder::Grant(_) | LeaseOrder::Return(_), _) => {}
        }
    }

    /// Gives the lease back if it is time for that. Returns when to look again; `None` if only a
    /// new order can make that necessary.
    pub fn look(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let due = state.due?;
        let now = Instant::now();
        let lingers_until = state.idle_since.filter(|_| state.busy == 0);
        let lingers_until = lingers_until.map(|since| since + LINGER);
        if lingers_until.is_some_and(|until| until <= now) {
            self.give_back(&mut state);
            return None;
        }
        if now < due {
            return Some(lingers_until.map_or(due, |until| until.min(due)));
        }
        match state.busy {
            0 => self.give_back(&mut state),
            _ => self.enter(&mut state, Standing::Stopping),
        }
        None
    }

    /// Enters [`Standing::Stopped`] once the device has begun all that is left.
    fn stop_if_ending(&self, state: &mut State) {
        if state.standing == Standing::Stopping && state.ending >= state.busy {
            self.enter(state, Standing::Stopped);
            state.tell(LeaseReport::Stopped(state.number));
        }
    }

    fn note_hurry(&self, state: &State) {
        let hurried = state.hurried.filter(|since| since.elapsed() < HURRY);
        self.is_hurried.store(hurried.is_some(), Ordering::Release);
    }

    fn enter(&self, state: &mut State, standing: Standing) {
        state.standing = standing;
        state.due = None;
        self.mode.store(standing.mode() as u32, Ordering::Release);
        // Also those that wait without a lease ask again, if it is their session's turn to ask.
        self.changed.notify_all();
    }

    fn give_back(&self, state: &mut State) {
        self.enter(state, Standing::None);
        state.tell(LeaseReport::Returned(state.number));
    }

    fn is(&self, mode: Mode) -> bool {
        self.mode.load(Ordering::Acquire) == mode as u32
    }
}

impl State {
    fn begin_turn(&mut self, number: u32) {
        (self.number, self.ending) = (number, 0);
        self.turn += 1;
    }

    /// Tells the lender that a lease is wanted, unless it knows.
    fn ask(&mut self) {
        if !std::mem::replace(&mut self.has_asked, true) {
            self.tell(LeaseReport::Wanted);
        }
    }

    fn tell(&self, report: LeaseReport) {
        if let Some(lender) = &self.lender {
            lender.tell(report);
        }
    }
}

/// A command buffer as a user of its session's lease. A drop ends its use.
pub(crate) struct LeaseUser {
    lease: Arc<Lease>,
    /// Whether it counts among those with work under way.
    is_busy: bool,
    /// Since when it has had no work, if it still counts.
    lingers_since: Option<Instant>,
    /// Turn at whose end it counted as one whose last work the device has begun.
    ending: Option<u64>,
    /// Fences and timestamps that it may still submit without a lease.
    small_left: u32,
}

impl LeaseUser {
    pub fn new(lease: &Arc<Lease>) -> Self {
        Self {
            lease: Arc::clone(lease),
            is_busy: false,
            lingers_since: None,
            ending: None,
            small_left: SMALL_MAX,
        }
    }

    /// Returns whether others may be waiting for the device: then little is to be submitted ahead.
    pub fn is_metered(&self) -> bool {
        !self.lease.is(Mode::Free)
    }

    /// Returns whether another session may soon want the lease at once. Only for one that is
    /// metered.
    pub fn is_hurried(&self) -> bool {
        self.is_metered() && self.lease.is_hurried.load(Ordering::Acquire)
    }

    /// Returns whether this command buffer has work under way.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Returns whether the lender waits for the device to begin the last work of this command
    /// buffer.
    pub fn is_stopping(&self) -> bool {
        self.is_busy && self.lease.is(Mode::Held)
    }

    /// Notes that the device has begun the last work of this command buffer, which has submitted
    /// nothing since the lease ended.
    pub fn near_end(&mut self) {
        let mut state = self.lease.state.lock();
        if state.standing == Standing::Stopping && self.ending != Some(state.turn) {
            self.ending = Some(state.turn);
            state.ending += 1;
            self.lease.stop_if_ending(&mut state);
        }
    }

    /// Notes that the command buffer has a fence or a timestamp to submit. Returns whether it may
    /// do so now; if not, it needs a lease as for other work.
    pub fn begin_small(&mut self) -> bool {
        if !self.lease.is(Mode::Held) {
            return true;
        }
        let may = self.small_left != 0;
        self.small_left = self.small_left.saturating_sub(1);
        may
    }

    /// Notes that the command buffer has work. Returns whether it may submit it now; if not, the
    /// lender knows that it is wanted.
    pub fn begin(&mut self) -> bool {
        self.lingers_since = None;
        if self.is_busy && !self.lease.is(Mode::Held) {
            self.small_left = SMALL_MAX;
            return true;
        }
        let mut state = self.lease.state.lock();
        match state.standing {
            Standing::Free | Standing::Granted => {
                self.small_left = SMALL_MAX;
                state.busy += u32::from(!self.is_busy);
                self.is_busy = true;
                return true;
            }
            // Work under way of the last lease may wait for this.
            Standing::None | Standing::Stopping | Standing::Stopped => state.ask(),
        }
        false
    }

    /// Waits up to `patience` for the lease to change, unless the session has one.
    pub fn wait(&self, patience: Duration) {
        let mut state = self.lease.state.lock();
        if state.has_asked {
            self.lease.changed.wait_for(&mut state, patience);
        }
    }

    /// Waits up to `patience` for the end of the lease, unless the session has none. A lease may
    /// last until long after others were in a hurry; this notices.
    pub fn wait_for_end(&self, patience: Duration) {
        let mut state = self.lease.state.lock();
        if state.standing == Standing::Granted {
            self.lease.note_hurry(&state);
            self.lease.changed.wait_for(&mut state, patience);
        }
    }

    /// Notes that the command buffer has no work under way. Returns false if it is to say so again
    /// soon, because more work may come at once.
    pub fn rest(&mut self) -> bool {
        if !self.is_busy {
            return true;
        }
        let has_to_return = self.lease.is(Mode::Granted) && self.lease.state.lock().due.is_some();
        if has_to_return {
            let since = *self.lingers_since.get_or_insert_with(Instant::now);
            if since.elapsed() < LINGER {
                return false;
            }
        }
        self.end();
        true
    }

    /// Notes that the command buffer has no work under way, and that none will come at once.
    pub fn end(&mut self) {
        self.lingers_since = None;
        if !std::mem::take(&mut self.is_busy) {
            return;
        }
        let mut state = self.lease.state.lock();
        state.busy -= 1;
        if self.ending.take() == Some(state.turn) {
            state.ending -= 1;
        }
        if state.busy != 0 {
            return self.lease.stop_if_ending(&mut state);
        }
        if state.standing == Standing::Free {
            return;
        }
        state.idle_since = Some(Instant::now());
        let is_over = matches!(state.standing, Standing::Stopping | Standing::Stopped);
        if is_over || state.due.is_some() {
            self.lease.give_back(&mut state);
        }
    }
}

impl Drop for LeaseUser {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
