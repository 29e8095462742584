//! How guests make records and read replies.

use core::fmt::{self, Write};

use crate::{
    Baseline, Comparison, Figure, Identity, Loop, Mail, Panic, PhaseBegin, PhaseEnd, PhasePath,
    RecordHeader, RecordKind, Singles,
};

impl RecordHeader {
    /// Returns the header of a record of this kind. `R` is the type of the whole record, whose size
    /// the header contains.
    #[must_use]
    pub const fn of<R>(kind: RecordKind) -> Self {
        Self {
            kind: kind as u32,
            bytes: size_of::<R>() as u32,
        }
    }

    /// Returns the record by which a virtual CPU says that it has nothing more to do. The record is
    /// a header only.
    #[must_use]
    pub const fn park() -> Self {
        Self::of::<Self>(RecordKind::Park)
    }
}

/// Text of a record, cut at a character's end where the room is too small.
pub(crate) struct Text<const BYTES: usize> {
    pub(crate) room: [u8; BYTES],
    pub(crate) used: usize,
}

impl<const BYTES: usize> Text<BYTES> {
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        let mut cut = Self {
            room: [0; BYTES],
            used: 0,
        };
        // An error says that the text was cut, which is wanted.
        let _ = write!(cut, "{text}");
        cut
    }

    const fn used(&self) -> u32 {
        self.used as u32
    }
}

impl<const BYTES: usize> Write for Text<BYTES> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let cut = text.floor_char_boundary(BYTES - self.used);
        self.room[self.used..self.used + cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.used += cut;
        if cut < text.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

/// What a guest did in a phase of its run, as the guest itself counts it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Number of operations that the guest did.
    pub operations: u64,
    /// Number of bytes that the guest moved.
    pub bytes: u64,
    /// Number of doorbells that the guest rang.
    pub doorbells: u64,
}

impl PhaseBegin {
    /// Returns the record that begins a phase. `path` says what the phase exercises: setup, the
    /// control path or the data path. A `name` longer than 48 bytes is cut.
    #[must_use]
    pub fn new(path: PhasePath, name: &str) -> Self {
        let name = Text::new(name);
        Self {
            header: RecordHeader::of::<Self>(RecordKind::PhaseBegin),
            path: path as u32,
            name_bytes: name.used(),
            name: name.room,
        }
    }
}

impl PhaseEnd {
    /// Returns the record that ends the open phase. `totals` says what the guest did in the phase.
    #[must_use]
    pub const fn new(totals: Totals) -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::PhaseEnd),
            operations: totals.operations,
            bytes: totals.bytes,
            doorbells: totals.doorbells,
        }
    }
}

impl Figure {
    /// Returns the record that reports a figure. An empty `unit` means a plain ratio. A `name`
    /// longer than 64 bytes and a `unit` longer than 16 bytes are cut.
    #[must_use]
    pub fn new(name: &str, value: f64, unit: &str) -> Self {
        let (name, unit) = (Text::new(name), Text::new(unit));
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Figure),
            value_bits: value.to_bits(),
            name_bytes: name.used(),
            unit_bytes: unit.used(),
            name: name.room,
            unit: unit.room,
        }
    }
}

impl Panic {
    /// Returns the record that reports a panic with `message` at `line` of `file`. A `file` longer
    /// than 128 bytes and a `message` longer than 256 bytes are cut.
    #[must_use]
    pub fn new(file: &str, line: u32, message: impl fmt::Display) -> Self {
        let (file, message) = (Text::new(file), Text::new(message));
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Panic),
            line,
            file_bytes: file.used(),
            message_bytes: message.used(),
            reserved: 0,
            file: file.room,
            message: message.room,
        }
    }
}

/// Why a guest that fetches mail from a mailbox gets none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMail {
    /// The mailbox is still empty.
    NotYet,
    /// The mailbox is empty, and another VM of the run has failed, so that waiting is useless.
    SenderFailed,
}

impl fmt::Display for NoMail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotYet => "the mailbox is empty",
            Self::SenderFailed => "the mailbox is empty, and another VM of the run has failed",
        })
    }
}

impl Mail {
    /// Returns the record that puts `data` into mailbox number `mailbox`, which is below
    /// [`crate::MAILBOXES`].
    #[must_use]
    pub const fn post(mailbox: u32, data: [u8; 64]) -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Post),
            mailbox,
            wait: 0,
            data,
        }
    }

    /// Returns the record that asks for the mail in mailbox number `mailbox`, which is below
    /// [`crate::MAILBOXES`]. The host waits for mail up to `wait_ms` milliseconds.
    #[must_use]
    pub const fn fetch(mailbox: u32, wait_ms: u32) -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Fetch),
            mailbox,
            wait: wait_ms,
            data: [0; 64],
        }
    }

    /// Returns the mail from the host's reply to [`Self::fetch`].
    ///
    /// # Errors
    /// [`NoMail::NotYet`] if the mailbox stayed empty, [`NoMail::SenderFailed`] if the mailbox is
    /// empty and another VM of the run has failed.
    pub const fn fetched(&self) -> Result<[u8; 64], NoMail> {
        match self.wait {
            1 => Ok(self.data),
            2 => Err(NoMail::SenderFailed),
            _ => Err(NoMail::NotYet),
        }
    }

    /// Writes `found` into the record as the host's reply to [`Self::fetch`].
    pub fn answer(&mut self, found: Result<[u8; 64], NoMail>) {
        self.wait = match found {
            Ok(_) => 1,
            Err(NoMail::NotYet) => 0,
            Err(NoMail::SenderFailed) => 2,
        };
        self.data = found.unwrap_or([0; 64]);
    }
}

