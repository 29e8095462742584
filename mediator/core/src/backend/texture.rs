//! Arrays of a back end, and the textures and surfaces by which kernels access arrays and memory.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use causeway_protocol::message::{ARRAY_DIMENSIONS, array_flags};

/// Format of a channel of an element (`CUarray_format` of `cuda.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementFormat {
    /// An unsigned number of 8 bits.
    Unsigned8,
    /// An unsigned number of 16 bits.
    Unsigned16,
    /// An unsigned number of 32 bits.
    Unsigned32,
    /// A signed number of 8 bits.
    Signed8,
    /// A signed number of 16 bits.
    Signed16,
    /// A signed number of 32 bits.
    Signed32,
    /// A floating-point number of 16 bits.
    Half,
    /// A floating-point number of 32 bits.
    Float,
}

impl ElementFormat {
    /// Returns the format that `cuda.h` numbers `wire`; `None` for one that is not here.
    #[must_use]
    pub const fn from_wire(wire: u32) -> Option<Self> {
        Some(match wire {
            0x01 => Self::Unsigned8,
            0x02 => Self::Unsigned16,
            0x03 => Self::Unsigned32,
            0x08 => Self::Signed8,
            0x09 => Self::Signed16,
            0x0a => Self::Signed32,
            0x10 => Self::Half,
            0x20 => Self::Float,
            _ => return None,
        })
    }

    /// Returns the number that `cuda.h` has for the format.
    #[must_use]
    pub const fn wire(self) -> u32 {
        match self {
            Self::Unsigned8 => 0x01,
            Self::Unsigned16 => 0x02,
            Self::Unsigned32 => 0x03,
            Self::Signed8 => 0x08,
            Self::Signed16 => 0x09,
            Self::Signed32 => 0x0a,
            Self::Half => 0x10,
            Self::Float => 0x20,
        }
    }

    /// Returns the size of a channel in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Unsigned8 | Self::Signed8 => 1,
            Self::Unsigned16 | Self::Signed16 | Self::Half => 2,
            Self::Unsigned32 | Self::Signed32 | Self::Float => 4,
        }
    }
}

/// What an element is: its channels, all of one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Format of each channel.
    pub format: ElementFormat,
    /// Number of channels: 1, 2 or 4.
    pub channels: u32,
}

impl Element {
    /// Returns the element that a message names; `None` if there is none such.
    #[must_use]
    pub fn from_wire(format: u32, channels: u32) -> Option<Self> {
        let format = ElementFormat::from_wire(format)?;
        matches!(channels, 1 | 2 | 4).then_some(Self { format, channels })
    }

    /// Returns the size of an element in bytes: 1 to 16.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.format.bytes() * self.channels
    }
}

/// Size and format of an array, which [`Self::new`] has found to be one that CUDA has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayShape {
    size: [u64; ARRAY_DIMENSIONS],
    element: Element,
    flags: u32,
}

/// Largest sizes of arrays without flags, by their number of dimensions (CUDA C++ Programming
/// Guide, "Technical Specifications per Compute Capability"; compute capability 9.0).
const SIZE_MAX: [[u64; ARRAY_DIMENSIONS]; 3] = [
    [131_072, 0, 0],
    [131_072, 65_536, 0],
    [16_384, 16_384, 16_384],
];
/// Largest width and height, and number of layers, of layered arrays and of cubes.
const SIZE_MAX_LAYERED: [u64; ARRAY_DIMENSIONS] = [32_768, 32_768, 2_048];
/// Layers of layered cubes, six for each cube.
const CUBE_LAYERS_MAX: u64 = 2_046;
/// Number of faces of a cube.
const FACES: u64 = 6;

impl ArrayShape {
    /// Returns the shape of an array of `size` elements in x, y and z, as CUDA has it: a dimension
    /// that the array does not have is 0. `flags` is a bit set of [`array_flags`]. Returns `None` if
    /// CUDA does not allow this size with these flags.
    #[must_use]
    pub fn new(size: [u64; ARRAY_DIMENSIONS], element: Element, flags: u32) -> Option<Self> {
        let [width, height, depth] = size;
        let has = |flag| flags & flag != 0;
        let fits = |max: [u64; ARRAY_DIMENSIONS]| {
            let mut both = size.into_iter().zip(max);
            both.all(|(size, max)| size <= max)
        };
        let is_layered = has(array_flags::LAYERED);
        let is_right = if flags & !array_flags::ALL != 0 || width == 0 {
            false
        } else if has(array_flags::CUBEMAP) {
            let wanted = if is_layered { depth } else { FACES };
            let layers = depth == wanted && depth != 0 && depth.is_multiple_of(FACES);
            width == height && layers && depth <= CUBE_LAYERS_MAX && fits(SIZE_MAX_LAYERED)
        } else if is_layered {
            depth != 0 && fits(SIZE_MAX_LAYERED)
        } else {
            match (height, depth) {
                (0, 0) => fits(SIZE_MAX[0]),
                (0, _) => false,
                (_, 0) => fits(SIZE_MAX[1]),
                _ => fits(SIZE_MAX[2]),
            }
        };
        // CUDA gathers from arrays of two dimensions only.
        let gathers = has(array_flags::GATHER);
        let is_right = is_right && (!gathers || (height != 0 && depth == 0));
        is_right.then_some(Self {
            size,
            element,
            flags,
        })
    }

