//! Queues: a thread each, which does one piece of work after the other, after what each has to wait
//! for.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use causeway_software::Multiprocessors;

use crate::driver::{Driver, lock};
use crate::error::{Answer, Code};
use crate::work::{Executor, Work};

/// A position in a queue: everything up to it.
#[derive(Clone)]
pub(crate) struct Position {
    pub(crate) queue: Arc<Queue>,
    pub(crate) number: u64,
}

/// What a stream has to do.
pub(crate) struct Queue {
    progress: Mutex<Progress>,
    /// Something was submitted, or done.
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    pending: VecDeque<Item>,
    submitted: u64,
    completed: u64,
    ending: bool,
}

struct Item {
    after: Vec<Position>,
    work: Work,
}

impl Queue {
    /// A queue for a device, whose kernels find themselves on some of its multiprocessors.
    pub(crate) fn start(
        driver: &'static Driver,
        device: usize,
        multiprocessors: Multiprocessors,
        priority: i32,
    ) -> Answer<Arc<Self>> {
        let queue = Arc::new(Self {
            progress: Mutex::default(),
            changed: Condvar::new(),
        });
        let executor = Executor {
            driver,
            device,
            engine: driver.devices[device].space.queue_on(multiprocessors),
            priority: Some(priority),
        };
        let own = Arc::clone(&queue);
        std::thread::Builder::new()
            .name(String::from("standin-stream"))
            .spawn(move || own.run(executor))
            .map_err(|_| Code::OUT_OF_MEMORY)?;
        Ok(queue)
    }

    fn run(&self, mut executor: Executor) {
        while let Some(item) = self.next() {
            for position in &item.after {
                position.wait();
            }
            executor.execute(&item.work);
            // What the work holds, such as staging memory, goes before the work counts as done.
            drop(item);
            lock(&self.progress).completed += 1;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Item> {
        let mut progress = lock(&self.progress);
        loop {
            if let Some(item) = progress.pending.pop_front() {
                return Some(item);
            }
            if progress.ending {
                return None;
            }
            progress = self
                .changed
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Submits work that begins after what was submitted before, and after `after`.
    pub(crate) fn submit(self: &Arc<Self>, work: Work, after: Vec<Position>) -> Position {
        let mut progress = lock(&self.progress);
        progress.submitted += 1;
        progress.pending.push_back(Item { after, work });
        let number = progress.submitted;
        drop(progress);
        self.changed.notify_all();
        Position {
            queue: Arc::clone(self),
            number,
        }
    }

    /// What has been submitted so far.
    pub(crate) fn end(self: &Arc<Self>) -> Position {
        Position {
            queue: Arc::clone(self),
            number: lock(&self.progress).submitted,
        }
    }

    /// Lets the thread end once everything is done.
    pub(crate) fn finish(&self) {
        lock(&self.progress).ending = true;
        self.changed.notify_all();
    }
}

impl Position {
    /// Whether everything up to here is done.
    pub(crate) fn is_done(&self) -> bool {
        lock(&self.queue.progress).completed >= self.number
    }

    /// Returns when everything up to here is done.
    pub(crate) fn wait(&self) {
        let mut progress = lock(&self.queue.progress);
        while progress.completed < self.number {
            progress = self
                .queue
                .changed
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
