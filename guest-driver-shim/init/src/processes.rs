//! The program, and the processes that it leaves to the init.
#![allow(unsafe_code)] // What happens between fork and exec, and a signal to every process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, ioctl_tiocsctty, setsid, wait};

use crate::configuration::Configuration;
use crate::console::say;
use crate::end::Status;

/// How long processes may take to end when they are asked to, before they are killed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks at processes that are about to end.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs the program to its end. Calls `died` whenever another process has died.
pub(crate) fn run(configuration: &Configuration, died: impl Fn()) -> Status {
    let program = match start(configuration) {
        Ok(program) => program,
        Err(error) => {
            let path = configuration.program.display();
            say(&format!("cannot run {path}: {error}"));
            return Status::NotRun;
        }
    };
    loop {
        match next_dead(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => return Status::of(status),
            Ok(_) => died(),
            Err(error) => {
                say(&format!("cannot wait for the program: {error}"));
                return Status::NotRun;
            }
        }
    }
}

fn start(configuration: &Configuration) -> io::Result<Pid> {
    let mut command = Command::new(&configuration.program);
    command.args(&configuration.arguments).current_dir("/");
    for (name, value) in [("PATH", "/bin:/sbin:/usr/bin:/usr/sbin"), ("HOME", "/")] {
        if std::env::var_os(name).is_none() || name == "PATH" {
            command.env(name, value);
        }
    }
    // SAFETY: two system calls and no memory, as is right between fork and exec.
    unsafe { command.pre_exec(lead_the_console) };
    Ok(Pid::from_child(&command.spawn()?))
}

/// Makes the console the program's terminal, so that it gets what is typed there, and Ctrl-C.
fn lead_the_console() -> io::Result<()> {
    setsid()?;
    // Without a terminal it runs as well.
    let _ = ioctl_tiocsctty(rustix::stdio::stdin());
    Ok(())
}

/// Waits for a process to die; one that merely stops or goes on does not count.
fn next_dead(options: WaitOptions) -> Result<Option<(Pid, WaitStatus)>, Errno> {
    loop {
        match wait(options) {
            Err(Errno::INTR) => {}
            waited => return waited,
        }
    }
}

/// Ends all processes but this one: asks them, and kills those that do not.
pub(crate) fn end_all() {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        // SAFETY: a signal touches no memory of this process, which it does not reach.
        if unsafe { libc::kill(-1, signal) } != 0 {
            // There is nobody.
            return;
        }
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            match next_dead(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => std::thread::sleep(PAUSE),
                Err(_) => return,
            }
        }
    }
    say("some processes did not end by SIGKILL: the VM ends without them");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn run_shell(script: &str) -> Status {
        let configuration = Configuration {
            modules: Vec::new(),
            program: "/bin/sh".into(),
            arguments: ["-c", script].map(OsString::from).to_vec(),
        };
        run(&configuration, || {})
    }

    // One test, because waiting is for any child of the process.
    #[test]
    fn how_the_program_ended_is_what_is_reported() {
        assert_eq!(run_shell("exit 0"), Status::Exited(0));
        assert_eq!(run_shell("exit 7"), Status::Exited(7));
        assert_eq!(run_shell("kill -SEGV $$"), Status::Killed(11));
        assert_eq!(
            run_shell("test \"$HOME\" && test \"$PATH\""),
            Status::Exited(0)
        );
        let missing = Configuration {
            modules: Vec::new(),
            program: "/nonexistent/program".into(),
            arguments: Vec::new(),
        };
        assert_eq!(run(&missing, || {}), Status::NotRun);
    }
}
