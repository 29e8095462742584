//! Statistics of running guests, published on a Unix socket.
//!
//! Every process with guests answers on a socket of its own ([`Publisher`]). The socket is found by the number of
//! the process ([`runtime`]). `causeway stat` asks for a [`Snapshot`] as JSON, and metrics scrapers for OpenMetrics.

mod connection;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod folders;
pub mod http;
pub mod listener;
mod openmetrics;
mod publisher;
pub mod runtime;
pub mod snapshot;

pub use publisher::{PublishError, Publisher};
pub use snapshot::{Guest, Snapshot};
