//! An axis of a plot, with the positions of its marks.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// Number of powers of ten from which on not all of them have a mark.
const MARKS_MAX: usize = 4;

/// An axis of a plot, linear or logarithmic, with the values that have a mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    range: Range<f64>,
    marks: Vec<f64>,
    is_logarithmic: bool,
}

impl Axis {
    /// Returns a linear axis from 0 to `end` with marks at the values `marks`.
    pub fn linear(end: f64, marks: Vec<f64>) -> Self {
        Self {
            range: 0.0..end,
            marks,
            is_logarithmic: false,
        }
    }

    /// Returns a logarithmic axis from a power of ten below all values to one above, with a mark at
    /// each power of ten, or fewer if the labels would touch. Zeros appear one power of ten below
    /// the smallest other value.
    pub fn decades(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        let mut has_zero = false;
        for value in values.filter(|value| value.is_finite()) {
            if value > 0.0 {
                (low, high) = (low.min(value), high.max(value));
            } else {
                has_zero = true;
            }
        }
        if low > high {
            (low, high) = (1.0, 1.0);
        }
        let first = low.log10().floor() as i32 - i32::from(has_zero);
        // Leaves room for the text above the highest bar.
        let last = ((high.log10() + 0.1).ceil() as i32).max(first + 1);
        Self {
            range: 10_f64.powi(first)..10_f64.powi(last),
            marks: (first..=last)
                .step_by(1 + (last - first) as usize / MARKS_MAX)
                .map(|power| 10_f64.powi(power))
                .collect(),
            is_logarithmic: true,
        }
    }

    /// Returns a logarithmic axis around `values`, with a mark at each value.
    pub fn marked(mut values: Vec<f64>) -> Self {
        values.retain(|value| value.is_finite() && *value > 0.0);
        values.sort_by(f64::total_cmp);
        values.dedup();
        let low = values.first().copied().unwrap_or(1.0);
        let high = values.last().copied().unwrap_or(1.0);
        Self {
            range: low / 2.0..high * 2.0,
            marks: values,
            is_logarithmic: true,
        }
    }

    /// Returns the smallest and the largest value of the axis.
    pub fn ends(&self) -> (f64, f64) {
        (self.range.start, self.range.end)
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_logarithmic {
            value.max(self.range.start).log10()
        } else {
            value
        }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = (self.place(self.range.start), self.place(self.range.end));
        let part = (self.place(*value) - low) / (high - low);
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_hold_all_values_and_leave_room_for_zero() {
        let axis = Axis::decades([2.0, 300.0].into_iter());
        assert_eq!(axis.marks, [1.0, 10.0, 100.0, 1000.0]);
        let axis = Axis::decades([0.0, 2.0].into_iter());
        assert_eq!(axis.marks, [0.1, 1.0, 10.0]);
        assert_eq!(axis.map(&0.0, (0, 100)), 0, "below everything");
        assert_eq!(axis.map(&1.0, (0, 100)), 50);
        let long = Axis::decades([2.0, 3e7].into_iter());
        assert_eq!(long.marks, [1.0, 1e3, 1e6]);
        let nothing = Axis::decades([f64::NAN].into_iter());
        assert_eq!(nothing.marks, [1.0, 10.0]);
    }

    #[test]
    fn marks_are_where_the_values_are() {
        let axis = Axis::marked(vec![4096.0, 64.0, 64.0]);
        assert_eq!(axis.marks, [64.0, 4096.0]);
        assert_eq!(axis.ends(), (32.0, 8192.0));
        assert_eq!(axis.map(&512.0, (0, 100)), 50);
        assert_eq!(Axis::linear(4.0, Vec::new()).map(&1.0, (100, 0)), 75);
    }
}
