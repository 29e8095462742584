//! Test kernels.
#![no_std]
