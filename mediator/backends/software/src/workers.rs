//! Host threads that run blocks, shared by all sessions of a back end.
//!
//! The thread that submits a launch works on it too: a kernel of one session that never ends may
//! keep every worker busy, but not the submitting thread of another session.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::exec::{self, Launch, LaunchOutcome, ThreadArena};

/// How long a worker stays with one launch before it looks whether others wait.
const TURN: Duration = Duration::from_millis(20);

thread_local! {
    static ARENA: RefCell<ThreadArena> = RefCell::default();
}

/// Host threads that execute kernels for all address spaces of a back end.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There may be work.
    wake: Condvar,
    /// A launch has lost its last helper.
    alone: Condvar,
}

/// A launch that workers may help with.
#[derive(Debug)]
struct Entry {
    launch: Arc<Launch>,
    helpers: usize,
    helpers_max: usize,
}

/// A worker's hold on a launch, and on the mappings that the launch sees.
struct Helper<'s> {
    shared: &'s Shared,
    launch: Option<Arc<Launch>>,
}

#[derive(Debug, Default)]
struct State {
    launches: Vec<Entry>,
    turn: usize,
    ending: bool,
}

impl Entry {
    fn wants_help(&self) -> bool {
        self.helpers < self.helpers_max && self.launch.has_blocks()
    }
}

impl Workers {
    /// Starts `count` threads. With none, the threads that submit launches work alone.
    pub(crate) fn start(count: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let threads = (0..count).filter_map(|number| {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("gpu-core-{number}"));
            builder
                .spawn(move || work(&shared))
                .inspect_err(|e| {
                    log::warn!(
                        "cannot start one of the threads that execute GPU kernels, so kernels run \
                         slower: {e}"
                    );
                })
                .ok()
        });
        let threads = threads.collect();
        Self { shared, threads }
    }

    /// Runs a launch to its end, on this thread and on idle workers: on `units` threads at most.
    /// When this returns, no worker holds the launch: memory that is freed next is free, and no
    /// longer charged to its owner.
    pub(crate) fn run(&self, launch: &Arc<Launch>, units: u64) -> LaunchOutcome {
        let helpers = match launch.is_together() {
            true => 0,
            false => {
                let helpers = launch.blocks().min(units).saturating_sub(1);
                usize::try_from(helpers).unwrap_or(usize::MAX)
            }
        };
        let shared = helpers.min(self.threads.len()) != 0;
        if shared {
            self.shared.state.lock().launches.push(Entry {
                launch: Arc::clone(launch),
                helpers: 0,
                helpers_max: helpers,
            });
            if helpers < self.threads.len() {
                for _ in 0..helpers {
                    self.shared.wake.notify_one();
                }
            } else {
                self.shared.wake.notify_all();
            }
        }
        ARENA.with_borrow_mut(|arena| exec::work(launch, arena, None));
        if shared {
            self.shared.withdraw(launch);
        }
        launch.wait(self.threads.len() as u64 + 1)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.state.lock().ending = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!(
                    "a thread of the software back end, which executes GPU kernels, panicked; this \
                     is a bug in Causeway"
                );
            }
        }
    }
}

impl Shared {
    /// Removes a launch without blocks from the list, once its last helper has dropped it.
    fn withdraw(&self, launch: &Arc<Launch>) {
        let mut state = self.state.lock();
        while let Some(index) = state
            .launches
            .iter()
            .position(|e| Arc::ptr_eq(&e.launch, launch))
        {
            if state.launches[index].helpers == 0 {
                state.launches.remove(index);
                return;
            }
            self.alone.wait(&mut state);
        }
    }

    /// The next launch in turn that has blocks left; waits for one. `None` when the back end ends.
    fn next(&self) -> Option<Helper<'_>> {
        let mut state = self.state.lock();
        loop {
            if state.ending {
                return None;
            }
            let count = state.launches.len();
            let start = state.turn;
            let found = (0..count)
                .map(|step| (start + step) % count)
                .find(|index| state.launches[*index].wants_help());
            if let Some(index) = found {
                state.turn = index + 1;
                let entry = &mut state.launches[index];
                entry.helpers += 1;
                return Some(Helper {
                    shared: self,
                    launch: Some(Arc::clone(&entry.launch)),
                });
            }
            self.wake.wait(&mut state);
        }
    }
}

impl Drop for Helper<'_> {
    fn drop(&mut self) {
        let Some(launch) = self.launch.take() else {
            return;
        };
        // Drop the launch first, then say so. The entry keeps the launch, so that it is still known
        // by its address.
        let address = Arc::as_ptr(&launch);
        drop(launch);
        let mut state = self.shared.state.lock();
        let mut entries = state.launches.iter_mut();
        if let Some(entry) = entries.find(|e| Arc::as_ptr(&e.launch) == address) {
            entry.helpers -= 1;
            if entry.helpers == 0 {
                self.shared.alone.notify_all();
            }
        }
    }
}

fn work(shared: &Shared) {
    while let Some(helper) = shared.next() {
        if let Some(launch) = &helper.launch {
            ARENA.with_borrow_mut(|arena| exec::work(launch, arena, Some(TURN)));
        }
    }
}
