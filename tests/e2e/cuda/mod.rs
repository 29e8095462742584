//! `--gpu cuda` on the stand-in driver: the same guests, the limits, what cannot be, and what is
//! left behind.
//!
//! The stand-in computes on the host's cores. Nothing here says how fast anything is.

mod bench;
mod bench_peers;
mod choice;
mod doctor;
mod guests;
mod last_resort;
mod limits;
mod lives;
mod refusals;
mod visible;
