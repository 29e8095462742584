//! The VFIO back end over a device without a device.
#![allow(
    unsafe_code,
    reason = "looks at memory of a device as a guest's CPUs do"
)]

mod choosing;
mod lending;
mod losing;
mod rig;
mod work;
