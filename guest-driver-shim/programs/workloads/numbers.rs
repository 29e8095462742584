//! Figures from samples.

/// The median; sorts the samples.
///
/// # Panics
/// If there are none.
pub fn median(samples: &mut [u64]) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

/// `amount` per `count`.
pub fn per(amount: u64, count: u64) -> f64 {
    amount as f64 / count as f64
}
