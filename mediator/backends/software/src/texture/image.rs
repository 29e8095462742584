//! Elements in memory that textures and surfaces access.

use causeway_mediator::backend::{ArrayShape, Element};
use causeway_protocol::message::array_flags;

/// What kind of image it is: how many dimensions it has, and whether its last one are layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One row of memory, which kernels read by the numbers of its elements.
    Linear,
    /// One or two dimensions, with or without layers.
    Flat,
    /// Three dimensions.
    Volume,
    /// Faces of cubes.
    Cubes,
}

impl Kind {
    /// Returns what it is, for messages.
    const fn text(self) -> &'static str {
        match self {
            Self::Linear => "linear memory",
            Self::Flat => "an image of one or two dimensions",
            Self::Volume => "an image of three dimensions",
            Self::Cubes => "a cube",
        }
    }
}

/// Geometry that an instruction names (PTX ISA, "tex": `.geom`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Geometry {
    /// `.1d`
    One,
    /// `.2d`
    Two,
    /// `.3d`
    Three,
    /// `.a1d`
    LayeredOne,
    /// `.a2d`
    LayeredTwo,
    /// `.cube`
    Cube,
    /// `.acube`
    LayeredCube,
}

impl Geometry {
    /// Returns the number of coordinates, without the layer.
    pub(crate) const fn dimensions(self) -> usize {
        match self {
            Self::One | Self::LayeredOne => 1,
            Self::Two | Self::LayeredTwo => 2,
            Self::Three | Self::Cube | Self::LayeredCube => 3,
        }
    }

    /// Returns whether a layer comes before the coordinates.
    pub(crate) const fn has_layer(self) -> bool {
        matches!(
            self,
            Self::LayeredOne | Self::LayeredTwo | Self::LayeredCube
        )
    }

    /// Returns whether the coordinates are a direction from the centre of a cube.
    pub(crate) const fn is_cube(self) -> bool {
        matches!(self, Self::Cube | Self::LayeredCube)
    }

    /// Returns the name in PTX.
    const fn text(self) -> &'static str {
        match self {
            Self::One => ".1d",
            Self::Two => ".2d",
            Self::Three => ".3d",
            Self::LayeredOne => ".a1d",
            Self::LayeredTwo => ".a2d",
            Self::Cube => ".cube",
            Self::LayeredCube => ".acube",
        }
    }
}

/// Elements in memory: rows of elements, slices or layers of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// GPU virtual address of the first element.
    pub(crate) address: u64,
    /// What kind of image it is.
    pub(crate) kind: Kind,
    /// Elements in a row, rows in a slice, and slices, layers or faces; none is zero.
    pub(crate) size: [u64; 3],
    /// Bytes from one row to the next. Slices follow each other without gaps.
    pub(crate) pitch: u64,
    /// What an element is.
    pub(crate) element: Element,
}

impl Image {
    /// Returns the image of an array whose first element is at GPU virtual address `address`.
    pub(crate) fn of_array(shape: &ArrayShape, address: u64) -> Self {
        let kind = if shape.flags() & array_flags::CUBEMAP != 0 {
            Kind::Cubes
        } else if shape.size()[2] == 0 || shape.has_layers() {
            Kind::Flat
        } else {
            Kind::Volume
        };
        Self {
            address,
            kind,
            size: [shape.size()[0], shape.rows(), shape.slices()],
            pitch: shape.row_bytes(),
            element: shape.element(),
        }
    }

    /// Returns the GPU virtual address of byte `byte` of a row in a slice. Rows of memory may be
    /// anywhere, so the address may be one that is not mapped.
    pub(crate) fn byte_address(&self, byte: u64, row: u64, slice: u64) -> u64 {
        let rows = slice.wrapping_mul(self.size[1]).wrapping_add(row);
        let before = rows.wrapping_mul(self.pitch).wrapping_add(byte);
        self.address.wrapping_add(before)
    }

    /// Returns the GPU virtual address of the element at `position`: its place in the row, its row
    /// and its slice.
    pub(crate) fn element_address(&self, position: [u64; 3]) -> u64 {
        let [x, row, slice] = position;
        let byte = x.wrapping_mul(self.element.bytes().into());
        self.byte_address(byte, row, slice)
    }

