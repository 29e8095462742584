//! Figures from samples.

/// Returns the median, and sorts the samples.
///
/// # Panics
/// If there are no samples.
pub fn median(samples: &mut [u64]) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

/// Returns `amount` per `count`.
pub fn per(amount: u64, count: u64) -> f64 {
    amount as f64 / count as f64
}
