//! Threads that call a driver for threads that are confined.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use parking_lot::Mutex;

type Call = Box<dyn FnOnce() + Send>;

/// Threads that make calls for others. They have the rights of the thread that has started them,
/// and end when this is dropped.
#[derive(Debug)]
pub struct DriverThreads(Sender<Call>);

impl DriverThreads {
    /// Starts `count` threads with the name `name`: so many calls are made at a time, and others
    /// wait.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start(name: &str, count: usize) -> io::Result<Self> {
        let (calls, waiting) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..count {
            let waiting = Arc::clone(&waiting);
            let builder = std::thread::Builder::new().name(name.to_owned());
            builder.spawn(move || make(&waiting))?;
        }
        Ok(Self(calls))
    }

    /// Makes a call, and waits for its end. A panic of the call is one of the caller.
    pub fn call<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, outcome) = sync_channel(1);
        let call = move || {
            // The caller waits.
            let _ = answer.send(catch_unwind(AssertUnwindSafe(call)));
        };
        let sent = self.0.send(Box::new(call)).is_ok();
        assert!(sent, "the threads end only after their owner");
        match outcome.recv() {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => unreachable!("each call sends its outcome"),
        }
    }
}

/// Makes calls until nobody can ask for any more.
fn make(waiting: &Mutex<Receiver<Call>>) {
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
        let threads = DriverThreads::start("driver", 1).unwrap();
        let name = || std::thread::current().name().map(str::to_owned);
        assert_eq!(threads.call(name).as_deref(), Some("driver"));
        let panicking = AssertUnwindSafe(|| threads.call(|| panic!("in the call")));
        let panic = catch_unwind(panicking).unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "in the call");
        assert_eq!(threads.call(|| 7), 7, "they go on");
    }

    #[test]
    fn a_call_that_waits_leaves_the_other_threads_to_others() {
        let threads = DriverThreads::start("driver", 2).unwrap();
        let (go, wait) = channel();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| threads.call(move || wait.recv()));
            // It makes the first one go on.
            threads.call(move || go.send(7)).unwrap();
            assert_eq!(first.join().unwrap(), Ok(7));
        });
    }
}
