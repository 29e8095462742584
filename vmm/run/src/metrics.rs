//! Where a command serves metrics: the arguments that `run` and `serve` have for it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causeway_publisher::MetricsPlaces;
use causeway_terminal::{Code, Failure, shown_path};
use clap::Args;

/// Arguments about metrics, as the user typed them.
#[derive(Clone, Debug, Default, Args)]
pub struct MetricsArguments {
    /// Serve metrics on a Unix socket at this path: GET /metrics over HTTP, in OpenMetrics format
    /// (docs/observing.md).
    #[arg(long, value_name = "PATH")]
    pub metrics_socket: Option<PathBuf>,
    /// Serve metrics at this TCP address, such as 127.0.0.1:9400: GET /metrics over HTTP.
    #[arg(long, value_name = "ADDRESS", value_parser = parse)]
    pub metrics: Option<SocketAddr>,
    /// Let --metrics name an address that other hosts can reach. Everybody who can reach it can
    /// read the metrics.
    #[arg(long, requires = "metrics")]
    pub metrics_any_address: bool,
}

impl MetricsArguments {
    /// Checks the address, and returns the places at which to serve metrics.
    ///
    /// # Errors
    /// A usage failure if other hosts can reach the address, and `--metrics-any-address` was not
    /// given.
    pub fn places(&self) -> Result<MetricsPlaces, Failure> {
        if let Some(address) = self.metrics
            && !address.ip().is_loopback()
            && !self.metrics_any_address
        {
            return Err(Failure::usage(format!(
                "invalid value {address} for --metrics: choose a loopback address such as \
                 127.0.0.1:{port}, or add --metrics-any-address if everybody who can reach this \
                 host may read the metrics",
                port = address.port()
            )));
        }
        Ok(MetricsPlaces {
            socket: self.metrics_socket.clone(),
            address: self.metrics,
        })
    }
}

/// Removes the socket of `--metrics-socket` or `--control` at `path` when the process has ended
/// that started this one.
///
/// # Errors
/// A usage failure with the reason.
pub fn keep_socket(path: &Path) -> Result<ExitCode, Failure> {
    match causeway_publisher::keep_socket(path) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) => {
            let what = format!("cannot remove the socket {}", shown_path(path));
            Err(Failure::new(Code::Usage, what, e))
        }
    }
}

fn parse(text: &str) -> Result<SocketAddr, String> {
    let named = text.strip_prefix("localhost:");
    let address = named.map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    address
        .parse()
        .map_err(|_| "give an IP address and a port, such as 127.0.0.1:9400".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(address: &str, metrics_any_address: bool) -> Result<MetricsPlaces, Failure> {
        let arguments = MetricsArguments {
            metrics: Some(parse(address).unwrap()),
            metrics_any_address,
            ..MetricsArguments::default()
        };
        arguments.places()
    }

    #[test]
    fn only_this_host_reaches_an_address_unless_told_otherwise() {
        for address in [
            "127.0.0.1:9400",
            "[::1]:9400",
            "localhost:9400",
            "127.9.9.9:0",
        ] {
            assert!(places(address, false).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:9400", "192.0.2.1:9400", "[::]:9400"] {
            let refused = places(address, false).unwrap_err().to_string();
            for part in [address, "127.0.0.1:9400", "--metrics-any-address"] {
                assert!(refused.contains(part), "{refused}");
            }
            let address = places(address, true).unwrap().address.unwrap();
            assert!(!address.ip().is_loopback());
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        for text in [
            "9400",
            "127.0.0.1",
            "localhost",
            "127.0.0.1:x",
            "",
            "a.example:1",
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains("127.0.0.1:9400"), "{text}: {refused}");
        }
    }
}
