//! Medians of repeated measurements with their confidence intervals, and how they are printed.

pub mod figures;
mod singles;

pub use singles::{NotTimed, SINGLES_MIN, SingleTimes, Singles, timers};

use serde::Serialize;

/// Minimum number of samples for a 95 % confidence interval of the median. Five samples do not
/// suffice: with probability 1/16, which is more than 5 %, all of them lie on one side of the
/// median.
pub const INTERVAL_SAMPLES_MIN: usize = 6;

/// Probability that the median lies beyond one of the ends.
const TAIL: f64 = 0.025;

/// Median, confidence interval and extremes of the times that an operation took.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Distribution {
    /// Median time in nanoseconds.
    pub median_ns: f64,
    /// Lower end of the 95 % confidence interval of the median, in nanoseconds; `None` if there are
    /// fewer than [`INTERVAL_SAMPLES_MIN`] samples.
    pub low_ns: Option<f64>,
    /// Upper end of the 95 % confidence interval of the median, in nanoseconds; `None` if `low_ns`
    /// is.
    pub high_ns: Option<f64>,
    /// 99th percentile of the times in nanoseconds, by the nearest-rank method. With fewer than 100
    /// samples, it equals `slowest_ns`.
    pub p99_ns: f64,
    /// Longest time in nanoseconds.
    pub slowest_ns: f64,
    /// Shortest time in nanoseconds.
    pub least_ns: f64,
    /// All times in nanoseconds, in the order in which they were measured.
    pub samples_ns: Vec<f64>,
}

impl Distribution {
    /// Returns the distribution of `samples_ns`, or `None` if there are no samples.
    pub fn of(samples_ns: Vec<f64>) -> Option<Self> {
        let sorted = sorted(&samples_ns);
        let (low_ns, high_ns) = interval(&sorted).unzip();
        Some(Self {
            median_ns: middle(&sorted)?,
            low_ns,
            high_ns,
            p99_ns: percentile(&sorted, 99)?,
            slowest_ns: *sorted.last()?,
            least_ns: *sorted.first()?,
            samples_ns,
        })
    }

    /// Returns both ends of the 95 % confidence interval of the median, or `None` if there are too
    /// few samples.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.low_ns.zip(self.high_ns)
    }
}

/// Median of the ratios of pairs of values, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ratio {
    /// Median of the ratios: for each pair, the first value divided by the second.
    pub median: f64,
    /// Lower end of the interval; `None` if there are fewer than [`INTERVAL_SAMPLES_MIN`] ratios.
    pub low: Option<f64>,
    /// Upper end of the interval; `None` if `low` is.
    pub high: Option<f64>,
}

impl Ratio {
    /// Returns the median of the ratios of `pairs` (numerator, denominator) with its confidence
    /// interval, or `None` if there are no pairs.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let ratios: Vec<f64> = pairs.into_iter().map(|(a, b)| a / b).collect();
        let sorted = sorted(&ratios);
        let (low, high) = interval(&sorted).unzip();
        Some(Self {
            median: middle(&sorted)?,
            low,
            high,
        })
    }
}

impl Ratio {
    /// Returns the ratio of the medians of two series of values that were not taken in pairs, or
    /// `None` if one is empty. Its interval reaches from the least to the greatest ratio of values
    /// in the confidence intervals of both medians; these are so wide that both hold with 95 %.
    pub fn of_medians(numerators: &[f64], denominators: &[f64]) -> Option<Self> {
        let (above, below) = (median_of(numerators)?, median_of(denominators)?);
        let interval = |samples| interval_among(samples, 2);
        let intervals = interval(numerators).zip(interval(denominators));
        let ends = intervals.map(|((low, high), (least, most))| (low / most, high / least));
        let (low, high) = ends.unzip();
        Some(Self {
            median: above / below,
            low,
            high,
        })
    }
}

/// The less favourable of the ratios that were measured alone and in turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quoted {
    /// The greater of both.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// How it was measured: `alone` or `in turn`.
    pub measured: &'static str,
}

impl Quoted {
    /// Returns the less favourable ratio, or `None` unless there are both.
    pub fn of(alone: Option<Ratio>, in_turn: Option<Ratio>) -> Option<Self> {
        let (alone, in_turn) = alone.zip(in_turn)?;
        let (ratio, measured) = match alone.median >= in_turn.median {
            true => (alone, "alone"),
            false => (in_turn, "in turn"),
        };
        Some(Self { ratio, measured })
    }
}

/// Returns the median of `samples`, or `None` if there are none. If their number is even, the
/// median is the mean of the two in the middle.
pub fn median_of(samples: &[f64]) -> Option<f64> {
    middle(&sorted(samples))
}

/// Returns the 95 % confidence interval of the median, or `None` if there are fewer than
/// [`INTERVAL_SAMPLES_MIN`] samples.
///
/// The interval is that of the sign test, which assumes nothing about the distribution of the
/// samples: each sample lies below the true median with probability 1/2, so the number of samples
/// below it is binomially distributed. Both ends are samples, the closest pair for which this gives
/// 95 % confidence.
pub fn interval_of(samples: &[f64]) -> Option<(f64, f64)> {
    interval(&sorted(samples))
}

/// Returns a confidence interval of the median of `samples`, for a comparison of `intervals` such
/// intervals. It is wider than a single 95 % interval, so that with 95 % confidence all `intervals`
/// intervals contain their medians (Bonferroni correction). If there are too few samples for that,
/// the interval is their whole range. Returns `None` if there are fewer than
/// [`INTERVAL_SAMPLES_MIN`] samples.
pub fn interval_among(samples: &[f64], intervals: usize) -> Option<(f64, f64)> {
    interval_of(samples)?;
    let rank = interval_rank(samples.len(), TAIL / intervals.max(1) as f64);
    between(&sorted(samples), rank.unwrap_or(1))
}

fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    between(sorted, interval_rank(sorted.len(), TAIL)?)
}

/// From the one with this rank (from 1) to the one with the same rank from above.
fn between(sorted: &[f64], rank: usize) -> Option<(f64, f64)> {
    let upper = sorted.len().checked_sub(rank)?;
    Some((*sorted.get(rank.checked_sub(1)?)?, *sorted.get(upper)?))
}

/// Rank (from 1) of the lower end among `count` samples; the upper end has the same rank from
/// above. It is the largest for which fewer heads than the rank are thrown with a probability of at
/// most `tail`.
fn interval_rank(count: usize, tail: f64) -> Option<usize> {
    let n = count as f64;
    // Logarithms, for 2^-n is none beyond a thousand.
    let mut term = -n * std::f64::consts::LN_2;
    let mut below = 0.0;
    let mut rank = 0;
    while rank < count {
        below += term.exp();
        if below > tail {
            break;
        }
        term += ((n - rank as f64) / (rank as f64 + 1.0)).ln();
        rank += 1;
    }
    (rank != 0).then_some(rank)
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The middle one, or the mean of the two in the middle.
fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some((lower + upper) / 2.0)
}

/// The sample at or below which `percent` of a hundred lie.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_and_tail_are_those_of_the_sorted_samples() {
        let all = Distribution::of((1..=200).rev().map(f64::from).collect()).unwrap();
        assert_eq!(
            (all.median_ns, all.p99_ns, all.slowest_ns, all.least_ns),
            (100.5, 198.0, 200.0, 1.0)
        );
        assert_eq!(all.samples_ns[0], 200.0, "in the order taken");
        let one = Distribution::of(vec![7.0]).unwrap();
        assert_eq!((one.median_ns, one.p99_ns), (7.0, 7.0));
        assert_eq!(one.interval(), None);
        assert_eq!(Distribution::of(Vec::new()), None);
        assert_eq!(median_of(&[]), None);
        assert_eq!(median_of(&[3.0, 1.0]), Some(2.0));
    }

    /// Probability that the median lies between the ranks, by whole numbers.
    fn coverage(count: u32, rank: u32) -> f64 {
        let (mut choose, mut outside) = (1_u128, 0_u128);
        for heads in 0..rank {
            outside += choose;
            choose = choose * u128::from(count - heads) / u128::from(heads + 1);
        }
        1.0 - (2 * outside) as f64 / (1_u128 << count) as f64
    }

    #[test]
    fn ranks_are_the_closest_that_hold_the_median_often_enough() {
        for (count, rank) in [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (20, 6), (101, 41)] {
            assert_eq!(interval_rank(count, TAIL), Some(rank), "{count}");
        }
        for count in 6..=100 {
            let rank = interval_rank(count as usize, TAIL).unwrap() as u32;
            assert!(coverage(count, rank) >= 0.95, "{count}: {rank}");
            assert!(coverage(count, rank + 1) < 0.95, "{count}: {rank}");
        }
        for count in 0..INTERVAL_SAMPLES_MIN {
            assert_eq!(interval_rank(count, TAIL), None);
        }
        let many = interval_rank(10_000, TAIL).unwrap();
        assert!((4895..=4905).contains(&many), "{many}");
    }

    #[test]
    fn the_interval_lies_between_ranks_from_below_and_above() {
        let up_to = |n: u32| -> Vec<f64> { (1..=n).rev().map(f64::from).collect() };
        assert_eq!(interval_of(&up_to(20)), Some((6.0, 15.0)));
        assert_eq!(interval_of(&up_to(11)), Some((2.0, 10.0)));
        assert_eq!(interval_of(&up_to(6)), Some((1.0, 6.0)));
        assert_eq!(interval_of(&up_to(5)), None);
        assert_eq!(interval_among(&up_to(20), 1), Some((6.0, 15.0)));
        assert_eq!(interval_among(&up_to(20), 84), Some((3.0, 18.0)));
        assert_eq!(interval_among(&up_to(11), 84), Some((1.0, 11.0)));
        assert_eq!(interval_among(&up_to(5), 84), None);
        let all = Distribution::of(up_to(20)).unwrap();
        assert_eq!(all.interval(), Some((6.0, 15.0)));
    }

    #[test]
    fn ratios_are_those_of_pairs() {
        let ratio = Ratio::of((1..=9).map(|i| (f64::from(i), 2.0))).unwrap();
        assert_eq!(
            (ratio.low, ratio.median, ratio.high),
            (Some(1.0), 2.5, Some(4.0))
        );
        let series = |from: u32| -> Vec<f64> { (from..from + 8).map(f64::from).collect() };
        let apart = Ratio::of_medians(&series(10), &series(1)).unwrap();
        assert_eq!(apart.median, 13.5 / 4.5);
        assert_eq!((apart.low, apart.high), (Some(10.0 / 8.0), Some(17.0)));
        let few = Ratio::of_medians(&[2.0], &series(1)).unwrap();
        assert_eq!((few.low, few.high), (None, None));
        assert_eq!(Ratio::of_medians(&[], &[1.0]), None);
        let one = Ratio::of([(3.0, 2.0)]).unwrap();
        assert_eq!((one.low, one.median, one.high), (None, 1.5, None));
        assert_eq!(Ratio::of([]), None);
    }
}
