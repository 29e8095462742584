//! Runs a workload as a program: with its arguments, its threads and its exit status.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

use causeway_shim_linux::LinuxTransport;

use super::bench::{self, MAILBOXES};
use super::machine::{Machine, calibrated_clock};
use super::mail::Folder;

/// Most threads of a program.
const THREADS_MAX: u32 = 64;

const USAGE: &str = "\
usage: PROGRAM [--threads N] [--vm I --vms N [--mailboxes FOLDER]]
  --threads N       run on N threads, as a guest with N virtual CPUs does (default 1)
  --vm I --vms N    run as process I, from 0, of N processes that work together
  --mailboxes FOLDER  folder by which these processes exchange mail

The device is the one of this guest, or that of the socket that CAUSEWAY_SOCKET names.";

/// The arguments of the program.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    threads: u32,
    vm: Option<u32>,
    vms: u32,
    mailboxes: Option<PathBuf>,
}

impl Arguments {
    /// Returns the arguments with this number of the VM, unless they name another.
    fn numbered(mut self, vm: u32, vms: u32) -> Self {
        if self.vm.is_none() {
            (self.vm, self.vms) = (Some(vm), vms);
        }
        self
    }

    fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self {
            threads: 1,
            vm: None,
            vms: 1,
            mailboxes: None,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?;
            let number = |least, most| match value.parse() {
                Ok(number) if (least..=most).contains(&number) => Ok(number),
                _ => Err(format!(
                    "invalid value {value} for {word}: {least} to {most}"
                )),
            };
            match word.as_str() {
                "--threads" => arguments.threads = number(1, THREADS_MAX)?,
                "--vm" => arguments.vm = Some(number(0, 63)?),
                "--vms" => arguments.vms = number(1, 64)?,
                "--mailboxes" => arguments.mailboxes = Some(value.into()),
                _ => return Err(format!("unknown argument {word}")),
            }
        }
        match arguments.vm {
            Some(vm) if vm >= arguments.vms => Err(format!(
                "invalid value {vm} for --vm: 0 to {}, because --vms is {}",
                arguments.vms - 1,
                arguments.vms
            )),
            _ => Ok(arguments),
        }
    }
}

/// Returns the index of this VM and the number of VMs; `None` if the VM has no test device.
fn identity() -> Option<(u32, u32)> {
    // The workload reports the error when it opens the device.
    match super::transport() {
        Ok(LinuxTransport::Pci(pci)) => bench::find(pci),
        _ => None,
    }
}

/// Runs `workload` on as many threads as the command line asks for. A panic of any thread ends the
/// program with a failure.
pub fn run(workload: fn(&Machine)) -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => {
            let (vm, vms) = identity().unwrap_or((0, 1));
            run_as(workload, &arguments.numbered(vm, vms))
        }
        Err(message) => usage(&message),
    }
}

/// Runs a workload that needs two VMs or processes. If this is one of several VMs, or if the
/// command line names one of several processes, it does the same as [`run`]. Otherwise it starts
/// two processes of this program.
pub fn run_pair(workload: fn(&Machine)) -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => return usage(&message),
    };
    match (arguments.vm, identity()) {
        (Some(_), _) => run_as(workload, &arguments),
        (None, Some((vm, vms))) if vms > 1 => run_as(workload, &arguments.numbered(vm, vms)),
        _ => both().unwrap_or_else(|e| {
            eprintln!("cannot start two processes: {e}");
            ExitCode::FAILURE
        }),
    }
}

fn usage(message: &str) -> ExitCode {
    eprintln!("{message}\n\n{USAGE}");
    ExitCode::from(2)
}

fn run_as(workload: fn(&Machine), arguments: &Arguments) -> ExitCode {
    end_on_panic();
    if let Some(path) = &arguments.mailboxes {
        MAILBOXES.get_or_init(|| Folder::new(path.clone()));
    }
    let clock = calibrated_clock();
    let machine = |cpu| Machine {
        cpu,
        cpus: arguments.threads,
        vm: arguments.vm.unwrap_or(0),
        vms: arguments.vms,
        clock,
    };
    let other = |cpu| {
        let machine = machine(cpu);
        std::thread::Builder::new()
            .name(format!("cpu{cpu}"))
            .spawn(move || workload(&machine))
    };
    for cpu in 1..arguments.threads {
        if let Err(e) = other(cpu) {
            eprintln!("cannot start {} threads: {e}", arguments.threads);
            return ExitCode::FAILURE;
        }
    }
    // As on a machine without an operating system: the program ends when the first CPU is done.
    workload(&machine(0));
    ExitCode::SUCCESS
}

/// Makes a panic of any thread end the program, because other threads may wait for that thread, and
/// report the panic to the host.
fn end_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        let message = info.payload_as_str().unwrap_or("no message");
        let (file, line) = info.location().map_or(("", 0), |at| (at.file(), at.line()));
        bench::last_words(file, line, message);
        std::process::exit(1);
    }));
}

/// Runs both sides as processes of this program, with a folder for their mailboxes.
fn both() -> io::Result<ExitCode> {
    let mailboxes = std::env::temp_dir().join(format!("causeway-mailboxes-{}", std::process::id()));
    std::fs::create_dir(&mailboxes)?;
    let outcome = both_with(&mailboxes);
    // A process that still waits for mail notices that the folder is gone, and fails.
    std::fs::remove_dir_all(&mailboxes)?;
    outcome
}

fn both_with(mailboxes: &Path) -> io::Result<ExitCode> {
    let start = |vm: &str| {
        Command::new(std::env::current_exe()?)
            .args(["--vm", vm, "--vms", "2", "--mailboxes"])
            .arg(mailboxes)
            .spawn()
    };
    let mut sides = [start("0")?, start("1")?];
    let passed = wait(&mut sides);
    if !passed? {
        // One has failed; the other may be waiting for it.
        sides.iter_mut().for_each(|side| {
            let _ = side.kill();
            let _ = side.wait();
        });
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until both processes have passed (true), or one has failed (false).
fn wait(sides: &mut [Child; 2]) -> io::Result<bool> {
    loop {
        let mut passed = 0;
        for side in sides.iter_mut() {
            match side.try_wait()? {
                Some(status) if status.success() => passed += 1,
                Some(_) => return Ok(false),
                None => {}
            }
        }
        if passed == sides.len() {
            return Ok(true);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Arguments, String> {
        Arguments::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_read_and_mistakes_named() {
        let parsed = parse("--threads 4 --vm 1 --vms 2 --mailboxes /x").unwrap();
        assert_eq!((parsed.threads, parsed.vm, parsed.vms), (4, Some(1), 2));
        for (text, part) in [
            ("--threads 0", "invalid value 0 for --threads: 1 to 64"),
            ("--threads", "needs a value"),
            ("--vm 2 --vms 2", "invalid value 2 for --vm: 0 to 1"),
            ("--speed 11", "unknown argument --speed"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
