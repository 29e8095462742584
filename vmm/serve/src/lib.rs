//! `causeway serve`: the GPU for ordinary processes of this host, over a socket, without VMs.

mod connection;
mod ending;
mod host;
mod processes;
mod server;

pub use server::{ServeArguments, run};
