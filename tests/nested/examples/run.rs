//! Runs one program of the host in an emulated machine with KVM, for looking at things by hand:
//!
//!     cargo run -p causeway-nested --example run -- [--file HOST:PLACE]… [--memory MIB] [--cpus N] PROGRAM [ARGUMENT]…
//!
//! The program has its libraries with it; files of the host's that it reads are given by `--file`. It may take ten minutes.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use causeway_nested::{Command, Contents, Machine, Requirements, Shape};

const LIMIT: Duration = Duration::from_secs(600);
const USAGE: &str =
    "usage: run [--file HOST:PLACE]... [--memory MIB] [--cpus N] PROGRAM [ARGUMENT]...";

/// What was typed.
#[derive(Default)]
struct Arguments {
    shape: Shape,
    files: Vec<(PathBuf, String)>,
    program: Vec<String>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = parse(std::env::args().skip(1)).ok_or(USAGE)?;
    let [program, words @ ..] = arguments.program.as_slice() else {
        return Err(USAGE.into());
    };
    let mut contents = Contents::default().program("program", Path::new(program))?;
    for (file, place) in &arguments.files {
        contents = contents.file(place, file);
    }
    let machine = Machine::boot(&Requirements::find()?, &arguments.shape, &contents)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let begun = Instant::now();
    let outcome = machine.run(&Command::new("/bin/program", &words).limit(LIMIT));
    print!("{}", outcome.stdout);
    eprint!("{}", outcome.stderr);
    let (boot, ran) = (machine.boot_time, begun.elapsed());
    eprintln!(
        "run: it ended with {} after {:.1} s, in a machine that booted in {:.1} s",
        outcome.code,
        ran.as_secs_f64(),
        boot.as_secs_f64()
    );
    Ok(ExitCode::from(u8::try_from(outcome.code).unwrap_or(1)))
}

fn parse(words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments::default();
    let mut words = words.peekable();
    while words.peek()?.starts_with("--") {
        let (option, value) = (words.next()?, words.next()?);
        match option.as_str() {
            "--file" => {
                let (file, place) = value.split_once(':')?;
                arguments.files.push((file.into(), place.to_owned()));
            }
            "--memory" => arguments.shape.memory_mib = value.parse().ok()?,
            "--cpus" => arguments.shape.cpus = value.parse().ok()?,
            _ => return None,
        }
    }
    arguments.program = words.collect();
    Some(arguments)
}
