//! One line of the table: repetitions, each a phase of its own, each followed by the same natively.

use core::fmt;

use causeway_bare::{Phase, Totals, compare, ticks};
use causeway_bench_workloads::Line;
use causeway_testdev_records::PhasePath;

use crate::Bench;

const REPETITIONS: u32 = 101;
/// Repetitions that are not counted: they bring pages, clocks and caches up.
const WARM_UP: u32 = 3;

/// What is to be measured.
#[derive(Clone, Copy)]
pub struct Selection {
    repetitions: u32,
    only: Option<&'static str>,
}

/// An argument that means nothing.
pub struct BadArgument<'a>(&'a str);

impl fmt::Display for BadArgument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is none of repetitions=N (1 to 200) and only=TEXT",
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
            let number = word
                .strip_prefix("repetitions=")
                .and_then(|n| n.parse().ok());
            let number = number.filter(|n| (1..=200).contains(n));
            selection.repetitions = number.ok_or(BadArgument(word))?;
        }
        Ok(selection)
    }

    /// Whether a line is wanted.
    pub fn wants(&self, line: Line) -> bool {
        self.only.is_none_or(|name| line.name() == name)
    }
}

/// The name of a line, as the table has it.
fn known(name: &str) -> Option<&'static str> {
    let lines = causeway_bench_workloads::LINES.iter();
    lines.map(|line| line.name()).find(|known| *known == name)
}

/// What is repeated.
#[derive(Clone, Copy)]
pub struct Sample {
    pub line: Line,
    pub path: PhasePath,
    /// Operations of one repetition.
    pub operations: u32,
    /// Bytes of each operation.
    pub bytes: u64,
}

/// A way to do the operations of one repetition.
pub trait Repeat<'d> {
    /// Gets ready: not timed, may exit. The device should be awake when it returns.
    fn prepare(&mut self, bench: &mut Bench<'d>);
    /// What is timed.
    fn run(&mut self, bench: &mut Bench<'d>);
    /// Clears up and checks: not timed.
    fn finish(&mut self, bench: &mut Bench<'d>);
}

impl<'d> Bench<'d> {
    /// Measures a line, if it is wanted.
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
