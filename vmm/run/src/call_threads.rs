//! Threads that make calls for others, because their rights differ.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use parking_lot::Mutex;

type Call<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Threads that make calls for others. They have the rights of the thread that has started them,
/// unless a call changes these, and end when this is dropped. Calls live for `'a` at least.
#[derive(Debug)]
pub struct CallThreads<'a> {
    calls: Sender<Call<'a>>,
    /// The thread of a scope.
    thread: Option<ScopedJoinHandle<'a, ()>>,
}

/// A call under way.
#[derive(Debug)]
pub struct Pending<T>(Receiver<std::thread::Result<T>>);

impl CallThreads<'static> {
    /// Starts `count` threads with the name `name`: so many calls are made at a time, and others
    /// wait. The first one calls `begin` and then starts the others, which so have the rights that
    /// `begin` leaves. Waits for the outcome of `begin`, and returns it.
    ///
    /// # Errors
    /// The kernel's error, if the first thread cannot be started.
    pub fn start<T: Send + 'static>(
        name: &'static str,
        count: usize,
        begin: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<(Self, T)> {
        let (calls, waiting) = channel();
        let (told, begun) = sync_channel(1);
        let waiting = Arc::new(Mutex::new(waiting));
        let first = Builder::new().name(name.to_owned());
        first.spawn(move || {
            // It waits for that.
            let _ = told.send(begin());
            for _ in 1..count {
                let waiting = Arc::clone(&waiting);
                let other = Builder::new().name(name.to_owned());
                if let Err(e) = other.spawn(move || make(&waiting)) {
                    log::warn!("there are fewer threads `{name}` than planned: {e}");
                }
            }
            make(&waiting);
        })?;
        let outcome = begun.recv().map_err(io::Error::other)?;
        let thread = None;
        Ok((Self { calls, thread }, outcome))
    }
}

impl<'a> CallThreads<'a> {
    /// Starts one thread without a name, which logs take for the first thread: that waits for it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start_in(scope: &'a Scope<'a, '_>) -> io::Result<Self> {
        let (calls, waiting) = channel();
        let waiting = Mutex::new(waiting);
        let thread = Builder::new().spawn_scoped(scope, move || make(&waiting))?;
        Ok(Self {
            calls,
            thread: Some(thread),
        })
    }

    /// Ends a thread that [`Self::start_in`] has started, and waits for its end.
    pub fn end(self) {
        let Self { calls, thread } = self;
        drop(calls);
        let _ = thread.map(ScopedJoinHandle::join);
    }

    /// Makes a call, and waits for its end. A panic of the call is one of the caller.
    pub fn call<T: Send + 'a>(&self, call: impl FnOnce() -> T + Send + 'a) -> T {
        self.begin(call).wait()
    }

    /// Begins a call, and does not wait for its end.
    pub fn begin<T: Send + 'a>(&self, call: impl FnOnce() -> T + Send + 'a) -> Pending<T> {
        let (answer, outcome) = sync_channel(1);
        let call = move || {
            // Nobody may want to know.
            let _ = answer.send(catch_unwind(AssertUnwindSafe(call)));
        };
        let sent = self.calls.send(Box::new(call)).is_ok();
        assert!(sent, "the threads end only after their owner");
        Pending(outcome)
    }
}

impl<T> Pending<T> {
    /// Waits for the end of the call. A panic of the call is one of the caller.
    pub fn wait(self) -> T {
        match self.0.recv() {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => unreachable!("each call sends its outcome"),
        }
    }
}

/// Makes calls until nobody can ask for any more.
fn make(waiting: &Mutex<Receiver<Call<'_>>>) {
    loop {
        let next = waiting.lock().recv();
        let Ok(call) = next else { return };
        call();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_made_by_the_threads_and_their_panics_by_the_caller() {
        let threads = CallThreads::start("driver", 1, || {}).unwrap().0;
        let name = || std::thread::current().name().map(str::to_owned);
        assert_eq!(threads.call(name).as_deref(), Some("driver"));
        let panicking = AssertUnwindSafe(|| threads.call(|| panic!("in the call")));
        let panic = catch_unwind(panicking).unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "in the call");
        assert_eq!(threads.call(|| 7), 7, "they go on");
    }

    #[test]
    fn a_call_that_waits_leaves_the_other_threads_to_others() {
        let threads = CallThreads::start("driver", 2, || {}).unwrap().0;
        let (go, wait) = channel();
        let first = threads.begin(move || wait.recv());
        // It makes the first one go on.
        threads.call(move || go.send(7)).unwrap();
        assert_eq!(first.wait(), Ok(7));
    }

    #[test]
    fn a_thread_of_a_scope_works_with_what_is_borrowed() {
        let mut seen = Vec::new();
        std::thread::scope(|scope| {
            let threads = CallThreads::start_in(scope).unwrap();
            threads.call(|| seen.push(7));
        });
        assert_eq!(seen, [7]);
    }
}
