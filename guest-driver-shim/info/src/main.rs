//! `causeway-info`: what a guest sees of its device, its limits, and who uses it; and marks of
//! phases, for programs that cannot use the shim.

mod facts;
mod phase;
mod table;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use causeway_shim_linux::LinuxTransport;
use phase::PhaseCommand;

const USAGE: &str = "\
usage: causeway-info [--json]
       causeway-info phase begin [--path setup|control|data] NAME
       causeway-info phase end [--operations N] [--bytes N]

Shows the Causeway device of this machine: its limits, their use, and the processes that use it.
The device is the PCI function of a guest, or `causeway serve` behind the socket that the
environment variable CAUSEWAY_SOCKET names. --json prints the same as JSON.

`phase begin` begins a phase, in a guest of `causeway run`: the host counts VM exits until `phase
end`, and the report of the run lists them. A phase is of the data path, which should have no exits,
unless --path says otherwise. N is how much the program did in the phase, as it counts itself.

Exit codes: 0 success; 1 the device cannot be used, or the phase cannot begin or end; 2 invalid
argument.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let json = match words[..] {
        [] => false,
        ["--json"] => true,
        ["--help" | "-h"] => return print(USAGE),
        ["phase", ref words @ ..] => return phase(words),
        _ => return usage(&format!("invalid arguments `{}`", words.join(" "))),
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

/// Carries out `causeway-info phase`, whose further words are `words`.
fn phase(words: &[&str]) -> ExitCode {
    match PhaseCommand::parse(words) {
        Err(message) => usage(&message),
        Ok(command) => match command.carry_out() {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => fail(&e),
        },
    }
}

fn usage(message: &str) -> ExitCode {
    eprintln!("causeway-info: {message}\n\n{USAGE}");
    ExitCode::from(2)
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
