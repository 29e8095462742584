//! Sessions in real worker processes: this test binary starts itself as one.

mod attempts;
mod clients;
mod confined;
mod endings;
mod hostile;
mod limits;
mod puppet;
pub(crate) mod rig;
mod samples;
mod sharing;
mod spares;
mod taken_over;
