//! The test bench around a bare guest: what the ports of [`causeway_protocol::harness`] do.
//!
//! A guest reports phases, figures and its last words, exchanges letters with the other guests of a run,
//! and asks for baseline measurements. Records are copied out of guest RAM once and the copy is checked;
//! what a guest can pile up here is bounded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use causeway_protocol::Access;
use causeway_protocol::harness as wire;
use causeway_protocol::harness::{RecordHeader, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::aperture::{Lease, Leased};
use crate::memory::GuestRam;

mod baseline;
mod comparison;
mod phases;
mod place;
mod post;
mod record;

use place::Place;
use record::field;

pub use comparison::{Counterpart, SAMPLES_MAX, Sample};
pub use phases::{MARKER, PHASES_MAX, Phase, PhaseRecorder};
pub use post::{BOXES, PostOffice};
pub use record::{Figure, PanicInfo, RecordError, Recorded};

/// Most figures that a guest can report.
pub const FIGURES_MAX: usize = 1024;
/// Longest that a fetch waits, whatever the guest asks for.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(120);

/// Finds the memory object behind guest-physical addresses outside RAM: the aperture, seen from the harness.
pub trait MappedMemory: Send + Sync {
    /// What is behind the range, if all of it is in one mapping.
    fn object(&self, address: u64, bytes: u64) -> Option<Leased>;

    /// The same by offset into the aperture.
    fn placed(&self, offset: u64, bytes: u64) -> Option<Leased>;
}

/// The test bench of one VM.
pub struct Harness {
    ram: Arc<GuestRam>,
    mapped: Arc<dyn MappedMemory>,
    post: Arc<PostOffice>,
    phases: PhaseRecorder,
    figures: Mutex<Vec<Figure>>,
    samples: Mutex<Vec<Sample>>,
    counterpart: Option<Arc<dyn Counterpart>>,
    /// Index of the VM, and number of VMs.
    identity: (u32, u32),
    panic: Mutex<Option<PanicInfo>>,
    tsc_khz: u32,
    stop: Arc<AtomicBool>,
}

impl Harness {
    /// A test bench for the guest with this RAM and mapped memory. Waiting and measuring end soon after
    /// `stop` is set and the post office is told.
    pub fn new(
        ram: Arc<GuestRam>,
        mapped: Arc<dyn MappedMemory>,
        post: Arc<PostOffice>,
        phases: PhaseRecorder,
        tsc_khz: u32,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            ram,
            mapped,
            post,
            phases,
            figures: Mutex::default(),
            samples: Mutex::default(),
            counterpart: None,
            identity: (0, 1),
            panic: Mutex::default(),
            tsc_khz,
            stop,
        }
    }

    /// Has the guest's samples compared with `counterpart`. Without one they are only kept.
    #[must_use]
    pub fn compared_with(mut self, counterpart: Option<Arc<dyn Counterpart>>) -> Self {
        self.counterpart = counterpart;
        self
    }

    /// Has the guest be told that it is number `vm` of `vms`.
    #[must_use]
    pub fn numbered(mut self, vm: u32, vms: u32) -> Self {
        self.identity = (vm, vms);
        self
    }

    /// Acts on the record at guest-physical `address`.
    pub fn record(&self, address: u32) -> Recorded {
        self.record_at(Place::Ram(address.into()))
    }

    /// Acts on the record so many units of [`wire::RECORD_UNIT_BYTES`] into the aperture.
    pub fn record_in_aperture(&self, units: u32) -> Recorded {
        self.record_at(Place::Aperture(u64::from(units) * wire::RECORD_UNIT_BYTES))
    }

    fn record_at(&self, place: Place) -> Recorded {
        self.act(place).unwrap_or_else(|error| {
            log::debug!("harness: {error}");
            Recorded::Refused(error)
        })
    }

    /// Phases that have ended.
    pub fn phases(&self) -> Vec<Phase> {
        self.phases.finished()
    }

    /// Figures reported.
    pub fn figures(&self) -> Vec<Figure> {
        lock(&self.figures).clone()
    }

    /// Samples compared with the host, in order.
    pub fn samples(&self) -> Vec<Sample> {
        lock(&self.samples).clone()
    }

    /// Last words, if there were any.
    pub fn panic(&self) -> Option<PanicInfo> {
        lock(&self.panic).clone()
    }

    fn act(&self, place: Place) -> Result<Recorded, RecordError> {
        if let Place::Ram(address) = place
            && !address.is_multiple_of(8)
        {
            return Err(RecordError::Misaligned { address });
        }
        let header: RecordHeader = self.copy(place)?;
        let kind =
            RecordKind::from_wire(header.kind).ok_or(RecordError::Kind { kind: header.kind })?;
        match kind {
            RecordKind::PhaseBegin => self.phase_begin(&self.whole(place, kind)?)?,
            RecordKind::PhaseEnd => self.phase_end(&self.whole(place, kind)?)?,
            RecordKind::Ratio => self.figure(&self.whole(place, kind)?)?,
            RecordKind::Post => self.post_letter(&self.whole(place, kind)?)?,
            RecordKind::Fetch => self.fetch_letter(place, self.whole(place, kind)?)?,
            RecordKind::Baseline => self.measure(place, self.whole(place, kind)?)?,
            RecordKind::Comparison => self.compare(place, self.whole(place, kind)?)?,
            RecordKind::Panic => self.last_words(&self.whole(place, kind)?),
            RecordKind::Identity => self.identify(place, self.whole(place, kind)?)?,
            RecordKind::Park => {
                let _: RecordHeader = self.whole(place, kind)?;
                return Ok(Recorded::Park);
            }
        }
        Ok(Recorded::Done)
    }

    fn copy<T: FromBytes + IntoBytes + KnownLayout>(&self, place: Place) -> Result<T, RecordError> {
        let mut record = T::new_zeroed();
        self.read(place, record.as_mut_bytes())?;
        Ok(record)
    }

    /// The whole record, whose head is checked once more: the guest may have changed it since.
    fn whole<T>(&self, place: Place, kind: RecordKind) -> Result<T, RecordError>
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable,
    {
        let record: T = self.copy(place)?;
        let header = RecordHeader::read_from_prefix(record.as_bytes())
            .map_or_else(|_| RecordHeader::default(), |(header, _)| header);
        if header.kind != kind as u32 {
            return Err(RecordError::Kind { kind: header.kind });
        }
        if header.bytes as usize != size_of::<T>() {
            return Err(RecordError::Bytes {
                kind,
                bytes: header.bytes,
                wanted: size_of::<T>(),
            });
        }
        Ok(record)
    }

    fn phase_begin(&self, record: &wire::PhaseBegin) -> Result<(), RecordError> {
        let path = match record.path {
            0 => wire::PhasePath::Setup,
            1 => wire::PhasePath::Control,
            2 => wire::PhasePath::Data,
            value => return Err(field(RecordKind::PhaseBegin, "path", value)),
        };
        self.phases
            .begin(text(&record.name, record.name_bytes), path)
    }

    fn phase_end(&self, record: &wire::PhaseEnd) -> Result<(), RecordError> {
        self.phases
            .end(record.operations, record.bytes, record.doorbells)
    }

    fn figure(&self, record: &wire::Ratio) -> Result<(), RecordError> {
        let value = f64::from_bits(record.value_bits);
        if !value.is_finite() {
            return Err(field(RecordKind::Ratio, "value_bits", record.value_bits));
        }
        let mut figures = lock(&self.figures);
        if figures.len() == FIGURES_MAX {
            return Err(RecordError::TooMany {
                kind: RecordKind::Ratio,
                max: FIGURES_MAX,
            });
        }
        figures.push(Figure {
            name: text(&record.name, record.name_bytes),
            value,
            unit: text(&record.unit, record.unit_bytes),
        });
        Ok(())
    }

    fn post_letter(&self, letter: &wire::Letter) -> Result<(), RecordError> {
        let left = self.post.leave(letter.slot, letter.data);
        left.ok_or_else(|| field(RecordKind::Post, "slot", letter.slot))
    }

    fn fetch_letter(&self, place: Place, mut letter: wire::Letter) -> Result<(), RecordError> {
        if letter.slot as usize >= BOXES {
            return Err(field(RecordKind::Fetch, "slot", letter.slot));
        }
        let wait = Duration::from_millis(letter.wait.into()).min(FETCH_WAIT_MAX);
        letter.answer(self.post.fetch(letter.slot, wait, &self.stop));
        self.reply(place, letter.as_bytes())
    }

    fn measure(&self, place: Place, mut request: wire::Baseline) -> Result<(), RecordError> {
        let work = baseline::Work::new(&request)?;
        let memory = self.find(request.address, request.bytes);
        let elapsed = memory.and_then(|memory| work.run(&memory, &self.stop));
        request.ticks = elapsed.map_or(0, |time| ticks(time, self.tsc_khz));
        self.reply(place, request.as_bytes())
    }

    fn compare(&self, place: Place, mut request: wire::Comparison) -> Result<(), RecordError> {
        if lock(&self.samples).len() >= SAMPLES_MAX {
            return Err(RecordError::TooMany {
                kind: RecordKind::Comparison,
                max: SAMPLES_MAX,
            });
        }
        let sample = Sample::take(&request, self.counterpart.as_deref())?;
        request.native_ns = sample.native_ns.unwrap_or(0);
        lock(&self.samples).push(sample);
        self.reply(place, request.as_bytes())
    }

    fn identify(&self, place: Place, mut identity: wire::Identity) -> Result<(), RecordError> {
        (identity.vm, identity.vms) = self.identity;
        self.reply(place, identity.as_bytes())
    }

    fn find(&self, address: u64, bytes: u64) -> Option<Leased> {
        match self.ram.object(address, bytes) {
            Ok((memory, offset)) => Some(Leased {
                memory,
                offset,
                access: Access::ReadWrite,
                lease: Lease::default(),
            }),
            Err(_) => self.mapped.object(address, bytes),
        }
    }

    fn last_words(&self, record: &wire::Panic) {
        // The first to panic is the cause; what others say later is consequence.
        lock(&self.panic).get_or_insert_with(|| PanicInfo {
            file: text(&record.file, record.file_bytes),
            line: record.line,
            message: text(&record.message, record.message_bytes),
        });
    }
}

/// Whether the harness was told to stop.
fn stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Acquire)
}

/// A time in ticks of a counter of `khz` kHz; at least one, since zero means something else to the guest.
fn ticks(time: Duration, khz: u32) -> u64 {
    let ticks = time.as_nanos() * u128::from(khz) / 1_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX).max(1)
}

/// Text of a guest, of which `used` bytes are said to be in use.
fn text(bytes: &[u8], used: u32) -> String {
    let used = bytes.len().min(used as usize);
    crate::console::printable(&bytes[..used])
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
