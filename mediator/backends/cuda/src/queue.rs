//! Queues: each has a CUDA stream. Work is under way when `submit` returns, except launches that
//! are gathered until `flush`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_mediator::backend::{
    BackendError, Crossed, Fault, Launch, LaunchOptions, Progress as HowFar, Pulse, Queue, Work,
};

use crate::ahead::Ahead;
use crate::driver::{CudaError, Event};
use crate::error::failed;
use crate::gather::Gatherer;
use crate::keep_alive::KeepAlive;
use crate::marks::Marks;
use crate::space::deferred::Progress;
use crate::space::state::{STOP_PATIENCE, SpaceState};
use crate::work::{Enqueuer, prepared};

/// How long a wait spins before it sleeps.
const SPIN: Duration = Duration::from_micros(100);
/// Shortest and longest sleep of a wait.
const SLEEP_MIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// Number of submissions between two looks at the marker.
const MARKER_PERIOD: u32 = 16;

/// A queue of an address space: feeds a CUDA stream with the work of one command buffer.
pub(crate) struct CudaQueue {
    enqueuer: Enqueuer,
    progress: Arc<Progress>,
    /// Why the queue refuses work, once a piece of work has failed.
    fault: Option<Fault>,
    marker: Marker,
    ahead: Ahead,
    marks: Marks,
    keep_alive: KeepAlive,
    gatherer: Gatherer,
    abandoned: bool,
}

/// An event in the stream, recorded when something waits for work under way. It tells how far the
/// GPU is on a queue that is never idle.
#[derive(Default)]
struct Marker {
    event: Option<Event>,
    /// The submission behind which the event was recorded.
    behind: Option<u64>,
    /// Submissions since the last look.
    since: u32,
}

impl CudaQueue {
    /// Returns a queue of the address space `state`, with a stream of its own that has `priority`.
    pub(crate) fn new(state: &Arc<SpaceState>, priority: i32) -> Result<Self, BackendError> {
        let enqueuer = Enqueuer::new(state, priority).map_err(|e| failed("create a stream", e))?;
        let progress = state.deferred.register();
        state.idle.add(&progress, &enqueuer.stream);
        Ok(Self {
            enqueuer,
            progress,
            fault: None,
            marker: Marker::default(),
            ahead: Ahead::default(),
            marks: Marks::default(),
            keep_alive: KeepAlive::default(),
            // Nodes of a graph do not say which multiprocessors they have; streams of a part do.
            gatherer: Gatherer::new(
                state.maker.green.is_none() && !state.gpu.config.single_launches,
            ),
            abandoned: false,
        })
    }

    fn state(&self) -> &Arc<SpaceState> {
        &self.enqueuer.state
    }

    /// Ends the queue: it refuses all further work with `fault`, which this returns.
    fn fail(&mut self, fault: Fault) -> Fault {
        self.fault = Some(fault.clone());
        fault
    }

    fn fail_of(&mut self, error: &CudaError) -> Fault {
        let fault = self.enqueuer.fault(error);
        self.fail(fault)
    }

