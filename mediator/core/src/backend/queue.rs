//! Queues of a back end, which execute work in order.

use std::any::Any;
use std::sync::Arc;

use super::{Crossed, Fault, Progress, Pulse, Usage, Work};

/// A sequence of work that a replay submits as a whole. A queue keeps the `Arc` of a recording
/// until the replay is done: the session is charged for the recording and its kernels until the
/// last of these `Arc`s is dropped.
pub trait Recording: Send + Sync + Any {
    /// Returns how many bytes of memory the back end needs for the recording itself, without the
    /// memory that its work uses. The session is charged for them.
    fn memory_bytes(&self) -> u64;
    /// Returns `self` as [`Any`], so that the back end can downcast it to its own type.
    fn as_any(&self) -> &dyn Any;
}

/// A queue that executes work in order. Only one thread uses a queue. The methods other than
/// [`Self::finish`] may return before the work is done.
pub trait Queue: Send {
    /// Executes `work`, or adds it to the queue. The back end may collect work and begin it only at
    /// [`Self::flush`].
    ///
    /// # Errors
    /// The fault of this or of an earlier piece of work. After a fault, every method of the queue
    /// fails.
    fn submit(&mut self, work: Work<'_>) -> Result<(), Fault>;

    /// Makes the back end begin all work that was submitted.
    ///
    /// # Errors
    /// The fault of an earlier piece of work.
    fn flush(&mut self) -> Result<(), Fault>;

    /// Returns whether submitted work still runs. The consumer of a command buffer asks from time
    /// to time while its ring is empty.
    ///
    /// # Errors
    /// The fault of an earlier piece of work.
    fn poll(&mut self) -> Result<Progress, Fault>;

    /// Waits until all submitted work is done. If the stop flag of the address space is set (see
    /// [`Backend::create_space`](super::Backend::create_space)), waits only briefly.
    ///
    /// # Errors
    /// The fault of an earlier piece of work.
    fn finish(&mut self) -> Result<(), Fault>;

    /// Ends the queue, as a drop does: waits until all submitted work is done. Returns false if the
    /// stop flag of the address space was set and the work did not end soon after that: it may go
    /// on. Only for a queue that runs behind.
    fn close(&mut self) -> bool {
        true
    }

    /// Returns whether work may still run when [`Self::submit`] has returned. False only for a
    /// queue that executes all work on the submitting thread.
    fn runs_behind(&self) -> bool {
        true
    }

    /// Makes the queue tell `pulse` of each piece of work, and soon after its end, while somebody
    /// watches. What is under way when that begins may be one piece. Called once, before the first
    /// work. Only for a queue that runs behind.
    fn set_pulse(&mut self, pulse: &Arc<Pulse>) {
        let _ = pulse;
    }

    /// Returns whether so little of the submitted work is left that the device may run out of it
    /// soon, or at once if somebody `is_hurried`. Asked for each piece of work while other sessions
    /// wait for the device, or may do so. Only for a queue that runs behind.
    ///
    /// # Errors
    /// The fault of an earlier piece of work.
    fn has_room(&mut self, is_hurried: bool) -> Result<bool, Fault> {
        let _ = is_hurried;
        Ok(true)
    }

    /// Returns whether the device has begun the last of the submitted work, or will soon have done
    /// all of it, as far as [`Self::has_room`] makes that known. Only for a queue that runs
    /// behind.
    ///
    /// # Errors
    /// The fault of an earlier piece of work.
    fn is_near_end(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Lets work that is submitted from now on use `units` units of the device at most, at least 1.
    /// Only for a queue that does not run behind.
    fn limit_units(&mut self, units: u64) {
        let _ = units;
    }

    /// Returns what work has taken of the device since the last call, also if it ended with a
    /// fault. Only for a queue that does not run behind: by this, sessions share out the device.
    fn take_usage(&mut self) -> Usage {
        Usage::default()
    }

    /// Returns what copies between GPUs have moved since the last call, as far as they are done.
    /// The default suits back ends whose sessions have one GPU.
    fn take_crossed(&mut self) -> Crossed {
        Crossed::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that says no more than it must.
    struct Plain;

    impl Queue for Plain {
        fn submit(&mut self, _: Work<'_>) -> Result<(), Fault> {
            Ok(())
        }

        fn flush(&mut self) -> Result<(), Fault> {
            Ok(())
        }

        fn poll(&mut self) -> Result<Progress, Fault> {
            Ok(Progress::Idle)
        }

        fn finish(&mut self) -> Result<(), Fault> {
            Ok(())
        }
    }

    #[test]
    fn what_a_queue_does_not_say_is_what_suits_most() {
        let mut plain = Plain;
        // Its work may run after its submission, and ends with it.
        assert!(plain.runs_behind() && plain.close());
        // It takes any amount of work, and tells of its end only when all is done.
        assert_eq!(plain.has_room(false), Ok(true));
        assert_eq!(plain.has_room(true), Ok(true));
        assert_eq!(plain.is_near_end(), Ok(false));
    }
}
