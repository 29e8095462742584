//! Records for the test device (see [`causeway_testdev_records`]). Each is one exit.

use causeway_testdev_records::{
    Baseline, Comparison, Figure, Loop, Mail, NoMail, PORT_EXIT, PORT_RECORD, PhaseBegin, PhaseEnd,
    PhasePath, RecordHeader, Totals,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::port;

/// Sends a record to the test device. The host may write a reply into it.
pub(crate) fn send<R: IntoBytes + FromBytes>(record: &mut R) {
    let bytes = record.as_mut_bytes();
    let address = bytes.as_mut_ptr() as usize;
    // Stacks and statics lie in the image, which lies below 4 GiB, one to one.
    port::write_u32(PORT_RECORD, address as u32);
}

/// A phase of the workload, between whose ends the host counts exits. Phases do not nest.
#[derive(Debug)]
#[must_use = "a phase lasts until it is ended"]
pub struct Phase(());

impl Phase {
    /// Begins a phase.
    pub fn begin(path: PhasePath, name: &str) -> Self {
        send(&mut PhaseBegin::new(path, name));
        Self(())
    }

    /// Ends the phase.
    pub fn end(self, totals: Totals) {
        send(&mut PhaseEnd::new(totals));
    }
}

/// Reports a figure with its unit.
pub fn figure(name: &str, value: f64, unit: &str) {
    send(&mut Figure::new(name, value, unit));
}

/// Reports a plain ratio.
pub fn ratio(name: &str, value: f64) {
    figure(name, value, "");
}

/// Puts mail for the other VMs of the run into mailbox `slot`, below 64.
pub fn post(slot: u32, data: &[u8; 64]) {
    send(&mut Mail::post(slot, *data));
}

/// Returns the mail in mailbox `slot`, after waiting for it at most `wait_ms` milliseconds.
///
/// # Errors
/// [`NoMail`] if none arrives in time.
pub fn fetch(slot: u32, wait_ms: u32) -> Result<[u8; 64], NoMail> {
    let mut mail = Mail::fetch(slot, wait_ms);
    send(&mut mail);
    mail.fetched()
}

/// Runs a loop on a host thread, over memory that this guest has mapped: `bytes` bytes (a multiple
/// of 64) at a guest-physical address (64-byte aligned). Returns the ticks it took, or `None` if
/// the memory is not mapped.
#[must_use]
pub fn baseline(kind: Loop, address: u64, bytes: u64, passes: u32) -> Option<u64> {
    let mut record = Baseline::new(kind, address, bytes, passes);
    send(&mut record);
    record.measured()
}

/// Reports a sample of line number `line`: `operations` operations (not zero) of `bytes` bytes each
/// took `guest_ns` nanoseconds. The host repeats it natively. Returns the nanoseconds that the host
/// took; `None` if it did not repeat it.
pub fn compare(line: u32, operations: u32, bytes: u64, guest_ns: u64) -> Option<u64> {
    let mut record = Comparison::new(line, operations, bytes, guest_ns);
    send(&mut record);
    record.native_ns()
}

/// Ends the guest: zero is pass, anything else is fail.
pub fn exit(code: u32) -> ! {
    port::write_u32(PORT_EXIT, code);
    loop {
        core::hint::spin_loop();
    }
}

/// Parks this CPU until the guest ends.
pub fn park() -> ! {
    send(&mut RecordHeader::park());
    loop {
        core::hint::spin_loop();
    }
}