    /// Returns the fault of this queue, or of another queue if that has poisoned the process.
    fn check(&mut self) -> Result<(), Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        match self.state().maker.context.driver().poison() {
            None => Ok(()),
            Some(error) => Err(self.fail_of(error)),
        }
    }

    /// Notes that the GPU has done all submissions.
    fn idle(&mut self) {
        self.marker.behind = None;
        self.ahead.idle();
        self.marks.idle();
        // An error is noticed elsewhere.
        let _ = self.enqueuer.crossings().idle();
        self.complete(self.progress.submitted());
    }

    /// Notes that the GPU has done all submissions up to `number`.
    fn complete(&mut self, number: u64) {
        self.progress.complete(number);
        self.keep_alive.release(number);
        self.state().collect();
    }

    /// Finds out by the marker how far the GPU is.
    fn advance(&mut self) -> Result<(), CudaError> {
        let marker = &mut self.marker;
        if let (Some(behind), Some(event)) = (marker.behind, &marker.event) {
            marker.since += 1;
            if marker.since < MARKER_PERIOD {
                return Ok(());
            }
            marker.since = 0;
            if event.has_happened()? {
                marker.behind = None;
                self.complete(behind);
            }
            return Ok(());
        }
        let event = match marker.event.take() {
            Some(event) => event,
            None => Event::new(self.enqueuer.stream.context())?,
        };
        self.enqueuer.stream.record(&event)?;
        self.marker = Marker {
            event: Some(event),
            behind: Some(self.progress.submitted()),
            since: 0,
        };
        Ok(())
    }

    /// Waits until the GPU has done all submissions. Abandons the queue if the session has ended
    /// and work goes on for longer than [`STOP_PATIENCE`].
    fn wait(&mut self) -> Result<(), CudaError> {
        // With marks, others may be waiting for the GPU.
        let sleep_max = match self.ahead.has_marks() {
            true => SLEEP_MIN,
            false => SLEEP_MAX,
        };
        self.wait_while(sleep_max, |queue| Ok(!queue.enqueuer.stream.is_idle()?))?;
        if !self.abandoned {
            self.idle();
        }
        Ok(())
    }

    /// Waits while `goes_on` returns true, and abandons the queue as [`Self::wait`] does. Sleeps
    /// for up to `sleep_max` at a time.
    fn wait_while(
        &mut self,
        sleep_max: Duration,
        mut goes_on: impl FnMut(&mut Self) -> Result<bool, CudaError>,
    ) -> Result<(), CudaError> {
        let begun = Instant::now();
        let mut stopped: Option<Instant> = None;
        let mut sleep = SLEEP_MIN;
        while goes_on(self)? {
            self.watch()?;
            if self.state().stop.load(Ordering::SeqCst) {
                let stopped = *stopped.get_or_insert_with(Instant::now);
                if stopped.elapsed() > STOP_PATIENCE {
                    self.abandoned = true;
                    self.state().abandon();
                    return Ok(());
                }
            }
            if begun.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(sleep);
                sleep = (sleep * 2).min(sleep_max);
            }
        }
        Ok(())
    }

    /// Returns whether a launch may wait for more: only while the GPU is busy, as far as is known,
    /// and nobody wants to know when each launch ends.
    fn may_gather(&self) -> bool {
        self.gatherer.is_on()
            && !self.marks.are_wanted()
            && !(self.gatherer.is_empty() && self.progress.is_done())
    }

    /// Keeps a launch until more follow, or until [`Queue::flush`].
    fn gather(&mut self, launch: &Launch<'_>) -> Result<(), Fault> {
        match prepared(launch) {
            Ok(kernel) => {
                self.progress.expect();
                self.gatherer
                    .push(kernel, launch.shape(), launch.parameters());
            }
            Err(fault) => {
                // What came before is right, and is launched.
                self.flush()?;
                return Err(self.fail(fault));
            }
        }
        // All that wait become one submission, the next.
        let work = Work::Launch(*launch);
        self.keep_alive.hold(&work, self.progress.submitted() + 1);
        if self.gatherer.is_full() {
            self.flush()?;
        }
        Ok(())
    }

    /// Runs `enqueue` as one submission to the driver.
    fn submission<E>(&mut self, enqueue: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        self.state().gpu.gate.pass();
        self.state().idle.announce(&self.progress);
        self.enqueuer.refresh();
        let enqueued = enqueue(self);
        self.progress.end();
        enqueued
    }

    /// Finds out how far the GPU is after a submission, if something waits for that. While somebody
    /// watches, waits until the next submission may follow.
    fn look(&mut self) -> Result<(), Fault> {
        if self.state().deferred.count() != 0 || self.keep_alive.is_long() {
            self.advance().map_err(|e| self.fail_of(&e))?;
        }
        self.watch()
            .and_then(|()| match self.marks.are_full() {
                true => self.wait_while(SLEEP_MIN, |queue| Ok(queue.marks.are_full())),
                false => Ok(()),
            })
            .map_err(|e| self.fail_of(&e))
    }

    /// Notes for somebody who watches how far the GPU is.
    fn watch(&mut self) -> Result<(), CudaError> {
        self.marks.look(&self.enqueuer.stream)
    }
}

