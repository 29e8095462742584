//! Statistics of running guests, published on a Unix socket, and over TCP on request.
//!
//! Each process with guests answers on a socket of its own ([`Publisher`]), whose name contains the
//! process ID ([`runtime`]). `causeway stat` asks for a [`Snapshot`] as JSON, and metrics scrapers
//! for OpenMetrics. Scrapers can have more places ([`MetricsPlaces`]).

mod connection;
mod door;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod folders;
pub mod http;
pub mod listener;
mod openmetrics;
mod publisher;
pub mod runtime;
pub mod snapshot;

pub use door::MetricsPlaces;
pub use publisher::{PublishError, Publisher};
pub use snapshot::{Guest, Snapshot};
