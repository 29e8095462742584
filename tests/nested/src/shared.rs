//! The machines that the tests of a process share.

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::contents::{Contents, ContentsError};
use crate::machine::{Machine, Shape};
use crate::pool::Pool;
use crate::requirements::Requirements;

/// If it is set, a test that cannot have a machine fails instead of being skipped.
const REQUIRE_VARIABLE: &str = "CAUSEWAY_REQUIRE_NESTED";
/// How many machines there may be at a time, in place of one. Each takes up to 7 GiB, with
/// CUDA clients 8, and more than one processor.
const MACHINES_VARIABLE: &str = "CAUSEWAY_NESTED_MACHINES";

static POOL: Pool<Machine> = Pool::new();

/// A machine, for one test at a time. Its end prints what the test took.
pub struct Lease {
    /// With the shape that it was booted with.
    booted: Option<(Shape, Machine)>,
    test: String,
    begun: Instant,
    processor_time: Duration,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

/// Returns whether a test that cannot have what it needs must fail instead of being skipped.
#[must_use]
pub fn is_required() -> bool {
    std::env::var_os(REQUIRE_VARIABLE).is_some()
}

/// Lends a machine of `shape` that no other test has, and boots one if there is none. Waits while
/// all machines that there may be are lent. `contents` says what is in it; it must be the same for
/// all tests of a process and shape.
///
/// Nothing is lent, and the reason is printed with the name of the test, where the host lacks what
/// a machine needs.
///
/// # Panics
/// If the machine does not boot, or if the host lacks something and `CAUSEWAY_REQUIRE_NESTED` is
/// set, or if `CAUSEWAY_NESTED_MACHINES` is not a number from 1.
#[track_caller]
pub fn shared(
    test: &str,
    shape: &Shape,
    contents: impl FnOnce() -> Result<Contents, ContentsError>,
) -> Option<Lease> {
    let requirements = match Requirements::find() {
        Ok(requirements) => requirements,
        Err(missing) => {
            assert!(!is_required(), "{REQUIRE_VARIABLE} is set, but {missing}");
            eprintln!("skipped: no emulated machine ({test}): {missing}");
            return None;
        }
    };
    let mut lease = Lease {
        booted: POOL
            .take(shape, machines(), Machine::is_up)
            .map(|machine| (shape.clone(), machine)),
        test: test.to_owned(),
        begun: Instant::now(),
        processor_time: Duration::ZERO,
    };
    if lease.booted.is_none() {
        let machine = boot(&requirements, shape, contents);
        lease.booted = Some((shape.clone(), machine));
        lease.begun = Instant::now();
    }
    lease.processor_time = lease.processor_time();
    Some(lease)
}

/// Returns how many machines there may be at a time.
fn machines() -> NonZeroUsize {
    let Some(wanted) = std::env::var_os(MACHINES_VARIABLE) else {
        return NonZeroUsize::MIN;
    };
    let number = wanted.to_str().and_then(|wanted| wanted.parse().ok());
    number.unwrap_or_else(|| {
        panic!("invalid value {wanted:?} for {MACHINES_VARIABLE}: a number from 1")
    })
}

#[track_caller]
fn boot(
    requirements: &Requirements,
    shape: &Shape,
    contents: impl FnOnce() -> Result<Contents, ContentsError>,
) -> Machine {
    let booted = contents()
        .map_err(Into::into)
        .and_then(|contents| Machine::boot(requirements, shape, &contents));
    match booted {
        Ok(machine) => {
            eprintln!(
                "booted an emulated machine in {:.1} s ({})",
                machine.boot_time.as_secs_f64(),
                requirements.emulator_version()
            );
            machine
        }
        Err(error) => {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            panic!("{error}: {}", source.unwrap_or_default());
        }
    }
}

impl Deref for Lease {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        let machine = self.booted.as_ref();
        &machine.expect("a lease is made with a machine in place").1
    }
}

impl Drop for Lease {
    /// A test that failed may have left anything behind: the next one gets another machine.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.booted = None;
        }
        if self.booted.is_some() {
            let processor_time = self.processor_time().saturating_sub(self.processor_time);
            eprintln!(
                "{}: {:.1} s, of the emulator's processor time {:.1} s",
                self.test,
                self.begun.elapsed().as_secs_f64(),
                processor_time.as_secs_f64()
            );
        }
        POOL.give_back(self.booted.take());
    }
}
