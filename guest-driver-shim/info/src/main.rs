//! `causeway-info`: what a guest sees of its device, its limits, and who uses it.

mod facts;
mod table;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use causeway_shim_linux::LinuxTransport;

const USAGE: &str = "\
usage: causeway-info [--json]

Shows the Causeway device of this machine: its limits, their use, and the processes that use it.
The device is the PCI function of a guest, or `causeway serve` behind the socket that the
environment variable CAUSEWAY_SOCKET names. --json prints the same as JSON.
Exit codes: 0 success; 1 the device cannot be used; 2 invalid argument.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let json = match words[..] {
        [] => false,
        ["--json"] => true,
        ["--help" | "-h"] => return print(USAGE),
        _ => {
            eprintln!(
                "causeway-info: invalid arguments `{}`: only --json\n\n{USAGE}",
                words.join(" ")
            );
            return ExitCode::from(2);
        }
    };
    let transport = match LinuxTransport::find() {
        Ok(transport) => transport,
        Err(e) => return fail(&e),
    };
    match facts::gather(&transport) {
        Ok(facts) if json => match serde_json::to_string_pretty(&facts) {
            Ok(text) => print(&text),
            Err(e) => fail(&e),
        },
        Ok(facts) => print(&table::render(&facts)),
        Err(e) => fail(&*e),
    }
}

fn print(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{}", text.trim_end()) {
        // A reader that has read enough is no failure.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => fail(&e),
        _ => ExitCode::SUCCESS,
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    let mut line = format!("causeway-info: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        line += &format!(": {error}");
        cause = error.source();
    }
    eprintln!("{line}");
    ExitCode::FAILURE
}