impl Queue for CudaQueue {
    fn submit(&mut self, work: Work<'_>) -> Result<(), Fault> {
        self.check()?;
        // That a fence is released says nothing of kernels in other queues that never end.
        let is_fence = matches!(work, Work::Memory(work) if work.moved_bytes() == 0);
        if !is_fence {
            self.ahead.count();
        }
        if let Work::Launch(launch) = &work
            && launch.options() == LaunchOptions::PLAIN
            && self.may_gather()
        {
            return self.gather(launch);
        }
        self.flush()?;
        let enqueued = self.submission(|queue| queue.enqueuer.enqueue(&work));
        self.keep_alive.hold(&work, self.progress.submitted());
        self.marks.submitted(is_fence);
        enqueued.map_err(|fault| self.fail(fault))?;
        self.look()
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if self.gatherer.is_empty() {
            return Ok(());
        }
        self.check()?;
        let launched = self.submission(|queue| queue.gatherer.launch(&queue.enqueuer.stream));
        self.marks.submitted(false);
        launched.map_err(|error| self.fail_of(&error))?;
        self.look()
    }

    fn poll(&mut self) -> Result<HowFar, Fault> {
        self.flush()?;
        self.check()?;
        if self.progress.is_done() {
            return Ok(HowFar::Idle);
        }
        self.watch().map_err(|error| self.fail_of(&error))?;
        let is_idle = self.enqueuer.stream.is_idle();
        if !is_idle.map_err(|error| self.fail_of(&error))? {
            return Ok(HowFar::Busy);
        }
        self.idle();
        Ok(HowFar::Idle)
    }

    fn take_crossed(&mut self) -> Crossed {
        // An error is noticed elsewhere.
        let _ = self.enqueuer.crossings().look();
        self.enqueuer.crossings().take()
    }

    fn set_pulse(&mut self, pulse: &Arc<Pulse>) {
        self.marks.set_pulse(pulse);
    }

    fn has_room(&mut self, is_hurried: bool) -> Result<bool, Fault> {
        self.check()?;
        if self.ahead.is_complete() {
            self.flush()?;
            let marked = self.ahead.mark(&self.enqueuer.stream);
            marked.map_err(|error| self.fail_of(&error))?;
        }
        let is_far = self.watch().and_then(|()| self.ahead.is_far(is_hurried));
        Ok(!is_far.map_err(|error| self.fail_of(&error))?)
    }

    fn is_near_end(&mut self) -> Result<bool, Fault> {
        self.check()?;
        let is_near_end = self.ahead.is_near_end();
        is_near_end.map_err(|error| self.fail_of(&error))
    }

    fn close(&mut self) -> bool {
        if !self.abandoned && !self.progress.is_done() {
            // An error ends all work, too.
            if self.wait().is_err() {
                self.marks.idle();
            }
        }
        !self.abandoned
    }

    /// Work that goes on for a quarter of a second after the session's stop flag was set is
    /// abandoned: the process can then no longer be used for another session, as
    /// [`Backend::is_poisoned`](causeway_mediator::backend::Backend::is_poisoned) tells.
    fn finish(&mut self) -> Result<(), Fault> {
        self.flush()?;
        self.check()?;
        if self.progress.is_done() || self.abandoned {
            return Ok(());
        }
        self.wait().map_err(|error| self.fail_of(&error))
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        if !self.close() {
            self.keep_alive.leak();
        } else {
            self.state().deferred.unregister(&self.progress);
            self.state().idle.collect();
        }
    }
}
