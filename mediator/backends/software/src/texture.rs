//! Textures and surfaces: what they are made of, and where in it a kernel reads.
//!
//! | module | what |
//! |---|---|
//! | `image` | elements in memory, and which instructions access them |
//! | `axis` | from a coordinate to elements of one dimension |
//! | `cube` | from a direction to a face of a cube |
//! | `format` | from an element in memory to what a kernel gets |
//! | `footprint` | from coordinates to elements with weights |
//! | `table` | the objects of an address space |
//!
//! The source is the CUDA C++ Programming Guide ("Texture Fetching", "Texture and Surface Memory").
//! What it leaves open is as an H200 does it.

mod axis;
mod cube;
mod footprint;
mod format;
mod image;
mod table;

pub(crate) use axis::FRACTION_ONE;
pub(crate) use footprint::{Lookup, Place, corners, element, taps};
pub(crate) use image::{Geometry, Image, Kind};
pub(crate) use table::{Entry, Sampled, SoftwareTexture, TextureTable, Textures};
