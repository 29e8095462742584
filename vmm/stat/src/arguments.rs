//! What `causeway stat` is told.

use clap::Args;

use causeway_terminal::Failure;
use causeway_terminal::check_range;

/// Shortest and longest interval in milliseconds.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 20..=3_600_000;

/// Arguments of `stat`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys of the live view: up and down (or k and j) choose a guest, q ends it.
Scrapers: `causeway run --metrics-socket PATH`; docs/observing.md has the schemas.")]
pub struct StatArguments {
    /// Process to watch: a `causeway run` or `causeway serve`.
    #[arg(
        value_name = "PID",
        value_parser = clap::value_parser!(u32).range(1..),
        required_unless_present = "all"
    )]
    pub pid: Option<u32>,
    /// Watch all processes of this user; those of all users, if this is root.
    #[arg(long, conflicts_with = "pid")]
    pub all: bool,
    /// Print JSON in place of the live view: an object in a line for each guest and interval.
    #[arg(long)]
    pub json: bool,
    /// Print at once what there is, with rates over the whole life of each guest, and end.
    #[arg(long, requires = "json", conflicts_with_all = ["count", "interval_ms"])]
    pub once: bool,
    /// Length of an interval in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub interval_ms: u64,
    /// End after so many intervals; otherwise when it is ended, or what it watches ends.
    #[arg(long, value_name = "N", requires = "json", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

impl StatArguments {
    /// Refuses values out of range.
    pub fn check(&self) -> Result<(), Failure> {
        check_range("--interval-ms", self.interval_ms, INTERVAL_MS)
    }
}
