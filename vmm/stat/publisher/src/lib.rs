//! Statistics of running guests, published on a Unix socket, and over TCP on request, and limits of
//! these guests, which can be changed; and the control socket of a run.
//!
//! Each process with guests answers on a socket of its own ([`Publisher`]), whose name contains the
//! process ID ([`runtime`]). `causeway stat` asks for a [`Snapshot`] as JSON, `causeway limit` for
//! [`limits`], and metrics scrapers for OpenMetrics. Scrapers can have more places
//! ([`MetricsPlaces`]), and a run another socket for [`control`]. Module [`client`] asks.

pub mod absent;
pub mod client;
mod connection;
pub mod control;
mod door;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod folders;
mod http;
pub mod limits;
pub mod listener;
mod openmetrics;
mod publisher;
pub mod rights;
pub mod runtime;
#[cfg(feature = "schema")]
pub mod schema;
pub mod snapshot;
mod socket_keeper;

pub use door::MetricsPlaces;
pub use publisher::{Doors, PublishError, Published, Publisher};
pub use snapshot::{Guest, Snapshot};
pub use socket_keeper::keep_socket;
