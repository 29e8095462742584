//! Computes figures from samples.

/// Returns the median of `samples`, and sorts them.
///
/// # Panics
/// If `samples` is empty.
pub fn median(samples: &mut [u64]) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

/// Returns `amount` divided by `count`.
pub fn per(amount: u64, count: u64) -> f64 {
    amount as f64 / count as f64
}
