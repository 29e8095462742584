//! The first process of an emulated machine, and the agent that serves the test which booted it.
//!
//! As process 1 the program mounts what programs expect, loads the modules, parks VMs, starts
//! itself once more as the agent, and then only collects processes that have lost their parents.
//! When the agent ends, the machine is switched off.

mod init;
mod job;
mod kernel_log;
mod parked;
mod port;
mod serve;
mod shutdowns;
mod survey;
mod terminal;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::run()
    }
    match serve::run() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("nested-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
