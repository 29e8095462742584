//! The server of tests on a GPU: `causeway serve`, which ends when its standard input does.

use std::process::ExitCode;

use causeway_run::worker::{StarterArguments, WorkerArguments};
use causeway_serve::ServeArguments;
use clap::Parser;

#[derive(Parser)]
enum Command {
    Serve(ServeArguments),
    /// What the server starts itself as, to start workers.
    Starter(StarterArguments),
    /// What that process starts for each client process.
    Worker(WorkerArguments),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Serve(arguments) => {
            std::thread::spawn(end_with_input);
            causeway_serve::run(&arguments)
        }
        Command::Starter(arguments) => causeway_run::worker::start_workers(&arguments),
        Command::Worker(arguments) => causeway_run::worker::run(&arguments),
    };
    result.unwrap_or_else(|failure| {
        failure.print();
        failure.exit_code()
    })
}

fn end_with_input() {
    // An error is an end, too.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(0);
}
