//! The machine that the tests of a process share.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::contents::{Contents, ContentsError};
use crate::machine::{Machine, Shape};
use crate::requirements::Requirements;

/// If it is set, a test that cannot have a machine fails instead of being skipped.
const REQUIRE_VARIABLE: &str = "CAUSEWAY_REQUIRE_NESTED";

static MACHINE: Mutex<Option<(Shape, Machine)>> = Mutex::new(None);

/// The machine, for one test at a time. Its end prints what the test took.
pub struct Lease {
    machine: MutexGuard<'static, Option<(Shape, Machine)>>,
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

/// Lends the shared machine, which is booted if there is none, or none of this shape, or if it has
/// ended. `contents` says what is in it; it must be the same for all tests of a process.
///
/// Nothing is lent, and the reason is printed with the name of the test, where the host lacks what
/// a machine needs.
///
/// # Panics
/// If the machine does not boot, or if the host lacks something and `CAUSEWAY_REQUIRE_NESTED` is
/// set.
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
    let mut machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let usable = |(of, machine): &mut (Shape, Machine)| of == shape && machine.is_up();
    if machine.as_mut().is_none_or(|machine| !usable(machine)) {
        // The old one first: the host may not have memory for two.
        *machine = None;
        let booted = contents()
            .map_err(Into::into)
            .and_then(|contents| Machine::boot(&requirements, shape, &contents));
        match booted {
            Ok(booted) => {
                eprintln!(
                    "booted an emulated machine in {:.1} s ({})",
                    booted.boot_time.as_secs_f64(),
                    requirements.emulator_version()
                );
                *machine = Some((shape.clone(), booted));
            }
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                panic!("{error}: {}", source.unwrap_or_default());
            }
        }
    }
    let processor_time = machine
        .as_ref()
        .map(|(_, machine)| machine.processor_time());
    Some(Lease {
        machine,
        test: test.to_owned(),
        begun: Instant::now(),
        processor_time: processor_time.unwrap_or_default(),
    })
}

impl Deref for Lease {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        let machine = self.machine.as_ref();
        &machine.expect("a lease is made with a machine in place").1
    }
}

impl Drop for Lease {
    /// A test that failed may have left anything behind: the next one gets another machine.
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.machine = None;
        }
        if self.machine.is_some() {
            let processor_time = self.processor_time().saturating_sub(self.processor_time);
            eprintln!(
                "{}: {:.1} s, of the emulator's processor time {:.1} s",
                self.test,
                self.begun.elapsed().as_secs_f64(),
                processor_time.as_secs_f64()
            );
        }
    }
}
