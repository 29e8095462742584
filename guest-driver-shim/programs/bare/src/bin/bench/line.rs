//! Measures one line of the table: each repetition has its own phase, and the host repeats it
//! natively afterwards.

use core::fmt;

use causeway_bare::{Phase, Totals, compare, singles, ticks};
use causeway_bench_workloads::singles::{SINGLES_MIN, fill, timer_cost};
use causeway_bench_workloads::{LINES, Line, PEER_LINES};
use causeway_testdev_records::{PhasePath, SINGLES_MAX};

use crate::Bench;

const REPETITIONS: u32 = 101;
/// Number of repetitions that are not counted, because they warm up pages, clocks and caches.
const WARM_UP: u32 = 3;

/// How long the single operations of a line may take together, in nanoseconds.
const SINGLES_NS: u64 = 2_000_000_000;

/// The lines and repetitions that the guest's arguments ask for.
#[derive(Clone, Copy)]
pub struct Selection {
    repetitions: u32,
    peers_mib: Option<u32>,
    only: Option<&'static str>,
}

/// An argument that is not valid.
pub struct BadArgument<'a>(&'a str);

impl fmt::Display for BadArgument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is none of repetitions=N (1 to 200), peers=MIB and only=TEXT",
            self.0
        )
    }
}

impl Selection {
    /// Reads the guest's arguments, which are separated by commas. `only` is the last: names of
    /// lines have commas, too.
    pub fn parse(text: &str) -> Result<Self, BadArgument<'_>> {
        let mut selection = Self {
            repetitions: REPETITIONS,
            peers_mib: None,
            only: None,
        };
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(name) = rest.strip_prefix("only=") {
                selection.only = Some(known(name).ok_or(BadArgument(rest))?);
                break;
            }
            let (word, others) = rest.split_once(',').unwrap_or((rest, ""));
            rest = others;
            if word.is_empty() {
                continue;
            }
            let pair = word.split_once('=').ok_or(BadArgument(word))?;
            let number: u32 = pair.1.parse().map_err(|_| BadArgument(word))?;
            match (pair.0, number) {
                ("repetitions", 1..=200) => selection.repetitions = number,
                ("peers", 1..) => selection.peers_mib = Some(number),
                _ => return Err(BadArgument(word)),
            }
        }
        Ok(selection)
    }

    /// Returns how much memory two GPUs share, in MiB, if they are to be measured.
    pub fn peers_mib(&self) -> Option<u64> {
        self.peers_mib.map(u64::from)
    }

    /// Returns whether the arguments ask for `line`.
    pub fn wants(&self, line: Line) -> bool {
        self.only.is_none_or(|name| line.name() == name)
    }
}

/// Returns the name of a line, as the table shows it.
fn known(name: &str) -> Option<&'static str> {
    let lines = LINES.iter().chain(PEER_LINES);
    lines.map(|line| line.name()).find(|known| *known == name)
}

/// Describes what a line repeats.
#[derive(Clone, Copy)]
pub struct Sample {
    pub line: Line,
    pub path: PhasePath,
    /// Number of operations in one repetition.
    pub operations: u32,
    /// Size of each operation in bytes.
    pub bytes: u64,
}

/// Does the operations of one repetition.
pub trait Repeat<'d> {
    /// Prepares a repetition. This is not timed and may cause exits. The device should be awake
    /// when it returns.
    fn prepare(&mut self, bench: &mut Bench<'d>);
    /// Does the operations that are timed.
    fn run(&mut self, bench: &mut Bench<'d>);
    /// Checks the results and frees what the repetition used. This is not timed.
    fn finish(&mut self, bench: &mut Bench<'d>);
    /// Does one operation, which is timed by itself. Returns false, and does nothing, if operations
    /// have no end of their own, as launches that are waited for together.
    fn one(&mut self, _: &mut Bench<'d>) -> bool {
        false
    }
}

impl<'d> Bench<'d> {
    /// Measures a line if the arguments ask for it.
    pub fn measure(&mut self, sample: Sample, repeat: &mut impl Repeat<'d>) {
        if !self.selection.wants(sample.line) {
            return;
        }
        for _ in 0..WARM_UP {
            repeat.prepare(self);
            repeat.run(self);
            repeat.finish(self);
        }
        for _ in 0..self.selection.repetitions {
            let ns = self.once(sample, repeat);
            compare(sample.line as u32, sample.operations, sample.bytes, ns);
        }
        // Samples of one operation are single operations already.
        if sample.operations != 1 {
            self.one_by_one(sample, repeat);
        }
    }

    /// Times operations one by one, if they can be.
    fn one_by_one(&mut self, sample: Sample, repeat: &mut impl Repeat<'d>) {
        repeat.prepare(self);
        if repeat.one(self) {
            let clock = self.machine.clock();
            let wanted = SINGLES_MIN.saturating_mul(self.selection.repetitions as usize);
            let mut times = [0; SINGLES_MAX];
            let room = &mut times[..wanted.min(SINGLES_MAX)];
            let count = fill(room, clock.ticks_in(SINGLES_NS), ticks, || {
                repeat.one(self);
            });
            let times = &mut times[..count];
            for time in &mut *times {
                *time = clock.nanoseconds(*time);
            }
            let timer_ns = clock.nanoseconds(timer_cost(ticks));
            singles(sample.line as u32, sample.bytes, timer_ns, times);
        }
        repeat.finish(self);
    }

    fn once(&mut self, sample: Sample, repeat: &mut impl Repeat<'d>) -> u64 {
        repeat.prepare(self);
        let rung = self.pipeline.commands.doorbells_rung();
        let phase = Phase::begin(sample.path, sample.line.name());
        let start = ticks();
        repeat.run(self);
        let taken = ticks() - start;
        let doorbells = self.pipeline.commands.doorbells_rung() - rung;
        phase.end(Totals {
            operations: sample.operations.into(),
            bytes: sample.bytes * u64::from(sample.operations),
            doorbells,
        });
        repeat.finish(self);
        self.machine.clock().nanoseconds(taken)
    }
}
