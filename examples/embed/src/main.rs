//! `embed IMAGE`: runs a bare guest on the software back end, and prints what exits it caused.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use causeway_example_embed::run_guest;
use causeway_software::{Config, Software};
use causeway_vmm::signals::Signals;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprint!("embed: {error}");
        // An error says what failed, and its source says why.
        let mut cause = error.source();
        while let Some(error) = cause {
            eprint!(": {error}");
            cause = error.source();
        }
        eprintln!();
        ExitCode::FAILURE
    })
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("give a bare guest: embed IMAGE")?;
    let image = std::fs::read(&path).map_err(|e| format!("cannot read {path}: {e}"))?;
    let mut signals = Signals::block()?;
    let backend = Arc::new(Software::new(Config {
        memory_bytes: 1 << 30,
        ..Config::default()
    }));
    let (outcome, report) = run_guest(&image, backend, &mut signals)?;
    for phase in &report.phases {
        println!(
            "phase {}: {} exits",
            phase.name,
            phase.vmm_exits.values().sum::<u64>()
        );
    }
    println!("exits of the VM's life, by the VMM's count:");
    for (reason, exits) in &outcome.vmm_exits {
        println!("{exits:8} {reason}");
    }
    println!("by KVM's count:");
    for (name, exits) in outcome.kvm_exits.iter().filter(|(_, exits)| **exits != 0) {
        println!("{exits:8} {name}");
    }
    println!("the guest {}", outcome.result);
    Ok(ExitCode::from(u8::from(!outcome.result.passed())))
}