    /// Says why an instruction with this geometry cannot sample the image; `is_integer` says
    /// whether its coordinates are. As on devices, instructions of one and two dimensions, with or
    /// without layers, access all flat images: what they do not name is 0.
    pub(crate) fn check_sampled(&self, geometry: Geometry, is_integer: bool) -> Result<(), String> {
        let fits = match self.kind {
            Kind::Linear if is_integer => geometry == Geometry::One,
            Kind::Linear if geometry == Geometry::One => {
                return Err(String::from(
                    "the texture is linear memory, which `tex` reads by integer coordinates only",
                ));
            }
            Kind::Flat if is_integer && geometry == Geometry::One => {
                return Err(String::from(
                    "`tex.1d` with an integer coordinate reads linear memory, which the texture is \
                     not",
                ));
            }
            Kind::Linear => false,
            Kind::Flat => geometry.dimensions() <= 2,
            Kind::Volume => geometry == Geometry::Three,
            Kind::Cubes => geometry.is_cube(),
        };
        self.refuse_unless(fits, "texture", geometry)
    }

    /// Says why an instruction with this geometry cannot access the image as a surface. The faces
    /// of cubes are layers.
    pub(crate) fn check_surface(&self, geometry: Geometry) -> Result<(), String> {
        let fits = match self.kind {
            Kind::Linear => false,
            Kind::Flat => geometry.dimensions() <= 2,
            Kind::Volume => geometry == Geometry::Three,
            Kind::Cubes => geometry == Geometry::LayeredTwo,
        };
        self.refuse_unless(fits, "surface", geometry)
    }

    fn refuse_unless(&self, fits: bool, what: &str, geometry: Geometry) -> Result<(), String> {
        match fits {
            true => Ok(()),
            false => Err(format!(
                "the {what} is {}, which an instruction with geometry {} cannot access",
                self.kind.text(),
                geometry.text()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_mediator::backend::ElementFormat;

    use super::*;

    fn image(size: [u64; 3], flags: u32) -> Image {
        let element = Element {
            format: ElementFormat::Half,
            channels: 2,
        };
        let shape = ArrayShape::new(size, element, flags).unwrap();
        Image::of_array(&shape, 0x1000)
    }

    #[test]
    fn elements_lie_in_rows_and_slices() {
        let layered = image([10, 6, 5], array_flags::LAYERED);
        assert_eq!(layered.element_address([3, 2, 1]), 0x1000 + 40 * 8 + 12);
        let one = image([10, 0, 5], array_flags::LAYERED);
        assert_eq!(one.size, [10, 1, 5]);
        assert_eq!(one.element_address([3, 0, 2]), 0x1000 + 80 + 12);
        // No address makes it panic.
        let wild = Image {
            address: u64::MAX,
            pitch: u64::MAX,
            ..layered
        };
        wild.element_address([u64::MAX; 3]);
    }

    #[test]
    fn instructions_access_images_of_their_own_kind() {
        use Geometry as G;
        let flat = image([10, 6, 0], 0);
        let volume = image([10, 6, 4], 0);
        let cube = image([6, 6, 6], array_flags::CUBEMAP);
        let linear = Image {
            kind: Kind::Linear,
            ..flat
        };
        for (image, geometry, is_integer, fits) in [
            (flat, G::Two, false, true),
            (flat, G::LayeredTwo, true, true),
            (flat, G::One, true, false),
            (flat, G::Three, false, false),
            (flat, G::Cube, false, false),
            (volume, G::Three, false, true),
            (volume, G::Two, false, false),
            (cube, G::LayeredCube, false, true),
            (cube, G::LayeredTwo, false, false),
            (linear, G::One, true, true),
            (linear, G::One, false, false),
            (linear, G::Two, true, false),
        ] {
            let found = image.check_sampled(geometry, is_integer);
            assert_eq!(found.is_ok(), fits, "{geometry:?} {found:?}");
        }
        assert!(cube.check_surface(G::LayeredTwo).is_ok());
        assert!(cube.check_surface(G::Two).is_err());
        assert!(flat.check_surface(G::LayeredOne).is_ok());
        assert!(volume.check_surface(G::LayeredTwo).is_err());
        assert!(linear.check_surface(G::One).is_err());
    }
}