impl Baseline {
    /// Returns the record that asks the host to run a loop of this kind `passes` times over the
    /// `bytes` bytes (a multiple of 64) at guest-physical `address` (64-byte aligned).
    #[must_use]
    pub const fn new(kind: Loop, address: u64, bytes: u64, passes: u32) -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Baseline),
            kind: kind as u32,
            passes,
            address,
            bytes,
            ticks: 0,
        }
    }

    /// Returns how many ticks of the guest's time stamp counter the loop took, from the host's
    /// reply to this record; `None` if the host could not run the loop, for example because the
    /// memory is not mapped.
    #[must_use]
    pub fn measured(&self) -> Option<u64> {
        (self.ticks != 0).then_some(self.ticks)
    }
}

impl Comparison {
    /// Returns the record that reports a sample for line number `line` in the table of `bench gpu`:
    /// the guest took `guest_ns` nanoseconds for `operations` operations (not zero) of `bytes`
    /// bytes each.
    #[must_use]
    pub const fn new(line: u32, operations: u32, bytes: u64, guest_ns: u64) -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Comparison),
            line,
            operations,
            bytes,
            guest_ns,
            native_ns: 0,
        }
    }

    /// Returns how many nanoseconds the host took for the same operations, from the host's reply to
    /// this record; `None` if the host does not repeat them.
    #[must_use]
    pub fn native_ns(&self) -> Option<u64> {
        (self.native_ns != 0).then_some(self.native_ns)
    }
}

impl Singles {
    /// Returns the record that reports the times of single operations, in nanoseconds, for line
    /// number `line` in the table of `bench gpu`. Each operation moved `bytes` bytes, and each time
    /// contains `timer_ns` nanoseconds for its timer. `times` must stay in place until the host has
    /// read them, have at most [`SINGLES_MAX`](crate::SINGLES_MAX) elements, and be in memory that
    /// is mapped one to one.
    #[must_use]
    pub fn new(line: u32, bytes: u64, timer_ns: u64, times: &[u64]) -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Singles),
            line,
            count: times.len() as u32,
            bytes,
            timer_ns,
            address: times.as_ptr() as usize as u64,
        }
    }
}

impl Identity {
    /// Returns the record by which a guest asks which VM of its run it is in.
    #[must_use]
    pub const fn ask() -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Identity),
            vm: 0,
            vms: 0,
        }
    }

    /// Returns the index of the VM, from 0, and the number of VMs in the run, from the host's reply
    /// to this record; `None` if the VM has no test device.
    #[must_use]
    pub fn answer(&self) -> Option<(u32, u32)> {
        (self.vms != 0).then_some((self.vm, self.vms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_where_a_character_ends() {
        let cut = Text::<4>::new("aäöü");
        assert_eq!((&cut.room, cut.used()), (b"a\xc3\xa4\0", 3));
        assert_eq!(Text::<64>::new("short").used(), 5);
        assert_eq!(Text::<0>::new("x").used(), 0);
    }

    #[test]
    fn text_in_pieces_is_cut_where_the_first_does_not_fit() {
        let cut = Text::<4>::new(format_args!("{}{}{}", "ab", "äö", "c"));
        assert_eq!(
            (&cut.room, cut.used()),
            ("abä".as_bytes().try_into().unwrap(), 4)
        );
    }

    #[test]
    fn records_say_their_kind_and_size() {
        let ratio = Figure::new("rate", 1.5, "GB/s");
        assert_eq!(ratio.header.kind, RecordKind::Figure as u32);
        assert_eq!(ratio.header.bytes as usize, size_of::<Figure>());
        assert_eq!(
            f64::from_bits(ratio.value_bits).to_bits(),
            1.5_f64.to_bits()
        );
        assert_eq!((ratio.name_bytes, ratio.unit_bytes), (4, 4));
        assert_eq!(RecordHeader::park().bytes, 8);
    }

    #[test]
    fn replies_are_read_as_the_host_writes_them() {
        let mut mail = Mail::fetch(3, 10);
        assert_eq!((mail.mailbox, mail.wait), (3, 10));
        for found in [Ok([7; 64]), Err(NoMail::NotYet), Err(NoMail::SenderFailed)] {
            mail.answer(found);
            assert_eq!(mail.fetched(), found);
        }
        assert_eq!(mail.wait, 2);
        assert_eq!(Baseline::new(Loop::Load, 0, 64, 1).measured(), None);
        assert_eq!(Identity::ask().answer(), None);
        let identity = Identity {
            vm: 1,
            vms: 2,
            ..Identity::ask()
        };
        assert_eq!(identity.answer(), Some((1, 2)));
    }
}
