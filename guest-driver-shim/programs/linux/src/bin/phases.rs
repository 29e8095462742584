//! Tests phases: marks some by the shim, and others by `causeway-info`, which must be
//! `/bin/causeway-info` in the guest.

use std::error::Error;
use std::hint::black_box;
use std::process::{Command, ExitCode, Stdio};

use causeway_shim_linux::{IoPorts, Phase, PhasePath, Totals};
use causeway_testdev_records::PORT_MARK;

/// The error for which this program fails.
type Failure = Box<dyn Error>;

/// The program that marks phases for others.
const TOOL: &str = "/bin/causeway-info";
/// Number of additions in a phase of the data path.
const ADDITIONS: u64 = 10_000_000;
/// Number of exits in the phase that has some.
const EXITS: u64 = 5;

fn main() -> ExitCode {
    match mark() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("phases: {e}");
            ExitCode::FAILURE
        }
    }
}

fn mark() -> Result<(), Failure> {
    println!("phases: begin");
    let phase = Phase::begin(PhasePath::Data, "by the shim")?;
    add();
    phase.end(operations(ADDITIONS))?;
    tool(&["phase", "begin", "by the tool"])?;
    add();
    tool(&["phase", "end", "--operations", &ADDITIONS.to_string()])?;
    exits()?;
    if tool(&["phase", "end"]).is_ok() {
        return Err("a phase that has not begun has ended".into());
    }
    println!("phases: verified");
    // The end of this program ends it.
    let _left_open = Phase::begin(PhasePath::Setup, "left open")?;
    Ok(())
}

/// A phase that accesses a port.
fn exits() -> Result<(), Failure> {
    let ports = IoPorts::open(PORT_MARK, 4)?;
    let phase = Phase::begin(PhasePath::Control, "port loads")?;
    for _ in 0..EXITS {
        black_box(ports.read(PORT_MARK));
    }
    Ok(phase.end(operations(EXITS))?)
}

fn operations(operations: u64) -> Totals {
    Totals {
        operations,
        ..Totals::default()
    }
}

fn add() {
    let sum = (0..ADDITIONS).fold(0, |sum: u64, number| black_box(sum.wrapping_add(number)));
    black_box(sum);
}

fn tool(words: &[&str]) -> Result<(), Failure> {
    // What it prints would be sent in the phase.
    let status = Command::new(TOOL)
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("`{TOOL} {}` ended with {status}", words.join(" ")).into()),
    }
}
