//! Acts on the records of one guest, and keeps what they report.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use causeway_testdev_records as wire;
use causeway_testdev_records::{MAILBOXES, Mark, PhasePath, RecordHeader, RecordKind, Totals};
use causeway_vmm::counters::ExitKey;
use causeway_vmm::exit_counts::VmExits;
use parking_lot::Mutex;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::baseline;
use crate::comparison::{Counterpart, SAMPLES_MAX, SINGLES_RECORDS_MAX, Sample, Singles};
use crate::interval::CountedExits;
use crate::mailboxes::Mailboxes;
use crate::marks::{MarkState, MarkText};
use crate::memory::{Place, RecordMemory};
use crate::phases::{Phase, PhaseRecorder};
use crate::program::ProgramLife;
use crate::record::{Figure, PanicInfo, RecordError, Recorded, field};

/// Maximum number of figures that one guest can report.
pub const FIGURES_MAX: usize = 1024;
/// Maximum time that a request for mail waits, even if the guest asks for more.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(120);

/// What the test device of one VM knows about the run that the VM belongs to.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// Index of the VM among those of the run, from 0.
    pub vm: u32,
    /// Number of VMs in the run.
    pub vms: u32,
    /// Mailboxes that all VMs of the run share: a channel between them. `None` refuses mail.
    pub mailboxes: Option<Arc<Mailboxes>>,
    /// Repeats natively the operations that the guest times. With `None`, samples of the guest are
    /// kept without the host's time.
    pub counterpart: Option<Arc<dyn Counterpart>>,
}

impl Default for RunContext {
    /// Returns the context of the only VM of a run, whose samples are not compared.
    fn default() -> Self {
        Self {
            vm: 0,
            vms: 1,
            mailboxes: Some(Arc::default()),
            counterpart: None,
        }
    }
}

/// Everything that one guest has reported to its test device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Phases of the guest's run, in order. One that is open has its counts up to the time of this
    /// report or, if that was earlier, to the end of the VM.
    pub phases: Vec<Phase>,
    /// Number of phases that were refused because the guest had reported [`crate::PHASES_MAX`].
    pub phases_refused: u64,
    /// Figures, in the order in which the guest reported them.
    pub figures: Vec<Figure>,
    /// Times that the guest reported, with the host's times for the same operations, in the order
    /// in which the guest reported them.
    pub samples: Vec<Sample>,
    /// Times of single operations that the guest reported, with the host's, in the order in which
    /// the guest reported them.
    pub singles: Vec<Singles>,
    /// The guest's first panic; `None` if it has reported none.
    pub panic: Option<PanicInfo>,
    /// Exits in the life of the program that the guest runs, up to the time of this report if the
    /// program has not ended; `None` if the guest has not marked the begin of a program.
    pub program: Option<CountedExits>,
}

/// Acts on the records by which one guest addresses the test device, and keeps what they report.
#[derive(Debug)]
pub struct Recorder {
    memory: RecordMemory,
    context: RunContext,
    phases: PhaseRecorder,
    program: ProgramLife,
    marks: Mutex<MarkState>,
    /// What the guest has reported, without its phases and its program's life.
    report: Mutex<Report>,
    tsc_khz: u32,
    stop: Arc<AtomicBool>,
}

