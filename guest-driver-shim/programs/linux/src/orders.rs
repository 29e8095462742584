//! Programs whose arguments are orders, which are carried out one after the other, each as a phase
//! of the data path. On a host, which has no phases, the first argument is `--host`.

use std::io::{self, Write};
use std::process::ExitCode;

use causeway_shim_linux::{Phase, PhasePath, Totals};

/// How work with a name and a number of operations is marked.
pub type Marks = fn(&str, u64, &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;

/// Carries out the orders that `program` has as its arguments. `obey` takes an order and the words
/// behind it, and returns how many of these belong to it.
pub fn carry_out(
    program: &str,
    obey: impl Fn(&str, &[String], Marks) -> io::Result<usize>,
) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mut rest, mut marks) = (&words[..], counted as Marks);
    if let [first, behind @ ..] = rest
        && first == "--host"
    {
        (rest, marks) = (behind, uncounted);
    }
    while let [order, behind @ ..] = rest {
        match obey(order, behind, marks) {
            Ok(taken) => rest = &behind[taken..],
            Err(e) => {
                println!("{program}: {order}: {e}");
                return ExitCode::FAILURE;
            }
        }
        println!("{program}: {order}: done");
    }
    ExitCode::SUCCESS
}

/// Returns the error for an order that a program does not have.
#[must_use]
pub fn unknown() -> io::Error {
    io::Error::other("there is no such order, or it has too few words")
}

/// Reads a number.
///
/// # Errors
/// If the text is none.
pub fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(io::Error::other)
}

/// Returns bytes of which each place and each seed has others.
#[must_use]
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..bytes as u64).map(byte).collect()
}

fn uncounted(_: &str, _: u64, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
    work()
}

/// Calls `work` in a phase of the data path with `operations` operations.
fn counted(
    name: &str,
    operations: u64,
    work: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    // What was printed before must not be sent by interrupts in the phase.
    io::stdout().flush()?;
    let phase = Phase::begin(PhasePath::Data, name).map_err(io::Error::other)?;
    work()?;
    let totals = Totals {
        operations,
        ..Totals::default()
    };
    phase.end(totals).map_err(io::Error::other)
}
