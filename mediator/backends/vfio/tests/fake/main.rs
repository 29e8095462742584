//! The VFIO back end over a device without a device.
#![allow(
    unsafe_code,
    reason = "looks at memory of a device as a guest's CPUs do"
)]

mod choosing;
mod losing;
mod partitions;
mod rig;
mod work;
