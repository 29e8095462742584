//! From a coordinate to elements of one dimension of a texture (CUDA C++ Programming Guide,
//! "Texture Fetching").

use causeway_mediator::backend::AddressMode;

/// Weight of a whole element in a linear filter: fractions have 8 bits.
pub(crate) const FRACTION_ONE: u32 = 256;
/// Largest distance of a coordinate from 0, in 256ths, that is told from a farther one: more than
/// any texture has, and far from an overflow. Sizes are below 2^41.
const FARTHEST: f64 = (1_u64 << 50) as f64;

/// One dimension of a texture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// Number of elements, not zero.
    pub(crate) size: u64,
    /// What coordinates outside mean.
    pub(crate) mode: AddressMode,
    /// Whether coordinates go from 0 to 1.
    pub(crate) is_normalized: bool,
}

/// Number of an element; `None` stands for the border.
pub(crate) type Index = Option<u64>;

impl Axis {
    /// Returns the element that is nearest to a coordinate.
    pub(crate) fn nearest(&self, coordinate: f32) -> Index {
        self.turned(coordinate, self.scaled(coordinate).floor() as i64)
    }

    /// Returns the two elements between which a coordinate lies, and the weight of the second one
    /// in 256ths.
    pub(crate) fn between(&self, coordinate: f32) -> ([Index; 2], u32) {
        let one = i64::from(FRACTION_ONE);
        let places = (self.scaled(coordinate) * one as f64 + 0.5).floor();
        // The centre of an element is half behind its beginning.
        let places = places.clamp(-FARTHEST, FARTHEST) as i64 - one / 2;
        let first = places.div_euclid(one);
        let fraction = places.rem_euclid(one) as u32;
        (
            [first, first + 1].map(|index| self.turned(coordinate, index)),
            fraction,
        )
    }

    /// The coordinate in elements, from the beginning of its repetition if the texture repeats.
    /// Only one of normalized coordinates does.
    fn scaled(&self, coordinate: f32) -> f64 {
        // What is no number reads the first element.
        let coordinate = if coordinate.is_nan() { 0.0 } else { coordinate };
        if !self.is_normalized {
            return coordinate.into();
        }
        let coordinate = f64::from(coordinate);
        let part = match self.mode {
            AddressMode::Clamp | AddressMode::Border => coordinate,
            AddressMode::Wrap | AddressMode::Mirror if coordinate.is_infinite() => 0.0,
            AddressMode::Wrap | AddressMode::Mirror => coordinate - coordinate.floor(),
        };
        part * self.size as f64
    }

    /// The element with this number in the repetition of a coordinate, which may be mirrored.
    fn turned(&self, coordinate: f32, index: i64) -> Index {
        let is_odd = coordinate.is_finite() && coordinate.floor() % 2.0 != 0.0;
        match self.is_normalized && self.mode == AddressMode::Mirror && is_odd {
            true => self.inside((self.size.cast_signed() - 1).saturating_sub(index)),
            false => self.inside(index),
        }
    }

    /// The element that stands for one that may be outside.
    fn inside(&self, index: i64) -> Index {
        let last = self.size - 1;
        match u64::try_from(index) {
            Ok(index) if index <= last => Some(index),
            _ if self.mode == AddressMode::Border => None,
            // Beside the edge of a texture that repeats is its other edge.
            outside if self.mode == AddressMode::Wrap && self.is_normalized => {
                Some(if outside.is_err() { last } else { 0 })
            }
            Ok(_) => Some(last),
            Err(_) => Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AddressMode::{Border, Clamp, Mirror, Wrap};

    fn axis(mode: AddressMode, is_normalized: bool) -> Axis {
        Axis {
            size: 10,
            mode,
            is_normalized,
        }
    }

    #[test]
    fn the_nearest_element_is_the_one_around_the_coordinate() {
        for (mode, is_normalized, coordinate, wanted) in [
            (Clamp, false, 3.99, Some(3)),
            (Clamp, false, -0.1, Some(0)),
            (Clamp, false, 10.0, Some(9)),
            (Clamp, true, 0.35, Some(3)),
            (Clamp, true, 1.5, Some(9)),
            (Wrap, true, 1.25, Some(2)),
            (Wrap, true, -0.15, Some(8)),
            (Wrap, false, 12.5, Some(9)),
            (Mirror, true, 1.25, Some(7)),
            (Mirror, true, -0.15, Some(1)),
            (Mirror, true, 2.15, Some(1)),
            (Mirror, true, 1.0, Some(9)),
            (Mirror, true, 1.5, Some(4)),
            (Mirror, true, -0.5, Some(4)),
            (Mirror, false, -3.0, Some(0)),
            (Border, false, 9.99, Some(9)),
            (Border, false, 10.0, None),
            (Border, true, -0.01, None),
        ] {
            let found = axis(mode, is_normalized).nearest(coordinate);
            assert_eq!(found, wanted, "{mode:?} {is_normalized} {coordinate}");
        }
    }

    #[test]
    fn linear_weights_are_rounded_to_256ths() {
        let clamp = axis(Clamp, false);
        assert_eq!(clamp.between(2.5), ([Some(2), Some(3)], 0));
        assert_eq!(clamp.between(2.0), ([Some(1), Some(2)], 128));
        let places = |n: f32| 2.5 + n / 256.0;
        assert_eq!(clamp.between(places(0.49)).1, 0);
        assert_eq!(clamp.between(places(0.5)).1, 1);
        assert_eq!(clamp.between(places(255.5)), ([Some(3), Some(4)], 0));
        assert_eq!(clamp.between(0.25), ([Some(0), Some(0)], 192));
        assert_eq!(clamp.between(9.75), ([Some(9), Some(9)], 64));
    }

    #[test]
    fn linear_filters_reach_over_the_edge_as_the_mode_says() {
        for (mode, is_normalized, coordinate, wanted) in [
            (Border, false, 0.25, [None, Some(0)]),
            (Border, false, 9.75, [Some(9), None]),
            (Border, false, -1.0, [None, None]),
            (Wrap, true, 0.025, [Some(9), Some(0)]),
            (Wrap, true, 0.975, [Some(9), Some(0)]),
            (Mirror, true, 0.025, [Some(0), Some(0)]),
            (Mirror, true, 1.025, [Some(9), Some(9)]),
        ] {
            let (found, _) = axis(mode, is_normalized).between(coordinate);
            assert_eq!(found, wanted, "{mode:?} {is_normalized} {coordinate}");
        }
    }

    #[test]
    fn no_number_leads_outside() {
        let numbers = [f32::NAN, f32::INFINITY, f32::MAX, 1e30, 1e-30, 0.0];
        for coordinate in numbers.into_iter().flat_map(|number| [number, -number]) {
            for mode in [Wrap, Clamp, Mirror, Border] {
                for is_normalized in [false, true] {
                    let axis = axis(mode, is_normalized);
                    let (pair, fraction) = axis.between(coordinate);
                    let all = [axis.nearest(coordinate), pair[0], pair[1]];
                    assert!(all.iter().flatten().all(|index| *index < 10), "{axis:?}");
                    assert!(fraction < FRACTION_ONE);
                }
            }
        }
        assert_eq!(axis(Border, false).nearest(f32::NAN), Some(0));
        assert_eq!(axis(Border, false).nearest(f32::INFINITY), None);
    }
}
