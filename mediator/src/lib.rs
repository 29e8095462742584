//! The mediator.
pub mod backend;
pub mod host;
