//! Reports of figures and phases. A process in a guest reports to the VM's test device: figures by
//! records in the control window and an I/O port, phases by the shim. Without a test device, a
//! process only prints its figures.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use causeway_shim_linux::{IoPorts, PciTransport};
use causeway_testdev_records::{
    Baseline, Figure, Identity, Loop, Mail, NoMail, PORT_RECORD_APERTURE, Panic, PhasePath,
    RECORD_UNIT_BYTES, Totals,
};
use zerocopy::{FromBytes, IntoBytes};

use super::mail::Folder;
use crate::Required;

/// Time between two looks for mail. Each look is an exit; but a wait in the host would stop a
/// virtual CPU of the guest.
const MAIL_PERIOD: Duration = Duration::from_millis(10);

/// The folder with the mailboxes, if the program runs without a test device.
pub(super) static MAILBOXES: OnceLock<Folder> = OnceLock::new();

/// The VM's test device, if it has one.
static BENCH: OnceLock<Bench> = OnceLock::new();

/// Access to the test device.
struct Bench {
    transport: &'static PciTransport,
    /// Locked while a record is in the spare memory of the control window.
    port: Mutex<IoPorts>,
}

/// Finds the test device of `transport`'s VM. Returns the index of this VM in the run, from 0, and
/// the number of VMs; `None` if the test device cannot be used.
pub(super) fn find(transport: &'static PciTransport) -> Option<(u32, u32)> {
    let port = IoPorts::open(PORT_RECORD_APERTURE, 4)
        .inspect_err(|e| {
            eprintln!("no reports to the host: this process may not use I/O ports: {e}");
        })
        .ok()?;
    let bench = Bench {
        transport,
        port: Mutex::new(port),
    };
    let mut identity = Identity::ask();
    bench.send(&mut identity);
    let answer = identity.answer();
    if answer.is_none() {
        eprintln!("no reports to the host: the VM has no test device that answers");
        return None;
    }
    let _ = BENCH.set(bench);
    answer
}

/// Returns whether the test device carries reports and mail.
pub(super) fn is_there() -> bool {
    BENCH.get().is_some()
}

/// Returns whether this is one of several processes that work together on one machine.
pub(super) fn is_one_of_several_processes() -> bool {
    MAILBOXES.get().is_some()
}

impl Bench {
    /// Sends a record to the test device, and stores the reply in it. This causes an exit.
    fn send<R: IntoBytes + FromBytes>(&self, record: &mut R) {
        let port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((window, offset)) = self.transport.spare_memory() else {
            return;
        };
        let written = window.write(0, record.as_mut_bytes());
        let units = u32::try_from(offset / RECORD_UNIT_BYTES);
        if let (Ok(()), Ok(units)) = (written, units) {
            port.write(PORT_RECORD_APERTURE, units);
            // The reply is as large as the record that was written.
            let _ = window.read(0, record.as_mut_bytes());
        }
    }
}

/// Sends a record to the test device, if the VM has one.
fn send<R: IntoBytes + FromBytes>(record: &mut R) {
    if let Some(bench) = BENCH.get() {
        bench.send(record);
    }
}

/// A phase of the workload, between whose ends the host counts exits, if the VM has a test device.
/// Phases do not nest.
#[derive(Debug)]
#[must_use = "a phase lasts until it is ended"]
pub struct Phase(Option<causeway_shim_linux::Phase>);

impl Phase {
    /// Begins a phase called `name`. If several processes work together, no phase begins, because
    /// each would count the exits of the others.
    ///
    /// # Panics
    /// If the VM has a test device that this process can no longer use.
    pub fn begin(path: PhasePath, name: &str) -> Self {
        let counted = is_there() && !is_one_of_several_processes();
        let begin = || causeway_shim_linux::Phase::begin(path, name).required("beginning a phase");
        Self(counted.then(begin))
    }

    /// Ends the phase, and reports the totals of its operations.
    ///
    /// # Panics
    /// If the VM has a test device that this process can no longer use.
    pub fn end(self, totals: Totals) {
        if let Some(phase) = self.0 {
            phase.end(totals).required("ending a phase");
        }
    }
}

/// Prints a figure with its unit, and reports it to the test device.
pub fn figure(name: &str, value: f64, unit: &str) {
    println!("{name}: {value:.3} {unit}");
    send(&mut Figure::new(name, value, unit));
}

/// Prints a figure without a unit, and reports it to the test device.
pub fn ratio(name: &str, value: f64) {
    figure(name, value, "");
}

/// Reports the place and the message of the panic for which the program is about to fail.
pub(super) fn last_words(file: &str, line: u32, message: &str) {
    send(&mut Panic::new(file, line, message));
}

/// Leaves mail in mailbox number `slot`, which must be below 64, for another VM or process.
///
/// # Panics
/// If no other VM or process works with this one.
pub fn post(slot: u32, data: &[u8; 64]) {
    if let Some(folder) = MAILBOXES.get() {
        let left = folder.post(slot, data);
        return left.expect("the folder of mailboxes can be written");
    }
    assert!(is_there(), "mail needs another VM or another process");
    send(&mut Mail::post(slot, *data));
}

/// Fetches the mail in mailbox number `slot`. Waits up to `wait_ms` milliseconds for it.
///
/// # Errors
/// [`NoMail`] with the reason if no mail came.
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

/// Runs the loop `kind` on a host thread, `passes` times over `bytes` bytes (a multiple of 64) at
/// the guest-physical address `address` (a multiple of 64), for comparison. Returns the ticks of
/// the time stamp counter that it took; `None` if the memory is not mapped.
#[must_use]
pub fn baseline(kind: Loop, address: u64, bytes: u64, passes: u32) -> Option<u64> {
    let mut record = Baseline::new(kind, address, bytes, passes);
    send(&mut record);
    record.measured()
}
