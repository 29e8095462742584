//! The part of a program that its writer wants measured (CUDA driver API, "Profiler Control"): in a
//! guest of Causeway it is a phase, for which the host counts exits. A guest has one phase at a
//! time: of several processes, one can have such a part.

use causeway_shim_linux::{Phase, PhaseError, PhasePath, Totals};
use parking_lot::Mutex;

use crate::driver::{Driver, call_in_context};
use crate::error::Answer;

/// What the host calls the phase.
const NAME: &str = "profiled";

/// A phase that is open.
struct Open {
    phase: Phase,
    driver: &'static Driver,
    /// Pieces of work that had been submitted to this device before.
    submitted: u64,
    /// A process that was forked meanwhile does not end the phase.
    process: u32,
}

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

/// Begins a phase; one that is open goes on.
#[unsafe(no_mangle)]
extern "C" fn cuProfilerStart() -> u32 {
    call_in_context(|driver, _| {
        let mut open = OPEN.lock();
        if open.is_none() {
            *open = begin(driver);
        }
        Ok(())
    })
}

/// Ends the phase, if one is open, and reports how many launches, copies and other pieces of work
/// were submitted in it.
#[unsafe(no_mangle)]
extern "C" fn cuProfilerStop() -> u32 {
    call_in_context(|_, _| end())
}

fn begin(driver: &'static Driver) -> Option<Open> {
    let submitted = driver.rings.submitted();
    match Phase::begin(PhasePath::Data, NAME) {
        Ok(phase) => Some(Open {
            phase,
            driver,
            submitted,
            process: std::process::id(),
        }),
        // A host has other profilers.
        Err(PhaseError::NoGuest(_)) => None,
        Err(error) => {
            log::warn!("cuProfilerStart begins no phase: {error}");
            None
        }
    }
}

fn end() -> Answer {
    let Some(open) = OPEN.lock().take() else {
        return Ok(());
    };
    if open.process != std::process::id() {
        return Ok(());
    }
    let totals = Totals {
        operations: open.driver.rings.submitted() - open.submitted,
        ..Totals::default()
    };
    if let Err(error) = open.phase.end(totals) {
        log::warn!("cuProfilerStop ends no phase: {error}");
    }
    Ok(())
}
