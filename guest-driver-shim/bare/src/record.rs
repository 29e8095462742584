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

/// A phase of the guest's run, for which the host counts exits. Phases do not nest.
#[derive(Debug)]
#[must_use = "a phase lasts until it is ended"]
pub struct Phase(());

impl Phase {
    /// Begins a phase called `name`. `path` says which exits are expected in it: any (setup), some
    /// (control path) or none (data path).
    pub fn begin(path: PhasePath, name: &str) -> Self {
        send(&mut PhaseBegin::new(path, name));
        Self(())
    }

    /// Ends the phase and reports the work that it has done.
    pub fn end(self, totals: Totals) {
        send(&mut PhaseEnd::new(totals));
    }
}

/// Reports a figure, such as a rate, with its name and unit.
pub fn figure(name: &str, value: f64, unit: &str) {
    send(&mut Figure::new(name, value, unit));
}

/// Reports a ratio, which is a figure without a unit.
pub fn ratio(name: &str, value: f64) {
    figure(name, value, "");
}

/// Puts 64 bytes of mail for the other VMs of the run into mailbox number `slot`, below 64.
pub fn post(slot: u32, data: &[u8; 64]) {
    send(&mut Mail::post(slot, *data));
}

/// Returns the mail in mailbox number `slot`, below 64. Waits up to `wait_ms` milliseconds for it.
///
/// # Errors
/// [`NoMail`] if no mail arrives in time.
pub fn fetch(slot: u32, wait_ms: u32) -> Result<[u8; 64], NoMail> {
    let mut mail = Mail::fetch(slot, wait_ms);
    send(&mut mail);
    mail.fetched()
}

/// Runs a loop on a host thread, `passes` times over `bytes` bytes (a multiple of 64) at the
/// guest-physical `address` (a multiple of 64), which this guest has mapped. Returns the ticks of
/// the time stamp counter that it took, or `None` if the memory is not mapped.
#[must_use]
pub fn baseline(kind: Loop, address: u64, bytes: u64, passes: u32) -> Option<u64> {
    let mut record = Baseline::new(kind, address, bytes, passes);
    send(&mut record);
    record.measured()
}

/// Reports a sample for line number `line` of `bench gpu`: `operations` operations (not zero) of
/// `bytes` bytes each took `guest_ns` nanoseconds. The host repeats the operations natively.
/// Returns the nanoseconds that the host took, or `None` if it did not repeat them.
pub fn compare(line: u32, operations: u32, bytes: u64, guest_ns: u64) -> Option<u64> {
    let mut record = Comparison::new(line, operations, bytes, guest_ns);
    send(&mut record);
    record.native_ns()
}

/// Ends the guest. It has passed if `code` is zero, otherwise it has failed.
pub fn exit(code: u32) -> ! {
    port::write_u32(PORT_EXIT, code);
    loop {
        core::hint::spin_loop();
    }
}

/// Stops this CPU until the guest ends.
pub fn park() -> ! {
    send(&mut RecordHeader::park());
    loop {
        core::hint::spin_loop();
    }
}
