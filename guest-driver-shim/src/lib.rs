//! The guest half.
#![no_std]
