//! Runs one program of the host in an emulated machine with KVM, for looking at things by hand:
//!
//!     cargo run -p causeway-nested --example run -- [OPTION]… PROGRAM [ARGUMENT]…
//!
//! * `--file HOST:PLACE` puts a file that it reads into the machine, `--fetch PLACE:HOST` brings
//!   one back that it has written.
//! * `--memory MIB` and `--cpus N` say how large the machine is.
//! * `--hand-out ADDRESS` gives it an IOMMU and devices, and binds this one to vfio-pci
//!   (`causeway_nested::devices` has them all).
//! * `--limit S` says how long the program may take: ten minutes, if left out.
//! * `--times N` runs it N times, or until it fails.
//!
//! The program has its libraries with it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use causeway_nested::{Command, Contents, Machine, Requirements, Shape, devices};

const USAGE: &str = "usage: run [--file HOST:PLACE]... [--fetch PLACE:HOST]... \
[--memory MIB] [--cpus N] \
[--hand-out ADDRESS]... [--limit S] [--times N] PROGRAM [ARGUMENT]...";

/// What was typed.
struct Arguments {
    shape: Shape,
    files: Vec<(PathBuf, String)>,
    fetched: Vec<(String, PathBuf)>,
    devices: Vec<devices::HostDevice>,
    limit: Duration,
    times: u32,
    program: Vec<String>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = parse(std::env::args().skip(1)).ok_or(USAGE)?;
    let [program, words @ ..] = arguments.program.as_slice() else {
        return Err(USAGE.into());
    };
    let mut contents = Contents::default()
        .program("program", Path::new(program))?
        .module("vfio_iommu_type1")
        .module("vfio_pci");
    for (file, place) in &arguments.files {
        contents = contents.file(place, file);
    }
    let machine = Machine::boot(&Requirements::find()?, &arguments.shape, &contents)?;
    for device in &arguments.devices {
        device.bind(&machine, "vfio-pci");
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    eprintln!("run: booted in {:.1} s", machine.boot_time.as_secs_f64());
    let command = Command::new("/bin/program", &words).limit(arguments.limit);
    let mut code = 0;
    for _ in 0..arguments.times {
        code = run_once(&machine, &command);
        if code != 0 {
            break;
        }
    }
    for (place, file) in &arguments.fetched {
        std::fs::write(file, machine.read(place)?)?;
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Runs the program, prints what it has printed, and returns its exit code.
fn run_once(machine: &Machine, command: &Command) -> i32 {
    let begun = Instant::now();
    let outcome = machine.run(command);
    print!("{}", outcome.stdout);
    eprint!("{}", outcome.stderr);
    let ran = begun.elapsed().as_secs_f64();
    eprintln!("run: it ended with {} after {ran:.1} s", outcome.code);
    outcome.code
}

fn parse(words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments {
        shape: Shape::default(),
        files: Vec::new(),
        fetched: Vec::new(),
        devices: Vec::new(),
        limit: Duration::from_secs(600),
        times: 1,
        program: Vec::new(),
    };
    let mut words = words.peekable();
    while words.peek()?.starts_with("--") {
        let (option, value) = (words.next()?, words.next()?);
        match option.as_str() {
            "--file" => {
                let (file, place) = value.split_once(':')?;
                arguments.files.push((file.into(), place.to_owned()));
            }
            "--fetch" => {
                let (place, file) = value.split_once(':')?;
                arguments.fetched.push((place.to_owned(), file.into()));
            }
            "--memory" => arguments.shape.memory_mib = value.parse().ok()?,
            "--cpus" => arguments.shape.cpus = value.parse().ok()?,
            "--hand-out" => {
                let device = devices::all().find(|device| device.address == value)?;
                arguments.shape.has_iommu = true;
                arguments.devices.push(device);
            }
            "--times" => arguments.times = value.parse().ok()?,
            "--limit" => arguments.limit = Duration::from_secs(value.parse().ok()?),
            _ => return None,
        }
    }
    arguments.program = words.collect();
    Some(arguments)
}
