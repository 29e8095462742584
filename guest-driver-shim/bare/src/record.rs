//! Records for the test device (see [`causeway_testdev_records`]). Each is one exit.

use causeway_testdev_records::{
    Baseline, Comparison, Figure, Loop, Mail, NoMail, PORT_EXIT, PORT_RECORD, PhaseBegin, PhaseEnd,
    PhasePath, RecordHeader, Singles, Totals,
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
    /// Begins a phase called `name`. `path` says which exits the phase may have: any (setup), few
    /// (control path) or none (data path).
    pub fn begin(path: PhasePath, name: &str) -> Self {
        send(&mut PhaseBegin::new(path, name));
        Self(())
    }

    /// Ends the phase and reports `totals` to the host: how many operations, bytes and doorbells
    /// the phase had.
    pub fn end(self, totals: Totals) {
        send(&mut PhaseEnd::new(totals));
    }
}

/// Reports a figure, such as a rate, to the host, which prints it with its name and unit.
pub fn figure(name: &str, value: f64, unit: &str) {
    send(&mut Figure::new(name, value, unit));
}

/// Reports a ratio, which is a figure without a unit, to the host.
pub fn ratio(name: &str, value: f64) {
    figure(name, value, "");
}

/// Puts `data` into mailbox number `slot` (0 to 63), where the other VMs of the run can fetch it.
/// The new mail replaces earlier mail.
pub fn post(slot: u32, data: &[u8; 64]) {
    send(&mut Mail::post(slot, *data));
}

/// Returns a copy of the mail in mailbox number `slot` (0 to 63). If the mailbox is empty, waits up
/// to `wait_ms` milliseconds for mail.
///
/// # Errors
/// [`NoMail`] if no mail arrives in time.
pub fn fetch(slot: u32, wait_ms: u32) -> Result<[u8; 64], NoMail> {
    let mut mail = Mail::fetch(slot, wait_ms);
    send(&mut mail);
    mail.fetched()
}

/// Makes a host thread run the loop `kind` over this guest's memory, so that its time can be
/// compared with the guest's. The loop passes `passes` times over the `bytes` bytes at
/// guest-physical `address`; `address` and `bytes` must be multiples of 64. Returns the time that
/// the loop took, in ticks of the time stamp counter, or `None` if the memory is not mapped.
#[must_use]
pub fn baseline(kind: Loop, address: u64, bytes: u64, passes: u32) -> Option<u64> {
    let mut record = Baseline::new(kind, address, bytes, passes);
    send(&mut record);
    record.measured()
}

/// Reports to the host that `operations` operations (not zero) of `bytes` bytes each took
/// `guest_ns` nanoseconds in this guest. `line` is the number of the line in the table of `causeway
/// bench gpu` that measures this kind of operation. The host then does the same operations
/// natively. Returns the time that they took on the host, in nanoseconds, or `None` if the host did
/// not do them.
pub fn compare(line: u32, operations: u32, bytes: u64, guest_ns: u64) -> Option<u64> {
    let mut record = Comparison::new(line, operations, bytes, guest_ns);
    send(&mut record);
    record.native_ns()
}

/// Reports to the host how many nanoseconds each of `times.len()` single operations of `bytes`
/// bytes took in this guest, with `timer_ns` nanoseconds for the timer in each. `line` is as for
/// [`compare`]. The host then times as many natively. `times` has at most
/// [`SINGLES_MAX`](causeway_testdev_records::SINGLES_MAX) elements.
pub fn singles(line: u32, bytes: u64, timer_ns: u64, times: &[u64]) {
    send(&mut Singles::new(line, bytes, timer_ns, times));
    // The times stay in place until the host has read them.
    core::hint::black_box(times);
}

/// Ends the guest. The host counts the guest as passed if `code` is zero, and as failed otherwise.
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
