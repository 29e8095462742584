//! A whole function over a device that is none.

mod decoding;
mod hostile;
mod interrupts;
mod lives;
mod rig;
mod space;