impl Recorder {
    /// Returns a recorder without reports. `memory` is the guest's RAM and aperture, in which the
    /// guest writes its records; `context` is what the VM shares with the other VMs of its run.
    /// `exits` provides the counts of exits of the guest's VM, and `tsc_khz` is the frequency of
    /// the guest's time stamp counter in kHz.
    ///
    /// A record that asks for mail makes [`Self::record`] wait for the mail. This wait ends early
    /// if `stop` is set and then [`Mailboxes::wake`] is called.
    pub fn new(
        memory: RecordMemory,
        context: RunContext,
        exits: VmExits,
        tsc_khz: u32,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            memory,
            context,
            phases: PhaseRecorder::new(exits.clone()),
            program: ProgramLife::new(exits),
            marks: Mutex::default(),
            report: Mutex::default(),
            tsc_khz,
            stop,
        }
    }

    /// Returns what the guest has reported so far.
    pub fn report(&self) -> Report {
        Report {
            phases: self.phases.phases(),
            phases_refused: self.phases.refused(),
            program: self.program.counted(),
            ..self.report.lock().clone()
        }
    }

    /// Returns the guest's first panic; `None` if it has reported none.
    pub fn panic(&self) -> Option<PanicInfo> {
        self.report.lock().panic.clone()
    }

    /// Ends the open phase, because the VM has come to its end: by `exit` of the guest, which KVM
    /// and the VMM have counted, or by the host. Calls after the first do nothing.
    pub fn vm_ends(&self, exit: Option<ExitKey>) {
        self.phases.vm_ends(exit);
    }

    /// Acts on the record that the guest has written to its RAM at guest-physical `address`, and
    /// returns what was done.
    pub fn record(&self, address: u32) -> Recorded {
        self.record_at(Place::Ram(address.into()))
    }

    /// Acts on the record that the guest has written to its aperture, and returns what was done.
    /// The record's offset in the aperture is `units` times [`wire::RECORD_UNIT_BYTES`] bytes.
    pub fn record_in_aperture(&self, units: u32) -> Recorded {
        self.record_at(Place::Aperture(u64::from(units) * wire::RECORD_UNIT_BYTES))
    }

    /// Adds the four bytes of `word` to the text of the guest's next mark.
    pub fn mark_text(&self, word: u32) {
        self.marks.lock().add(word);
    }

    /// Acts on the guest's mark with this number.
    pub fn mark(&self, number: u32) {
        // Held throughout, so that text, deed and answer belong to one mark although other virtual
        // CPUs make marks.
        let mut marks = self.marks.lock();
        let now = Instant::now();
        let text = marks.take_text();
        let marked = self.act_on_mark(number, &text, now);
        marks.set_answer(marked.is_ok());
        drop(marks);
        if let Err(error) = marked {
            log::debug!("mark refused: {error}");
        }
    }

    /// Returns what a load from the port of marks returns: whether the device has acted on the last
    /// mark.
    pub fn mark_answer(&self) -> u32 {
        self.marks.lock().answer()
    }

    fn act_on_mark(&self, number: u32, text: &MarkText, now: Instant) -> Result<(), RecordError> {
        let begin = |path| self.phases.begin(text.name(), path);
        match Mark::from_wire(number).ok_or(RecordError::Mark { number })? {
            Mark::Forget => Ok(()),
            Mark::ProgramBegin => self.program.begin(),
            Mark::ProgramEnd => {
                // An error says that no phase was open, as it should be.
                let _ = self.phases.end(Totals::default());
                self.program.end(now)
            }
            Mark::SetupBegin => begin(PhasePath::Setup),
            Mark::ControlBegin => begin(PhasePath::Control),
            Mark::DataBegin => begin(PhasePath::Data),
            Mark::PhaseEnd => self.phases.end(Totals::default()),
            Mark::Totals => self.phases.set_totals(text.totals()),
        }
    }

    fn record_at(&self, place: Place) -> Recorded {
        self.act(place).unwrap_or_else(|error| {
            // The run's user chooses whether there is mail; other records are the guest's mistakes.
            let level = match error {
                RecordError::Mail => log::Level::Warn,
                _ => log::Level::Debug,
            };
            log::log!(level, "vm{}: record refused: {error}", self.context.vm);
            Recorded::Refused(error)
        })
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
            RecordKind::Figure => self.figure(&self.whole(place, kind)?)?,
            RecordKind::Post => self.post(&self.whole(place, kind)?)?,
            RecordKind::Fetch => self.fetch(place, self.whole(place, kind)?)?,
            RecordKind::Baseline => self.measure(place, self.whole(place, kind)?)?,
            RecordKind::Comparison => self.compare(place, self.whole(place, kind)?)?,
            RecordKind::Singles => self.singles(&self.whole(place, kind)?)?,
            RecordKind::Panic => self.panicked(&self.whole(place, kind)?),
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
        self.memory.read(place, record.as_mut_bytes())?;
        Ok(record)
    }

    /// Copies the whole record, and checks its header again: the guest may have changed it since.
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
        let path = wire::PhasePath::from_wire(record.path);
        let path = path.ok_or_else(|| field(RecordKind::PhaseBegin, "path", record.path))?;
        self.phases
            .begin(text(&record.name, record.name_bytes), path)
    }

    fn phase_end(&self, record: &wire::PhaseEnd) -> Result<(), RecordError> {
        self.phases.end(Totals {
            operations: record.operations,
            bytes: record.bytes,
            doorbells: record.doorbells,
        })
    }

    fn figure(&self, record: &wire::Figure) -> Result<(), RecordError> {
        let value = f64::from_bits(record.value_bits);
        if !value.is_finite() {
            return Err(field(RecordKind::Figure, "value_bits", record.value_bits));
        }
        let figure = Figure {
            name: text(&record.name, record.name_bytes),
            value,
            unit: text(&record.unit, record.unit_bytes),
        };
        let figures = &mut self.report.lock().figures;
        keep(figures, figure, FIGURES_MAX, RecordKind::Figure)
    }

    fn post(&self, mail: &wire::Mail) -> Result<(), RecordError> {
        let posted = self.mailboxes()?.post(mail.mailbox, mail.data);
        posted.ok_or_else(|| field(RecordKind::Post, "mailbox", mail.mailbox))
    }

    fn mailboxes(&self) -> Result<&Mailboxes, RecordError> {
        self.context.mailboxes.as_deref().ok_or(RecordError::Mail)
    }

    fn fetch(&self, place: Place, mut mail: wire::Mail) -> Result<(), RecordError> {
        let mailboxes = self.mailboxes()?;
        if mail.mailbox as usize >= MAILBOXES {
            return Err(field(RecordKind::Fetch, "mailbox", mail.mailbox));
        }
        let wait = Duration::from_millis(mail.wait.into()).min(FETCH_WAIT_MAX);
        mail.answer(mailboxes.fetch(mail.mailbox, wait, &self.stop));
        self.memory.reply(place, mail.as_bytes())
    }

    fn measure(&self, place: Place, mut request: wire::Baseline) -> Result<(), RecordError> {
        let work = baseline::Work::new(&request)?;
        let memory = self.memory.find(request.address, request.bytes);
        let elapsed = memory.and_then(|memory| work.run(&memory, &self.stop));
        request.ticks = elapsed.map_or(0, |time| ticks(time, self.tsc_khz));
        self.memory.reply(place, request.as_bytes())
    }

    fn compare(&self, place: Place, mut request: wire::Comparison) -> Result<(), RecordError> {
        let kind = RecordKind::Comparison;
        // Before the operations are repeated, which takes time.
        room(&self.report.lock().samples, SAMPLES_MAX, kind)?;
        let sample = Sample::take(&request, self.context.counterpart.as_deref())?;
        request.native_ns = sample.native_ns.unwrap_or(0);
        keep(&mut self.report.lock().samples, sample, SAMPLES_MAX, kind)?;
        self.memory.reply(place, request.as_bytes())
    }

    fn singles(&self, request: &wire::Singles) -> Result<(), RecordError> {
        let kind = RecordKind::Singles;
        let max = SINGLES_RECORDS_MAX;
        room(&self.report.lock().singles, max, kind)?;
        if request.count as usize > wire::SINGLES_MAX {
            return Err(field(kind, "count", request.count));
        }
        let mut times = vec![0_u64; request.count as usize];
        let place = Place::Ram(request.address);
        self.memory.read(place, times.as_mut_bytes())?;
        let counterpart = self.context.counterpart.as_deref();
        let singles = Singles::take(request, times, counterpart, &self.stop)?;
        keep(&mut self.report.lock().singles, singles, max, kind)
    }

    fn identify(&self, place: Place, mut identity: wire::Identity) -> Result<(), RecordError> {
        (identity.vm, identity.vms) = (self.context.vm, self.context.vms);
        self.memory.reply(place, identity.as_bytes())
    }

    fn panicked(&self, record: &wire::Panic) {
        // The first panic is the cause of those that follow.
        let panic = &mut self.report.lock().panic;
        panic.get_or_insert_with(|| PanicInfo {
            file: text(&record.file, record.file_bytes),
            line: record.line,
            message: text(&record.message, record.message_bytes),
        });
    }
}

