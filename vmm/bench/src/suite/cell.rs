//! What a program did by one way.

use causeway_bench_medians::{Distribution, Quoted, Ratio};
use causeway_bench_suites::{Exits, Program, Work};
use serde::Serialize;

use super::lives::Lives;
use super::models::{Elsewhere, Models};

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// What a program did by one way.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SuiteCell {
    /// The program: its suite and name.
    pub workload: String,
    /// The way: `native`, `process` or `guest`.
    pub mechanism: &'static str,
    /// Times from start to end, of the program natively and in a guest, and of the whole command
    /// `causeway cuda`; if there are several ways, taken in turn.
    pub time: Distribution,
    /// The same, taken beside no other way; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone: Option<Distribution>,
    /// Ratio of the times to those of the program natively, in turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_native: Option<Ratio>,
    /// Ratio of the medians of the times alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_over_native: Option<Ratio>,
    /// The less favourable of the two ratios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quoted: Option<Quoted>,
    /// What the program did on the GPU in its last run, or in that with `exits`; absent natively.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// Exits of the guest during the program's life, of that run which had the most; `data_path` is
    /// that of the run which had most exits in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exits: Option<Exits>,
    /// Exits that reached the VMM, whatever they were for, divided by launches and replays; absent
    /// without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exits_per_launch: Option<f64>,
    /// The same exits, divided by the MiB that the GPU's copies and fills have written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exits_per_mib: Option<f64>,
    /// What the same work would take by other ways to virtualize a GPU, at least: calculated from
    /// `work` and the exits of single operations in the report of `--exits`. Waits, copies, and the
    /// processor's own accesses of the GPU's memory, are not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
}

impl SuiteCell {
    /// Returns what a program did by a way; `None` if a signal came first. `native` are its lives
    /// natively.
    pub fn of(
        program: &Program,
        lives: &Lives,
        (native, models): (Option<&Lives>, Option<&Models>),
    ) -> Option<Self> {
        let native = native.filter(|native| native.way != lives.way);
        let over_native = native.and_then(|native| {
            let pairs = lives.in_turn_ns.iter().zip(&native.in_turn_ns);
            Ratio::of(pairs.map(|(ns, native)| (*ns, *native)))
        });
        let alone_over_native =
            native.and_then(|native| Ratio::of_medians(&lives.alone_ns, &native.alone_ns));
        let exits = lives.exits.clone();
        let per = |count: f64| {
            let all = exits.as_ref()?.user_space_per_operation;
            (count > 0.0).then(|| all / count)
        };
        let work = lives.work;
        let launches = work.map_or(0.0, |work| (work.launches + work.replays) as f64);
        let mib = work.map_or(0.0, |work| work.written_bytes as f64 / MIB);
        Some(Self {
            workload: program.label(),
            mechanism: lives.way.name(),
            time: Distribution::of(lives.in_turn_ns.clone())?,
            alone: Distribution::of(lives.alone_ns.clone()),
            over_native,
            alone_over_native,
            quoted: Quoted::of(alone_over_native, over_native),
            work,
            exits_per_launch: per(launches),
            exits_per_mib: per(mib),
            exits,
            elsewhere: models
                .zip(work)
                .map(|(models, work)| models.elsewhere(&work)),
        })
    }
}
