//! Test kernels: CUDA C sources, the PTX compiled from them, inputs, and plain Rust references.
//!
//! The sources are `kernels/*.cu`; `compile.py` compiles them to `ptx/*.ptx`. Each [`Case`] in
//! [`CASES`] describes one launch: the module, the geometry, the buffers and arguments, the content
//! of the buffers before the launch, and the content that is expected afterwards. The same
//! description serves tests on the host and guests without an operating system, so nothing here
//! allocates memory or needs `std`. A run always has these steps:
//!
//! 1. [`Case::fill`] each buffer, upload the ones that are not [`Role::Output`] (fresh memory is
//!    zero, and so is their filling);
//! 2. launch with [`Case::parameters`];
//! 3. [`Case::fill`] a second set, let [`Case::reference`] turn it into the expected one;
//! 4. [`Case::compare`] each buffer, the inputs too: a kernel must not change those.
//!
//! With [`Case::fill_with`] and [`Case::shape`], the same case has any number of other inputs and
//! geometries.
//!
//! The references were compared with an NVIDIA H200 (driver 580): all cases agree within their
//! rules.
//!
//! [`bench`] has the kernels for measuring, [`peers`] those that work on memory of another GPU,
//! [`special`] those that misbehave or only take time,
//! [`loops`] the loops of loads and stores whose speed in a guest is compared with the host's.
#![no_std]

#[cfg(test)]
extern crate std;

mod arithmetic;
pub mod bench;
mod case;
mod cases;
mod functions;
mod geometry;
pub mod line;
pub mod loops;
pub mod peers;
mod random;
mod rule;
pub mod special;
mod words;

pub use case::{Argument, Buffer, CASE_BYTES_MAX, Case, PARAMETER_BYTES_MAX, Role};
pub use cases::{CASES, case};
pub use geometry::Geometry;
pub use random::{Generator, Seed};
pub use rule::{Mismatch, Rule};
