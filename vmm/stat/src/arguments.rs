//! Arguments of `causeway stat`.

use clap::Args;

use causeway_terminal::{Failure, check_range, number};

/// Shortest and longest interval in milliseconds.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 20..=3_600_000;

/// Arguments of `causeway stat`, as the user typed them.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys of the live view: up and down (or k and j) choose a guest, q quits.
For metrics scrapers: `causeway run --metrics 127.0.0.1:9400`; docs/observing.md has the schemas.")]
pub struct StatArguments {
    /// Process ID of the `causeway run` or `causeway serve` to show.
    #[arg(
        value_name = "PID",
        value_parser = number::<u32>(1..=u32::MAX.into(), ""),
        required_unless_present = "all"
    )]
    pub pid: Option<u32>,
    /// Show all processes of this user; as root, those of all users.
    #[arg(long, conflicts_with = "pid")]
    pub all: bool,
    /// Print JSON instead of the live view: in each interval, one line for each guest.
    #[arg(long)]
    pub json: bool,
    /// Print a table instead of the live view, or with --json one line for each guest, and end.
    /// Rates are averages since the guest started.
    #[arg(long, conflicts_with_all = ["count", "interval_ms"])]
    pub once: bool,
    /// Time between two updates of the view, or two lines of a guest with --json, in milliseconds,
    /// 20 to 3600000.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = number::<u64>(INTERVAL_MS, " ms")
    )]
    pub interval_ms: u64,
    /// With --json, end after this many intervals. The default is to end when the last process that
    /// is shown ends.
    #[arg(
        long,
        value_name = "N",
        requires = "json",
        value_parser = number::<u64>(1..=u64::MAX, "")
    )]
    pub count: Option<u64>,
}

impl StatArguments {
    /// Checks the values that clap does not check.
    ///
    /// # Errors
    /// A usage failure if `--interval-ms` is out of range.
    pub fn check(&self) -> Result<(), Failure> {
        check_range("--interval-ms", self.interval_ms, INTERVAL_MS, " ms")
    }
}
