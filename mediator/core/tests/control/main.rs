//! Control operations, by the statuses that they can end with.

mod batches;
mod contents;
mod mappings;
mod modules;
#[path = "../rig/mod.rs"]
mod rig;
mod session;
