//! The rings of the process: one for the default streams and those that wait for them, and some for
//! the others.
//!
//! Work in one ring is done in the order in which it was submitted. Streams that were made
//! non-blocking wait for no other stream by themselves: they are spread over rings of their own, so
//! that the device works on them at the same time. A ring is made when the first such stream wants
//! it. Where work in one ring is to wait for another, a packet waits for the other's fence
//! (`docs/decisions/0021-libcuda-rings.md`).

use std::error::Error;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use causeway_shim_linux::shim::{AddressSpace, Device};
use parking_lot::Mutex;

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::kernel::Kernel;
use crate::ring::{Number, Ring};
use crate::ring_choice::{Choice, Choices, RINGS_MAX};
use crate::stream::Stream;

/// Rings for streams of one kind of priority, with the first, unless the environment says otherwise:
/// each has a thread on the host while it is in use.
const RINGS_USUAL: usize = 4;
/// Variable of the environment that says how many these may be, 1 to [`RINGS_MAX`].
const VARIABLE: &str = "CAUSEWAY_CUDA_RINGS";

/// A piece of work that was submitted. The default is one that is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Submission {
    pub(crate) ring: u8,
    pub(crate) number: Number,
}

/// The last submission of each ring at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks([Number; RINGS_MAX]);

/// All rings.
pub(crate) struct Rings {
    first: Ring,
    more: [OnceLock<Ring>; RINGS_MAX - 1],
    /// Where threads of the library submit the graphs of conditional nodes, once there are some.
    /// Such work is submitted and done while a ring of a stream waits, which so stands for it.
    bodies: OnceLock<Ring>,
    count: AtomicUsize,
    /// Number of the last submission to the first ring for which a ring that is made later waits:
    /// it may use memory that was reused at once, or its function was not asynchronous.
    leading: AtomicU64,
    making: Mutex<Making>,
}

/// What is known when a ring is made.
struct Making {
    choices: Choices,
    /// Whether rings have a thread for functions of the program.
    call_functions: bool,
}

impl Rings {
    /// Makes the first ring of the device with number `ordinal`.
    pub(crate) fn new(
        device: &'static Device<'static>,
        space: &'static AddressSpace<'static>,
        ordinal: usize,
    ) -> Answer<Self> {
        let first = Ring::new((device, space), ordinal, 0, 0).map_err(|error| {
            log::error!("cannot create the ring of this process: {error}");
            Code::OUT_OF_MEMORY
        })?;
        Ok(Self {
            first,
            more: Default::default(),
            bodies: OnceLock::new(),
            count: AtomicUsize::new(1),
            leading: AtomicU64::new(0),
            making: Mutex::new(Making {
                choices: Choices::new(limit(std::env::var(VARIABLE).ok().as_deref())),
                call_functions: false,
            }),
        })
    }

