//! Arguments of `causeway serve`.

use std::path::PathBuf;

use causeway_protocol::socket::DEFAULT_NAME;
use causeway_run::metrics::MetricsArguments;
use causeway_run::sandbox::SandboxArguments;
use causeway_terminal::{Failure, number};
use clap::Args;

/// Maximum number of spare worker processes.
const SPARES_MAX: u32 = 8;
/// Maximum number of client processes at a time.
const PROCESSES_MAX: u32 = 64;

/// Arguments of `causeway serve`, as the user typed them.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Path of the socket to create. Client programs read this path from the environment variable
    /// CAUSEWAY_SOCKET. Default: `causeway-gpu.socket` in XDG_RUNTIME_DIR, where programs look if
    /// CAUSEWAY_SOCKET is not set.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Back end and the limits of each client process, as for `run`. Given several times, each is
    /// one more GPU for every process, with a socket of its own: that of the second has `.gpu1`
    /// behind its path.
    #[arg(long, value_name = "GPU", default_value = "software")]
    pub gpu: Vec<String>,
    /// How worker processes are confined.
    #[command(flatten)]
    pub sandbox: SandboxArguments,
    /// Where to serve metrics.
    #[command(flatten)]
    pub metrics: MetricsArguments,
    /// Maximum number of client processes at a time, 1 to 64.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = number::<u32>(1..=PROCESSES_MAX.into(), "")
    )]
    pub processes: u32,
    /// Number of worker processes to start ahead, so that client processes find them ready, 0 to 8.
    /// On a GPU, each holds a context of some hundred MiB.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = number::<u32>(0..=SPARES_MAX.into(), "")
    )]
    pub spare_workers: u32,
}

impl ServeArguments {
    /// Returns where to listen: in the directory that the user's session has for sockets, if the
    /// user chose no path.
    pub(crate) fn socket_path(&self) -> Result<PathBuf, Failure> {
        let folder = || std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let default = || Some(folder()?.join(DEFAULT_NAME)).filter(|path| path.is_absolute());
        self.socket.clone().or_else(default).ok_or_else(|| {
            Failure::usage(
                "missing --socket PATH: XDG_RUNTIME_DIR is not set, so there is no default path; \
             choose one in a directory that only you can write to"
                    .to_owned(),
            )
        })
    }
}
