//! From coordinates to elements of a texture, with the weights of a filter.

use super::axis::{Axis, FRACTION_ONE, Index};
use super::cube::direction;
use super::image::{Geometry, Image, Kind};
use super::table::Sampled;

/// Number of faces of a cube.
const FACES: u64 = 6;
/// Most elements of a filter: two in each of three dimensions.
const TAPS_MAX: usize = 8;

/// Place of an element: in its row, of the row, of the slice. `None` stands for the border.
pub(crate) type Place = Option<[u64; 3]>;

/// An element that a filter reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tap {
    /// Where the element is.
    pub(crate) place: Place,
    /// Its part in the result in 256ths. All parts of a filter together are 256.
    pub(crate) weight: u32,
}

/// The elements that a filter reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taps {
    all: [Tap; TAPS_MAX],
    count: usize,
}

impl Taps {
    /// Returns the elements.
    pub(crate) fn all(&self) -> &[Tap] {
        &self.all[..self.count.min(TAPS_MAX)]
    }
}

/// What a texture is looked up at: coordinates, and the layer if the geometry has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lookup<T> {
    /// Geometry of the instruction.
    pub(crate) geometry: Geometry,
    /// Number of the layer, or of the cube.
    pub(crate) layer: u32,
    /// Coordinates in x, y and z; those that the geometry does not have are 0.
    pub(crate) coordinates: [T; 3],
}

impl<T> Lookup<T> {
    /// The slice of `image` in which the layer begins. Layers behind the last one are the last one.
    fn layer_of(&self, image: &Image) -> u64 {
        let slices = match self.geometry.is_cube() {
            true => (image.size[2] / FACES).max(1),
            false => image.size[2],
        };
        match self.geometry.has_layer() {
            true => u64::from(self.layer).min(slices - 1),
            false => 0,
        }
    }
}

/// The dimensions of an image that a lookup with numbers filters, and its slice if that is fixed.
struct Plane {
    axes: [Axis; 3],
    coordinates: [f32; 3],
    dimensions: usize,
    slice: u64,
}

impl Plane {
    fn new(image: &Image, sampled: &Sampled, lookup: &Lookup<f32>) -> Self {
        let (geometry, layer) = (lookup.geometry, lookup.layer_of(image));
        let mut plane = Self {
            axes: std::array::from_fn(|index| sampled.axis(index, image.size[index])),
            coordinates: lookup.coordinates,
            dimensions: geometry.dimensions(),
            slice: layer,
        };
        if geometry.is_cube() {
            let (face, [s, t]) = direction(lookup.coordinates);
            plane.coordinates = [s, t, 0.0];
            plane.dimensions = 2;
            plane.slice = layer * FACES + face;
            plane.axes = std::array::from_fn(|index| sampled.face_axis(index, image.size[index]));
        }
        plane
    }

    /// The place of an element with these numbers in the dimensions.
    fn place(&self, [x, y, z]: [Index; 3]) -> Place {
        Some(match self.dimensions {
            1 => [x?, 0, self.slice],
            2 => [x?, y?, self.slice],
            _ => [x?, y?, z?],
        })
    }
}

/// Returns the elements that a lookup reads, and their weights.
pub(crate) fn taps(image: &Image, sampled: &Sampled, lookup: &Lookup<f32>) -> Taps {
    let plane = Plane::new(image, sampled, lookup);
    let mut taps = Taps {
        all: [Tap::default(); TAPS_MAX],
        count: 1,
    };
    let each = plane.axes.iter().zip(plane.coordinates);
    if !sampled.is_linear {
        let mut nearest = [Some(0); 3];
        for (index, (axis, coordinate)) in nearest.iter_mut().zip(each) {
            *index = axis.nearest(coordinate);
        }
        taps.all[0].place = plane.place(nearest);
        taps.all[0].weight = FRACTION_ONE;
        return taps;
    }
    let mut pairs = [([Some(0); 2], 0); 3];
    for (pair, (axis, coordinate)) in pairs.iter_mut().zip(each).take(plane.dimensions) {
        *pair = axis.between(coordinate);
    }
    taps.count = 1 << plane.dimensions;
    let weights = weights(pairs.map(|(_, fraction)| fraction), plane.dimensions);
    for (number, tap) in taps.all.iter_mut().enumerate().take(taps.count) {
        let mut indices = [Some(0); 3];
        for (dimension, (pair, _)) in pairs.iter().enumerate().take(plane.dimensions) {
            indices[dimension] = pair[number >> dimension & 1];
        }
        tap.place = plane.place(indices);
        tap.weight = weights[number];
    }
    taps
}

