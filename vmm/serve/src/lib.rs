//! `causeway serve`: the GPU for ordinary processes of this host, over a socket, without VMs.

mod arguments;
mod client;
mod connection;
mod ending;
mod host;
mod private;
mod processes;
mod server;
mod stop;

pub use arguments::ServeArguments;
pub use private::PrivateServer;
pub use processes::EndedSessions;
pub use server::run;