    /// Returns the ring with this index; the first, if there is none.
    #[inline]
    pub(crate) fn of(&self, index: u8) -> &Ring {
        match usize::from(index).checked_sub(1) {
            None => &self.first,
            Some(index) => {
                let other = self.more.get(index).and_then(OnceLock::get);
                other.unwrap_or(&self.first)
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Ring> {
        std::iter::once(&self.first).chain(self.more.iter().filter_map(OnceLock::get))
    }

    /// Returns whether there are more rings than the first.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 1
    }

    /// Returns whether memory that is freed now may be used again at once: there is one ring, where
    /// work of the next owner comes behind that of this one.
    pub(crate) fn may_reuse(&self) -> bool {
        if self.are_several() {
            return false;
        }
        self.leading.fetch_max(self.first.last(), Ordering::SeqCst);
        // A ring that is made from here on waits for that.
        !self.are_several()
    }

    /// Returns the index of the ring for a new stream that waits for no other, whose ring is to have
    /// `priority`. Makes the ring, unless there are as many as there may be.
    pub(crate) fn assign(&self, driver: &'static Driver, priority: i32) -> u8 {
        let mut making = self.making.lock();
        let mut choice = making.choices.choose(priority);
        if let Choice::New(index) = choice {
            match self.make(driver, index, priority, making.call_functions) {
                Ok(()) => {
                    making.choices.made(priority);
                    choice = Choice::Made(index);
                }
                Err(error) => {
                    log::debug!("streams share {} rings: {error}", index + 1);
                    making.choices.stop();
                    choice = making.choices.choose(priority);
                }
            }
        }
        match choice {
            Choice::Made(index) => index as u8 + 1,
            Choice::First | Choice::New(_) => 0,
        }
    }

    /// Makes another ring. Its work begins after the work of the first ring that it may depend on.
    fn make(
        &self,
        driver: &'static Driver,
        index: usize,
        priority: i32,
        call_functions: bool,
    ) -> Result<(), Box<dyn Error>> {
        let ring = Ring::new(
            (driver.device, driver.space),
            driver.ordinal,
            index as u8 + 1,
            priority,
        )?;
        if call_functions {
            let started = ring.start_host_functions(driver);
            started.map_err(|_| "no thread for functions of the program")?;
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        // Afterwards: memory that is freed now waits for all rings.
        let behind = self.leading.load(Ordering::SeqCst);
        // A fault is found by those who submit work.
        if self.first.finished() < behind && self.first.announce(driver, behind).is_ok() {
            ring.begin_behind(behind);
        }
        let _ = self.more[index].set(ring);
        Ok(())
    }

    /// Starts the threads that call functions of the program for work in the rings, also in those
    /// that are made later.
    pub(crate) fn call_functions(&self, driver: &'static Driver) -> Answer {
        let mut making = self.making.lock();
        if making.call_functions {
            return Ok(());
        }
        self.all()
            .try_for_each(|ring| ring.start_host_functions(driver))?;
        making.call_functions = true;
        Ok(())
    }

    /// Makes the ring for the graphs of conditional nodes, and starts the threads that submit them,
    /// unless they are there.
    pub(crate) fn prepare_bodies(&self, driver: &'static Driver) -> Answer {
        self.call_functions(driver)?;
        let _making = self.making.lock();
        if self.bodies.get().is_none() {
            let made = Ring::new(
                (driver.device, driver.space),
                driver.ordinal,
                RINGS_MAX as u8,
                0,
            )
            .map_err(|error| {
                log::error!("cannot create the ring for conditional nodes of graphs: {error}");
                Code::OUT_OF_MEMORY
            })?;
            // For copies of memory that the device does not reach.
            made.start_host_functions(driver)?;
            let _ = self.bodies.set(made);
        }
        Ok(())
    }

    /// Returns the ring for the graphs of conditional nodes, if there is one.
    pub(crate) fn bodies(&self) -> Option<&Ring> {
        self.bodies.get()
    }

    /// Makes the device tell when a submission is done that others may wait for, if there are
    /// several rings: a ring that waits for it later must not wait for what comes behind it.
    pub(crate) fn tell_early(&self, driver: &Driver, submission: Submission) -> Answer {
        match self.are_several() {
            true => self.of(submission.ring).announce(driver, submission.number),
            false => Ok(()),
        }
    }

    /// Makes the work that any stream gets from now on begin after `submission`, which is work of
    /// a default stream: a function that is not asynchronous has submitted it and returns, and
    /// programs count on it in streams that wait for no other.
    pub(crate) fn lead(&self, driver: &Driver, submission: Submission) -> Answer {
        debug_assert_eq!(submission.ring, 0, "default streams are in the first ring");
        self.leading.fetch_max(submission.number, Ordering::SeqCst);
        if !self.are_several() || self.is_known_done(submission) {
            return Ok(());
        }
        // Now, so that nobody waits for what comes behind it.
        self.first.announce(driver, submission.number)?;
        // A ring that is being made is there afterwards, or finds the number above.
        let _making = self.making.lock();
        let others = self.more.iter().filter_map(OnceLock::get);
        others.for_each(|ring| ring.begin_behind(submission.number));
        Ok(())
    }

    /// Waits for a submission, and all before it in its ring.
    pub(crate) fn wait(&self, driver: &Driver, submission: Submission) -> Answer {
        self.of(submission.ring).wait(driver, submission.number)
    }

    /// Returns whether a submission is done.
    pub(crate) fn is_done(&self, driver: &Driver, submission: Submission) -> Answer<bool> {
        self.of(submission.ring).is_done(driver, submission.number)
    }

    /// Returns whether the device has told that a submission is done.
    pub(crate) fn is_known_done(&self, submission: Submission) -> bool {
        self.of(submission.ring).finished() >= submission.number
    }

    /// Waits for all that was submitted.
    pub(crate) fn drain(&self, driver: &Driver) -> Answer {
        let marks = self.marks();
        if self.are_several() {
            // All of them first, so that they work at the same time.
            self.ask(driver, &marks);
        }
        let mut rings = marks.0.iter().zip(self.all());
        rings.try_for_each(|(mark, ring)| ring.wait(driver, *mark))
    }

    /// Returns the last submission of each ring.
    pub(crate) fn marks(&self) -> Marks {
        let mut marks = Marks::default();
        for (mark, ring) in marks.0.iter_mut().zip(self.all()) {
            *mark = ring.last();
        }
        marks
    }

    /// Returns how many pieces of work have been submitted: launches, copies, fills, and others.
    pub(crate) fn submitted(&self) -> u64 {
        self.marks().0.iter().sum()
    }

    /// Returns the marks of the work that may use memory which is freed now, if there are several
    /// rings. Called without locks of memory: a ring may be held by who waits for room in it.
    pub(crate) fn of_freed(&self, driver: &Driver) -> Option<Marks> {
        self.are_several().then(|| {
            let marks = self.marks();
            self.ask(driver, &marks);
            marks
        })
    }

    /// Makes the device tell when it has come to marks.
    pub(crate) fn ask(&self, driver: &Driver, marks: &Marks) {
        for (mark, ring) in marks.0.iter().zip(self.all()) {
            // After a fault nothing uses memory any more.
            let _ = ring.is_done(driver, *mark);
        }
    }

    /// Returns whether the device has told that it has come to marks.
    pub(crate) fn are_reached(&self, marks: &Marks) -> bool {
        let mut rings = marks.0.iter().zip(self.all());
        rings.all(|(mark, ring)| ring.finished() >= *mark)
    }

    /// Returns the error that a fault of any ring means, without waiting for those who write.
    pub(crate) fn glance(&self, driver: &Driver) -> Answer {
        let mut rings = self.all().chain(self.bodies());
        rings.try_for_each(|ring| ring.glance(driver))?;
        driver.check_sticky()
    }

    /// Forgets the kernels for which `is_ended` holds. The table has them no more.
    pub(crate) fn forget_kernels(&self, is_ended: impl Fn(&Kernel) -> bool) {
        self.all().for_each(|ring| ring.forget_kernels(&is_ended));
    }

    /// Forgets the streams for which `is_ended` holds. The table has them no more.
    pub(crate) fn forget_streams(&self, is_ended: impl Fn(&Stream) -> bool) {
        self.all().for_each(|ring| ring.forget_streams(&is_ended));
    }
}

/// Returns how many rings of one kind there may be, with the first.
fn limit(wanted: Option<&str>) -> usize {
    let Some(text) = wanted else {
        return RINGS_USUAL;
    };
    match text.parse() {
        Ok(count @ 1..=RINGS_MAX) => count,
        _ => {
            log::error!(
                "invalid value {text} for {VARIABLE}: give a number from 1 to {RINGS_MAX}; the \
                 library takes {RINGS_USUAL}"
            );
            RINGS_USUAL
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_how_many_rings_there_may_be() {
        let limits = ["1", "8", "0", "9", "many", ""].map(|text| limit(Some(text)));
        assert_eq!(limits, [1, 8, 4, 4, 4, 4]);
        assert_eq!(limit(None), 4);
    }
}
