//! Elementary functions in double precision by plain series, for the small arguments of the tests.
//! Their error is below 1e-13, which is nothing beside what the kernels are allowed.

use core::f64::consts::LN_2;

/// Returns `e^x`, for `|x| < 700`.
pub fn exp(x: f64) -> f64 {
    let halvings = (x / LN_2) as i32;
    let rest = x - f64::from(halvings) * LN_2;
    let mut sum = 1.0;
    for term in (1..22).rev() {
        sum = 1.0 + sum * rest / f64::from(term);
    }
    sum * f64::from_bits(((1023 + halvings) as u64) << 52)
}

/// Returns the natural logarithm of `x`, which must be a normal number greater than 0.
pub fn ln(x: f64) -> f64 {
    let exponent = (x.to_bits() >> 52) as i32 - 1023;
    let significand = f64::from_bits((x.to_bits() & ((1 << 52) - 1)) | 1023 << 52);
    let ratio = (significand - 1.0) / (significand + 1.0);
    let mut sum = 0.0;
    for term in (0..16).rev() {
        sum = sum * ratio * ratio + 1.0 / f64::from(2 * term + 1);
    }
    2.0 * ratio * sum + f64::from(exponent) * LN_2
}

/// Returns the sine of `x`, for `|x| < 4`.
pub fn sin(x: f64) -> f64 {
    let mut sum = 1.0;
    for pair in (1..16).rev() {
        sum = 1.0 - sum * x * x / f64::from(2 * pair * (2 * pair + 1));
    }
    sum * x
}

/// Returns the cosine of `x`, for `|x| < 4`.
pub fn cos(x: f64) -> f64 {
    let mut sum = 1.0;
    for pair in (1..16).rev() {
        sum = 1.0 - sum * x * x / f64::from((2 * pair - 1) * (2 * pair));
    }
    sum
}

/// Returns the hyperbolic tangent of `x`, for `|x| < 300`.
pub fn tanh(x: f64) -> f64 {
    let square = exp(2.0 * x);
    (square - 1.0) / (square + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_agree_with_the_standard_library() {
        for step in -400..=400 {
            let x = f64::from(step) * 0.01;
            for (name, mine, theirs) in [
                ("exp", exp(x), x.exp()),
                ("ln", ln(x + 4.125), (x + 4.125).ln()),
                ("sin", sin(x), x.sin()),
                ("cos", cos(x), x.cos()),
                ("tanh", tanh(x), x.tanh()),
            ] {
                let error = (mine - theirs).abs() / theirs.abs().max(1.0);
                assert!(error < 1.0e-13, "{name} {x}: {mine} is not {theirs}");
            }
        }
    }
}
