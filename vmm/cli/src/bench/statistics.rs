//! What repetitions say: middle, tail, and how sure one can be of the middle.

use serde::Serialize;

/// A distribution of times per operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Half took less, in nanoseconds.
    pub median_ns: f64,
    /// Ninety-nine of a hundred took no longer, in nanoseconds (nearest rank).
    pub p99_ns: f64,
    /// The fastest, in nanoseconds.
    pub least_ns: f64,
    /// Every sample, in the order taken, in nanoseconds.
    pub samples_ns: Vec<f64>,
}

impl Distribution {
    /// Of at least one sample.
    pub fn of(samples_ns: Vec<f64>) -> Option<Self> {
        let sorted = sorted(&samples_ns);
        Some(Self {
            median_ns: middle(&sorted)?,
            p99_ns: percentile(&sorted, 99)?,
            least_ns: *sorted.first()?,
            samples_ns,
        })
    }
}

/// The middle of ratios, and where it lies with a confidence of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Median of the ratios of samples taken one after the other.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Ratio {
    /// Of at least one pair of numerator and denominator.
    ///
    /// The interval is the one of the sign test: between two order statistics whose ranks are 0.98·√n away from the
    /// middle (1.96 standard deviations of a binomial distribution with p = ½). It assumes no distribution.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let ratios: Vec<f64> = pairs.into_iter().map(|(a, b)| a / b).collect();
        let sorted = sorted(&ratios);
        let (low, high) = interval(&sorted)?;
        Some(Self {
            median: middle(&sorted)?,
            low,
            high,
        })
    }
}

/// Where the median lies with a confidence of 95 %, as for [`Ratio::of`]; of few samples, all of their range.
pub fn interval_of(samples: &[f64]) -> Option<(f64, f64)> {
    interval(&sorted(samples))
}

fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len() as f64;
    let reach = 0.98 * n.sqrt();
    let low = (n / 2.0 - reach).floor().max(0.0) as usize;
    let high = ((n / 2.0 + reach).ceil() as usize).min(sorted.len().checked_sub(1)?);
    Some((sorted[low], sorted[high]))
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The middle one, or the mean of the two in the middle.
fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
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
            (all.median_ns, all.p99_ns, all.least_ns),
            (100.5, 198.0, 1.0)
        );
        assert_eq!(all.samples_ns[0], 200.0, "in the order taken");
        let one = Distribution::of(vec![7.0]).unwrap();
        assert_eq!((one.median_ns, one.p99_ns), (7.0, 7.0));
        assert_eq!(Distribution::of(Vec::new()), None);
    }

    #[test]
    fn the_interval_holds_the_median_and_narrows_with_samples() {
        let ratio = |n: u32| Ratio::of((1..=n).map(|i| (f64::from(i), f64::from(n)))).unwrap();
        let (few, many) = (ratio(9), ratio(900));
        assert!(few.low <= few.median && few.median <= few.high);
        assert!(many.high - many.low < few.high - few.low);
        assert!((many.median - 0.5).abs() < 0.01);
        let one = Ratio::of([(3.0, 2.0)]).unwrap();
        assert_eq!((one.low, one.median, one.high), (1.5, 1.5, 1.5));
        assert_eq!(Ratio::of([]), None);
    }
}
