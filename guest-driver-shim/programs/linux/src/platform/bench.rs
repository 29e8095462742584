//! Reports. A process of a guest reports to the test device around its VM, by records in its
//! control window and a port; one that has none around it prints its figures and keeps the rest to
//! itself.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use causeway_shim_linux::PciTransport;
use causeway_testdev_records::{
    Baseline, Figure, Identity, Loop, Mail, NoMail, PORT_RECORD_APERTURE, Panic, PhaseBegin,
    PhaseEnd, PhasePath, RECORD_UNIT_BYTES, Totals,
};
use zerocopy::{FromBytes, IntoBytes};

use super::mail::Folder;
use super::port::Port;

/// How often it is seen whether mail has come. Each look is an exit; but a wait in the host would
/// hold a CPU of the guest's kernel up.
const MAIL_PERIOD: Duration = Duration::from_millis(10);

/// Where mailboxes go, where no bench carries them.
pub(super) static MAILBOXES: OnceLock<Folder> = OnceLock::new();

/// The bench around the VM, if there is one.
static BENCH: OnceLock<Bench> = OnceLock::new();

/// The way to the bench.
struct Bench {
    transport: &'static PciTransport,
    /// Taken while a record is in the spare memory.
    port: Mutex<Port>,
}

/// Finds the bench that is around `transport`'s VM: there is one wherever the function is. Gives
/// which VM this is, and of how many.
pub(super) fn find(transport: &'static PciTransport) -> Option<(u32, u32)> {
    let port = Port::open(PORT_RECORD_APERTURE)
        .inspect_err(|e| eprintln!("no reports to the host: its ports cannot be used: {e}"))
        .ok()?;
    let bench = Bench {
        transport,
        port: Mutex::new(port),
    };
    let mut identity = Identity::ask();
    bench.send(&mut identity);
    let answer = identity.answer();
    if answer.is_none() {
        eprintln!("no reports to the host: nobody answers");
        return None;
    }
    let _ = BENCH.set(bench);
    answer
}

/// Whether a bench carries reports and mail.
pub(super) fn is_there() -> bool {
    BENCH.get().is_some()
}

/// Whether the other side is a process beside this one.
pub(super) fn is_one_of_several_processes() -> bool {
    MAILBOXES.get().is_some()
}

impl Bench {
    /// Hands a record over, and takes it back with the reply. An exit.
    fn send<R: IntoBytes + FromBytes>(&self, record: &mut R) {
        let port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((window, offset)) = self.transport.spare_memory() else {
            return;
        };
        let written = window.write(0, record.as_mut_bytes());
        let units = u32::try_from(offset / RECORD_UNIT_BYTES);
        if let (Ok(()), Ok(units)) = (written, units) {
            port.write(units);
            // As large as what was written.
            let _ = window.read(0, record.as_mut_bytes());
        }
    }
}

/// Sends a record to the bench, if there is one.
fn send<R: IntoBytes + FromBytes>(record: &mut R) {
    if let Some(bench) = BENCH.get() {
        bench.send(record);
    }
}

/// A phase of the workload, between whose ends the host counts exits. Phases do not nest.
#[derive(Debug)]
#[must_use = "a phase lasts until it is ended"]
pub struct Phase(());

impl Phase {
    /// Begins a phase. Of several processes none does: what one counts would be the others' doing.
    pub fn begin(path: PhasePath, name: &str) -> Self {
        if is_one_of_several_processes() {
            return Self(());
        }
        send(&mut PhaseBegin::new(path, name));
        Self(())
    }

    /// Ends it.
    pub fn end(self, totals: Totals) {
        if is_one_of_several_processes() {
            return;
        }
        send(&mut PhaseEnd::new(totals));
    }
}

/// Reports a figure with its unit.
pub fn figure(name: &str, value: f64, unit: &str) {
    println!("{name}: {value:.3} {unit}");
    send(&mut Figure::new(name, value, unit));
}

/// Reports a plain ratio.
pub fn ratio(name: &str, value: f64) {
    figure(name, value, "");
}

/// Reports why the program is about to fail.
pub(super) fn last_words(file: &str, line: u32, message: &str) {
    send(&mut Panic::new(file, line, message));
}

/// Leaves mail for the other side in box `slot`, below 64.
///
/// # Panics
/// If there is no way to it.
pub fn post(slot: u32, data: &[u8; 64]) {
    if let Some(folder) = MAILBOXES.get() {
        let left = folder.post(slot, data);
        return left.expect("the folder of mailboxes can be written");
    }
    assert!(is_there(), "mail needs another VM or another process");
    send(&mut Mail::post(slot, *data));
}

/// Fetches the mail in box `slot`, waiting up to `wait_ms` milliseconds for it.
///
/// # Errors
/// There is none.
pub fn fetch(slot: u32, wait_ms: u32) -> Result<[u8; 64], NoMail> {
    let wait = Duration::from_millis(wait_ms.into());
    if let Some(folder) = MAILBOXES.get() {
        return folder.fetch(slot, wait);
    }
    let begin = Instant::now();
    loop {
        let mut mail = Mail::fetch(slot, 0);
        send(&mut mail);
        match mail.fetched() {
            Err(NoMail::NotYet) if begin.elapsed() < wait => {
                std::thread::sleep(MAIL_PERIOD);
            }
            fetched => return fetched,
        }
    }
}

/// Runs a loop on a host thread, over memory that this guest has mapped: `bytes` bytes (a multiple
/// of 64) at a guest-physical address (64-byte aligned). Gives the ticks it took; `None` if the
/// memory is not mapped.
#[must_use]
pub fn baseline(kind: Loop, address: u64, bytes: u64, passes: u32) -> Option<u64> {
    let mut record = Baseline::new(kind, address, bytes, passes);
    send(&mut record);
    record.measured()
}