    /// Returns the elements in x, y and z; 0 for a dimension that the array does not have.
    #[must_use]
    pub const fn size(&self) -> [u64; ARRAY_DIMENSIONS] {
        self.size
    }

    /// Returns what an element is.
    #[must_use]
    pub const fn element(&self) -> Element {
        self.element
    }

    /// Returns the bit set of [`array_flags`].
    #[must_use]
    pub const fn flags(&self) -> u32 {
        self.flags
    }

    /// Returns whether the depth is a number of layers or faces.
    #[must_use]
    pub const fn has_layers(&self) -> bool {
        self.flags & (array_flags::LAYERED | array_flags::CUBEMAP) != 0
    }

    /// Returns the size of a row in bytes.
    #[must_use]
    pub const fn row_bytes(&self) -> u64 {
        self.size[0] * self.element.bytes() as u64
    }

    /// Returns the number of rows of a slice, at least 1.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        if self.size[1] == 0 { 1 } else { self.size[1] }
    }

    /// Returns the number of slices, layers or faces, at least 1.
    #[must_use]
    pub const fn slices(&self) -> u64 {
        if self.size[2] == 0 { 1 } else { self.size[2] }
    }

    /// Returns the size of all elements in bytes, at most 2^46.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.row_bytes() * self.rows() * self.slices()
    }
}

/// What a session is charged for an array. The back end keeps it until the array's memory is free:
/// also work that has begun may hold that.
pub type ArrayCharge = Arc<dyn Any + Send + Sync>;

/// An array: elements in an order that only the device knows.
pub trait Array: Send + Sync + Any {
    /// Returns size and format.
    fn shape(&self) -> &ArrayShape;
    /// Returns the memory that the array takes, in bytes.
    fn memory_bytes(&self) -> u64;
    /// Returns `self` as [`Any`], so that the back end can downcast it to its own type.
    fn as_any(&self) -> &dyn Any;
}

/// What a session is charged for a texture or a surface; see [`Texture::keep`].
pub type TextureCharge = Arc<dyn Any + Send + Sync>;

/// What a texture or a surface is made of.
#[derive(Clone, Copy)]
pub enum TextureSource<'a> {
    /// A texture of an array.
    Array(&'a Arc<dyn Array>),
    /// A surface of an array with [`array_flags::SURFACE`].
    Surface(&'a Arc<dyn Array>),
    /// A texture of one row of memory.
    Linear {
        /// GPU virtual address of the first element; a multiple of its size.
        address: u64,
        /// Size in bytes: a whole number of elements, not zero.
        bytes: u64,
        /// What an element is.
        element: Element,
    },
    /// A texture of rows of memory.
    Rows {
        /// GPU virtual address of the first element; a multiple of its size.
        address: u64,
        /// Elements in a row, not zero.
        width: u64,
        /// Number of rows, not zero.
        height: u64,
        /// Distance between two rows in bytes: a multiple of the size of an element, not less than
        /// a row.
        pitch: u64,
        /// What an element is.
        element: Element,
    },
}

impl fmt::Debug for TextureSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(array) => f.debug_tuple("Array").field(array.shape()).finish(),
            Self::Surface(array) => f.debug_tuple("Surface").field(array.shape()).finish(),
            Self::Linear { address, .. } => write!(f, "Linear at {address:#x}"),
            Self::Rows { address, .. } => write!(f, "Rows at {address:#x}"),
        }
    }
}

/// What a coordinate outside means (`CUaddress_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressMode {
    /// The texture repeats.
    Wrap,
    /// The element at the edge.
    #[default]
    Clamp,
    /// The texture repeats, every other time backwards.
    Mirror,
    /// The colour of the border.
    Border,
}

/// How kernels read a texture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    /// What coordinates outside mean in each dimension.
    pub address_modes: [AddressMode; ARRAY_DIMENSIONS],
    /// Whether elements are filtered linearly, not taken from the nearest point.
    pub is_linear: bool,
    /// Bit set of [`causeway_protocol::message::texture_flags`].
    pub flags: u32,
    /// Largest anisotropy, at most 16.
    pub anisotropy: u32,
    /// The four channels outside.
    pub border: [f32; 4],
}

/// A texture or a surface. It holds the array of which it is made: the session pays for that array
/// at least as long as the texture exists. It ends when it is dropped. Kernels under way may still
/// read it; kernels launched later fault, or read only memory of their own session.
pub trait Texture: Send + Sync {
    /// Returns the number that kernels get as a parameter.
    fn object(&self) -> u64;

    /// Takes what the session is charged for the texture. Called once, before the guest knows the
    /// number. A back end whose work under way takes memory for textures that have ended keeps the
    /// charge until that memory is free, so that textures made and dropped while work is under way
    /// do not add up. The default implementation suits back ends that take none.
    fn keep(&self, charge: TextureCharge) {
        let _ = charge;
    }
}
