//! What textures and surfaces are made of (`driver_types.h`): an array, or memory in one row or in
//! several. Structures of CUDA 12 are the beginning of those of CUDA 13.

use causeway_cuda_abi::error::{Answer, Code};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::array::format_of;
use crate::channels::{Channels, Format};
use crate::driver::driver;

/// `cudaResourceDesc` of CUDA 12. Functions that read one read no more of that of CUDA 13, so that
/// they serve both.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Resource {
    kind: u32,
    padding: u32,
    /// The array, or the address of the memory. What follows is for memory.
    place: usize,
    channels: Channels,
    padding_behind: u32,
    /// Bytes of the one row; or elements in a row, rows, and bytes between rows.
    sizes: [usize; 3],
}

/// The same in CUDA 13.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LongResource {
    resource: Resource,
    reserved: [u64; 9],
    flags: u32,
    padding: u32,
}

/// `CUDA_RESOURCE_DESC`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DriverResource {
    kind: u32,
    padding: u32,
    place: usize,
    format: Format,
    sizes: [usize; 3],
    reserved: [u64; 11],
    flags: u32,
    padding_behind: u32,
}

/// `cudaResourceViewDesc` of CUDA 12. Its numbers of formats are the driver's.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct View {
    format: u32,
    padding: u32,
    sizes: [usize; 3],
    /// The first and the last level, the first and the last layer.
    parts: [u32; 4],
}

/// The same in CUDA 13, which is `CUDA_RESOURCE_VIEW_DESC`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LongView {
    pub view: View,
    reserved: [u32; 16],
}

/// `enum cudaResourceType`, which has the driver's numbers: an array, one with levels, memory in
/// one row and in several.
const ARRAY: u32 = 0;
const LEVELS: u32 = 1;
const LINEAR: u32 = 2;
const ROWS: u32 = 3;

/// The sizes that a kind of resource has; 0 for others.
fn sizes_of(kind: u32, [first, height, pitch]: [usize; 3]) -> [usize; 3] {
    match kind {
        LINEAR => [first, 0, 0],
        ROWS => [first, height, pitch],
        _ => [0; 3],
    }
}

impl Resource {
    /// The driver's description.
    ///
    /// # Errors
    /// The kind is unknown, there is no array, or no format has the channels.
    pub fn of_driver(self) -> Answer<DriverResource> {
        let format = match self.kind {
            LINEAR | ROWS => self.channels.format()?,
            ARRAY | LEVELS if self.place == 0 => return Err(Code::INVALID_HANDLE),
            ARRAY | LEVELS => Format::default(),
            _ => return Err(Code::INVALID_VALUE),
        };
        Ok(DriverResource {
            kind: self.kind,
            padding: 0,
            place: self.place,
            format,
            sizes: sizes_of(self.kind, self.sizes),
            reserved: [0; 11],
            flags: 0,
            padding_behind: 0,
        })
    }

    /// The runtime's description.
    ///
    /// # Errors
    /// The runtime has no channels for the format.
    pub fn of(it: DriverResource) -> Answer<Self> {
        let channels = match it.kind {
            LINEAR | ROWS => it.format.description()?,
            _ => Channels::default(),
        };
        Ok(Self {
            kind: it.kind,
            padding: 0,
            place: it.place,
            channels,
            padding_behind: 0,
            sizes: sizes_of(it.kind, it.sizes),
        })
    }
}

impl DriverResource {
    /// Returns the format of the elements.
    ///
    /// # Errors
    /// There is no such array.
    pub fn format(&self) -> Answer<Format> {
        match self.kind {
            ARRAY => format_of(self.place),
            LEVELS => {
                let mut level = 0_usize;
                driver!(cuMipmappedArrayGetLevel(&raw mut level, self.place, 0_u32))?;
                format_of(level)
            }
            _ => Ok(self.format),
        }
    }
}

impl LongResource {
    /// The description for programs of CUDA 13.
    pub fn of(resource: Resource) -> Self {
        Self {
            resource,
            reserved: [0; 9],
            flags: 0,
            padding: 0,
        }
    }
}

impl LongView {
    /// The driver's description.
    pub fn of(view: View) -> Self {
        Self {
            view,
            reserved: [0; 16],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The numbers are `sizeof` and `offsetof` in the headers of CUDA 12, CUDA 13 and the driver.
    #[test]
    fn structures_lie_where_the_headers_have_them() {
        assert_eq!(size_of::<Resource>(), 64);
        assert_eq!(offset_of!(Resource, channels), 16);
        assert_eq!(offset_of!(Resource, sizes), 40);
        assert_eq!(size_of::<LongResource>(), 144);
        assert_eq!(offset_of!(LongResource, flags), 136);
        assert_eq!(size_of::<DriverResource>(), 144);
        assert_eq!(offset_of!(DriverResource, sizes), 24);
        assert_eq!(offset_of!(DriverResource, flags), 136);
        assert_eq!(size_of::<View>(), 48);
        assert_eq!(offset_of!(View, parts), 32);
        assert_eq!(size_of::<LongView>(), 112);
    }

    fn resource(kind: u32, channels: Channels) -> Resource {
        Resource {
            kind,
            place: 7,
            channels,
            sizes: [1, 2, 3],
            ..Resource::default()
        }
    }

    #[test]
    fn what_a_kind_does_not_have_is_not_passed_on() {
        let format = Format {
            number: 0x20,
            channels: 2,
        };
        let floats = format.description().unwrap();
        let passed = |kind, channels| resource(kind, channels).of_driver();
        // A union of an array has anything behind the array.
        let array = passed(0, Channels::default()).unwrap();
        assert_eq!((array.place, array.format), (7, Format::default()));
        assert_eq!(array.sizes, [0; 3]);
        let linear = passed(LINEAR, floats).unwrap();
        assert_eq!((linear.format, linear.sizes), (format, [1, 0, 0]));
        let rows = passed(ROWS, floats).unwrap();
        assert_eq!(rows.sizes, [1, 2, 3]);
        assert_eq!(Resource::of(rows), Ok(resource(ROWS, floats)));
        assert!(passed(LINEAR, Channels::default()).is_err());
        assert!(passed(4, floats).is_err());
        let none = Resource::default();
        assert_eq!(none.of_driver().err(), Some(Code::INVALID_HANDLE));
    }
}