/// The weights of the elements of a filter, by their number: of its bits, the lowest says whether
/// it is the second element in x, and so on. They are rounded so that they are 256 together, as an
/// H200 does it; in three dimensions, it has one 256th more or less in one of 20 cases.
fn weights([x, y, z]: [u32; 3], dimensions: usize) -> [u32; TAPS_MAX] {
    let mut weights = [0; TAPS_MAX];
    match dimensions {
        1 => weights[..2].copy_from_slice(&[FRACTION_ONE - x, x]),
        2 => weights[..4].copy_from_slice(&square(x, y)),
        _ => {
            for (number, weight) in square(x, z).into_iter().enumerate() {
                let second = (weight * y + FRACTION_ONE / 2 - 1) / FRACTION_ONE;
                let first = number & 1 | (number & 2) << 1;
                weights[first] = weight - second;
                weights[first | 2] = second;
            }
        }
    }
    weights
}

/// The weights of four elements, the second of which have these fractions in two dimensions.
fn square(first: u32, second: u32) -> [u32; 4] {
    let both = (first * second + FRACTION_ONE / 2) / FRACTION_ONE;
    [
        FRACTION_ONE + both - first - second,
        first - both,
        second - both,
        both,
    ]
}

/// Returns the four elements around the coordinates, as a linear filter would read them:
/// counter-clockwise from the lower left (PTX ISA, "tld4").
pub(crate) fn corners(image: &Image, sampled: &Sampled, lookup: &Lookup<f32>) -> [Place; 4] {
    let plane = Plane::new(image, sampled, lookup);
    let [(x, _), (y, _)] = [0, 1].map(|index| plane.axes[index].between(plane.coordinates[index]));
    [(0, 1), (1, 1), (1, 0), (0, 0)].map(|(column, row)| plane.place([x[column], y[row], Some(0)]))
}

