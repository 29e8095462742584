//! How guests make records, and read replies.

use core::fmt::{self, Write};

use super::{
    Baseline, Comparison, Identity, Letter, Line, Loop, Panic, PhaseBegin, PhaseEnd, PhasePath,
    Ratio, RecordHeader, RecordKind,
};

impl RecordHeader {
    /// The head of a record `R`.
    #[must_use]
    pub const fn of<R>(kind: RecordKind) -> Self {
        Self {
            kind: kind as u32,
            bytes: size_of::<R>() as u32,
        }
    }

    /// The record that is a head alone.
    #[must_use]
    pub const fn park() -> Self {
        Self::of::<Self>(RecordKind::Park)
    }
}

/// Text of a record, cut at a character's end where the room is too small.
struct Text<const BYTES: usize> {
    room: [u8; BYTES],
    used: usize,
}

impl<const BYTES: usize> Text<BYTES> {
    fn new(text: impl fmt::Display) -> Self {
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

/// What was done in a phase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Operations.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Doorbells rung.
    pub doorbells: u64,
}

impl PhaseBegin {
    /// Begins a phase.
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
    /// Ends it.
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

impl Ratio {
    /// A figure with its unit, or without one a plain ratio.
    #[must_use]
    pub fn new(name: &str, value: f64, unit: &str) -> Self {
        let (name, unit) = (Text::new(name), Text::new(unit));
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Ratio),
            value_bits: value.to_bits(),
            name_bytes: name.used(),
            unit_bytes: unit.used(),
            name: name.room,
            unit: unit.room,
        }
    }
}

impl Panic {
    /// Last words, said at `line` of `file`.
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

/// Why there is no letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLetter {
    /// None has been left so far.
    NotYet,
    /// None will be that is worth waiting for: whoever could leave it has failed.
    Hopeless,
}

impl fmt::Display for NoLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotYet => "there is none so far",
            Self::Hopeless => "the other side has failed",
        })
    }
}

impl Letter {
    /// Leaves a letter in box `slot`, below 64.
    #[must_use]
    pub const fn post(slot: u32, data: [u8; 64]) -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Post),
            slot,
            wait: 0,
            data,
        }
    }

    /// Asks for the letter in box `slot`, below 64, for which the host waits up to `wait_ms` milliseconds.
    #[must_use]
    pub const fn fetch(slot: u32, wait_ms: u32) -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Fetch),
            slot,
            wait: wait_ms,
            data: [0; 64],
        }
    }

    /// What came of that.
    ///
    /// # Errors
    /// There is none.
    pub const fn fetched(&self) -> Result<[u8; 64], NoLetter> {
        match self.wait {
            1 => Ok(self.data),
            2 => Err(NoLetter::Hopeless),
            _ => Err(NoLetter::NotYet),
        }
    }

    /// The host's answer to it.
    pub fn answer(&mut self, found: Result<[u8; 64], NoLetter>) {
        self.wait = match found {
            Ok(_) => 1,
            Err(NoLetter::NotYet) => 0,
            Err(NoLetter::Hopeless) => 2,
        };
        self.data = found.unwrap_or([0; 64]);
    }
}

impl Baseline {
    /// Asks for a loop over `bytes` bytes (a multiple of 64) at guest-physical `address` (64-byte aligned).
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

    /// Ticks that it took, if the memory was mapped.
    #[must_use]
    pub const fn measured(&self) -> Option<u64> {
        nonzero(self.ticks)
    }
}

impl Comparison {
    /// A sample: `operations` operations (not zero) of `bytes` bytes each took `guest_ns` nanoseconds.
    #[must_use]
    pub const fn new(line: Line, operations: u32, bytes: u64, guest_ns: u64) -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Comparison),
            line: line as u32,
            operations,
            bytes,
            guest_ns,
            native_ns: 0,
        }
    }

    /// Nanoseconds that the host took, if it can do this.
    #[must_use]
    pub const fn native_ns(&self) -> Option<u64> {
        nonzero(self.native_ns)
    }
}

impl Identity {
    /// Asks which VM this is.
    #[must_use]
    pub const fn ask() -> Self {
        Self {
            header: RecordHeader::of::<Self>(RecordKind::Identity),
            vm: 0,
            vms: 0,
        }
    }

    /// Index of the VM, and number of VMs, if anybody has answered.
    #[must_use]
    pub const fn answer(&self) -> Option<(u32, u32)> {
        match self.vms {
            0 => None,
            vms => Some((self.vm, vms)),
        }
    }
}

const fn nonzero(value: u64) -> Option<u64> {
    match value {
        0 => None,
        value => Some(value),
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
        let ratio = Ratio::new("rate", 1.5, "GB/s");
        assert_eq!(ratio.header.kind, RecordKind::Ratio as u32);
        assert_eq!(ratio.header.bytes as usize, size_of::<Ratio>());
        assert_eq!(
            f64::from_bits(ratio.value_bits).to_bits(),
            1.5_f64.to_bits()
        );
        assert_eq!((ratio.name_bytes, ratio.unit_bytes), (4, 4));
        assert_eq!(RecordHeader::park().bytes, 8);
    }

    #[test]
    fn replies_are_read_as_the_host_writes_them() {
        let mut letter = Letter::fetch(3, 10);
        assert_eq!((letter.slot, letter.wait), (3, 10));
        for found in [Ok([7; 64]), Err(NoLetter::NotYet), Err(NoLetter::Hopeless)] {
            letter.answer(found);
            assert_eq!(letter.fetched(), found);
        }
        assert_eq!(letter.wait, 2);
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
