//! `backend IMAGE`: runs a bare guest on a back end of this program's own.

use std::error::Error;
use std::process::ExitCode;

use causeway_example_backend::Doubler;
use causeway_example_embed::run_guest;
use causeway_vmm::signals::Signals;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("backend: {error}");
        ExitCode::FAILURE
    })
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("give a bare guest: backend IMAGE")?;
    let image = std::fs::read(&path).map_err(|e| format!("cannot read {path}: {e}"))?;
    let mut signals = Signals::block()?;
    let doubler = Doubler::new();
    let (outcome, _) = run_guest(&image, doubler.clone(), &mut signals)?;
    println!("the device doubled {} numbers", doubler.doubled());
    println!("the guest {}", outcome.result);
    Ok(ExitCode::from(u8::from(!outcome.result.passed())))
}