/// Returns the element that whole coordinates name; `None` if they are outside, where a kernel
/// reads 0 whatever the address mode is.
pub(crate) fn element(image: &Image, lookup: &Lookup<i32>) -> Place {
    let mut place = [0, 0, lookup.layer_of(image)];
    let dimensions = match image.kind {
        Kind::Linear => 1,
        _ => lookup.geometry.dimensions(),
    };
    for (index, coordinate) in lookup.coordinates.into_iter().enumerate().take(dimensions) {
        let inside = u64::try_from(coordinate).ok();
        place[index] = inside.filter(|place| *place < image.size[index])?;
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use causeway_mediator::backend::{AddressMode, Element, ElementFormat, Sampling};

    use super::*;

    fn image(kind: Kind, size: [u64; 3]) -> Image {
        Image {
            address: 0,
            kind,
            size,
            pitch: size[0] * 4,
            element: Element {
                format: ElementFormat::Float,
                channels: 1,
            },
        }
    }

    fn sampled(image: &Image, is_linear: bool, mode: AddressMode) -> Sampled {
        let sampling = Sampling {
            address_modes: [mode; 3],
            is_linear,
            ..Sampling::default()
        };
        Sampled::new(image, &sampling)
    }

    fn lookup<T>(geometry: Geometry, layer: u32, coordinates: [T; 3]) -> Lookup<T> {
        Lookup {
            geometry,
            layer,
            coordinates,
        }
    }

    #[test]
    fn a_nearest_filter_reads_one_element_of_the_layer() {
        let flat = image(Kind::Flat, [8, 6, 5]);
        let nearest = sampled(&flat, false, AddressMode::Clamp);
        for (geometry, layer, place) in [
            (Geometry::Two, 3, [3, 2, 0]),
            (Geometry::LayeredTwo, 3, [3, 2, 3]),
            (Geometry::LayeredTwo, u32::MAX, [3, 2, 4]),
            (Geometry::LayeredOne, 1, [3, 0, 1]),
            (Geometry::One, 1, [3, 0, 0]),
        ] {
            let taps = taps(&flat, &nearest, &lookup(geometry, layer, [3.7, 2.2, 9.0]));
            let wanted = Tap {
                place: Some(place),
                weight: FRACTION_ONE,
            };
            assert_eq!(taps.all(), [wanted], "{geometry:?}");
        }
    }

    #[test]
    fn a_linear_filter_weighs_what_is_around() {
        let flat = image(Kind::Flat, [8, 6, 1]);
        let linear = sampled(&flat, true, AddressMode::Border);
        let found = taps(&flat, &linear, &lookup(Geometry::Two, 0, [1.75, 0.0, 0.0]));
        let tap = |place, weight| Tap { place, weight };
        assert_eq!(
            found.all(),
            [
                tap(None, 96),
                tap(None, 32),
                tap(Some([1, 0, 0]), 96),
                tap(Some([2, 0, 0]), 32),
            ]
        );
        let volume = image(Kind::Volume, [4, 4, 4]);
        let linear = sampled(&volume, true, AddressMode::Clamp);
        let found = taps(
            &volume,
            &linear,
            &lookup(Geometry::Three, 0, [1.0, 2.0, 3.25]),
        );
        assert_eq!(found.all().len(), 8);
        assert_eq!(found.all()[7], tap(Some([1, 2, 3]), 48));
    }

    #[test]
    fn weights_are_near_the_products_and_one_together() {
        // As an H200 has them.
        assert_eq!(square(227, 64), [22, 170, 7, 57]);
        assert_eq!(square(32, 50), [180, 26, 44, 6]);
        for fractions in (0..256 * 256 * 256).step_by(4099) {
            let fractions = [0, 8, 16].map(|shift| fractions >> shift & 255);
            for dimensions in 1..=3 {
                let weights = weights(fractions, dimensions);
                assert_eq!(weights.iter().sum::<u32>(), FRACTION_ONE);
                for (number, weight) in weights.into_iter().enumerate().take(1 << dimensions) {
                    let sides = fractions.into_iter().enumerate().take(dimensions);
                    let parts = sides.map(|(dimension, fraction)| {
                        let side = [FRACTION_ONE - fraction, fraction][number >> dimension & 1];
                        f64::from(side) / 256.0
                    });
                    let exact = parts.product::<f64>() * 256.0;
                    assert!(
                        (exact - f64::from(weight)).abs() < 1.5,
                        "{fractions:?} {number}"
                    );
                }
            }
        }
    }

    #[test]
    fn gathered_elements_begin_at_the_lower_left() {
        let flat = image(Kind::Flat, [8, 6, 1]);
        let nearest = sampled(&flat, false, AddressMode::Clamp);
        let found = corners(&flat, &nearest, &lookup(Geometry::Two, 0, [2.0, 3.0, 0.0]));
        let wanted = [[1, 3, 0], [2, 3, 0], [2, 2, 0], [1, 2, 0]];
        assert_eq!(found, wanted.map(Some));
    }

    #[test]
    fn whole_coordinates_outside_name_nothing() {
        let flat = image(Kind::Flat, [8, 6, 5]);
        let at =
            |layer, coordinates| element(&flat, &lookup(Geometry::LayeredTwo, layer, coordinates));
        assert_eq!(at(2, [7, 5, -1]), Some([7, 5, 2]));
        assert_eq!(at(9, [0, 0, 0]), Some([0, 0, 4]));
        for outside in [[8, 0, 0], [-1, 0, 0], [0, 6, 0], [i32::MIN, i32::MAX, 0]] {
            assert_eq!(at(0, outside), None);
        }
    }

    #[test]
    fn a_direction_reads_a_face_of_its_cube() {
        let cubes = image(Kind::Cubes, [4, 4, 12]);
        let nearest = sampled(&cubes, false, AddressMode::Wrap);
        let at = |layer| {
            let lookup = lookup(Geometry::LayeredCube, layer, [0.1, 0.1, -1.0]);
            taps(&cubes, &nearest, &lookup).all()[0].place
        };
        assert_eq!(at(0), Some([1, 1, 5]));
        assert_eq!(at(1), Some([1, 1, 11]));
        assert_eq!(at(7), Some([1, 1, 11]));
    }
}