/// Returns [`RecordError::TooMany`] if `kept` has `max` records of `kind`.
fn room<T>(kept: &[T], max: usize, kind: RecordKind) -> Result<(), RecordError> {
    match kept.len() < max {
        true => Ok(()),
        false => Err(RecordError::TooMany { kind, max }),
    }
}

/// Adds `record` to `kept`, unless that has `max` records of `kind`.
fn keep<T>(kept: &mut Vec<T>, record: T, max: usize, kind: RecordKind) -> Result<(), RecordError> {
    room(kept, max, kind)?;
    kept.push(record);
    Ok(())
}

/// Converts `time` into ticks of a counter of `khz` kHz. The result is at least one, since zero
/// means "not mapped" to the guest.
pub(crate) fn ticks(time: Duration, khz: u32) -> u64 {
    let ticks = time.as_nanos() * u128::from(khz) / 1_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX).max(1)
}

/// Returns the text of a guest in the first `used` bytes, with control characters replaced.
fn text(bytes: &[u8], used: u32) -> String {
    let used = bytes.len().min(used as usize);
    causeway_vmm::console::printable(&bytes[..used])
}

#[cfg(test)]
mod tests {
    use super::*;

    use causeway_bench_workloads::Line;

    impl Recorder {
        /// Keeps phases from beginning or ending until the result is dropped.
        pub(crate) fn hold_phases(&self) -> impl Sized + '_ {
            self.phases.hold()
        }

        /// Returns whether a mark is being made for so long.
        pub(crate) fn marks_are_held(&self, patience: Duration) -> bool {
            self.marks.try_lock_for(patience).is_none()
        }

        /// Keeps as many samples and records of single operations as a guest can report, but one.
        pub(crate) fn fill_but_one(&self) {
            let line = Line::Submit;
            let report = &mut *self.report.lock();
            let sample = Sample {
                line,
                operations: 1,
                bytes: 0,
                guest_ns: 1,
                native_ns: None,
            };
            report.samples.resize(SAMPLES_MAX - 1, sample);
            let singles = Singles {
                line,
                bytes: 0,
                timer_ns: 0,
                guest_ns: Vec::new(),
                native_ns: Vec::new(),
            };
            report.singles.resize(SINGLES_RECORDS_MAX - 1, singles);
        }
    }
}
