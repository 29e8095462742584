//! The program, and the processes that it leaves to the init.
#![allow(unsafe_code)] // What happens between fork and exec, and a signal to every process.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, chdir, getpid, ioctl_tiocsctty, kill_process_group,
    setpgid, setsid, wait,
};
use rustix::termios::tcsetpgrp;

use crate::configuration::{Configuration, FILES};
use crate::console::say;
use crate::end::Status;
use crate::users::{GROUPS, Identity, USERS};

/// How long processes may take to end when they are asked to, before they are killed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Variable with the folders in which dynamic linkers look for libraries first (ld.so(8)).
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Folders in which programs lie.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
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
    let usual = configuration.root.as_ref().map_or("/", |_| FILES);
    let folder = configuration.folder.as_deref();
    let folder = folder.unwrap_or(Path::new(usual));
    command.args(&configuration.arguments);
    set_environment(&mut command, configuration);
    if std::process::id() == 1 {
        // SAFETY: system calls and no memory, as is right between fork and exec.
        unsafe { command.pre_exec(have_the_console) };
    }
    let Some(identity) = identity(configuration)? else {
        command.current_dir(folder);
        return Ok(Pid::from_child(&command.spawn()?));
    };
    if let (Some(home), None) = (&identity.home, variable(configuration, "HOME")) {
        command.env("HOME", home);
    }
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let begin = move || {
        become_user(&identity)?;
        // As the user, who might not be allowed to be there.
        Ok(chdir(&folder)?)
    };
    // SAFETY: system calls, and memory that is only read.
    unsafe { command.pre_exec(begin) };
    Ok(Pid::from_child(&command.spawn()?))
}

/// Gives the program the usual variables, and those of the configuration.
fn set_environment(command: &mut Command, configuration: &Configuration) {
    let libraries = library_path(&configuration.libraries, std::env::var_os(LIBRARY_PATH));
    command.envs(libraries.map(|path| (LIBRARY_PATH, path)));
    for (name, value) in [("PATH", PATH), ("HOME", "/")] {
        if std::env::var_os(name).is_none() || name == "PATH" {
            command.env(name, value);
        }
    }
    command.envs(variables(configuration));
}

/// Returns the variables of the configuration, with their names.
fn variables(configuration: &Configuration) -> impl Iterator<Item = (&OsStr, &OsStr)> {
    configuration.environment.iter().filter_map(|variable| {
        let bytes = variable.as_bytes();
        let equals = bytes.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&bytes[..equals], &bytes[equals + 1..]);
        Some((OsStr::from_bytes(name), OsStr::from_bytes(value)))
    })
}

fn variable<'a>(configuration: &'a Configuration, name: &str) -> Option<&'a OsStr> {
    let mut variables = variables(configuration);
    variables.find_map(|(found, value)| (found == name).then_some(value))
}

/// Returns what the program is to be; `None` if it stays root.
fn identity(configuration: &Configuration) -> io::Result<Option<Identity>> {
    let Some(user) = &configuration.user else {
        return Ok(None);
    };
    // A root file system without these files knows no names.
    let [users, groups] = [USERS, GROUPS].map(|file| std::fs::read(file).unwrap_or_default());
    let found = user.look_up(&users, &groups);
    found.map(Some).map_err(io::Error::other)
}

/// Makes the calling process one of this user, which is in no groups but its own.
fn become_user(identity: &Identity) -> io::Result<()> {
    let done = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let Identity {
        user,
        group,
        others,
        ..
    } = identity;
    // SAFETY: the kernel reads as many groups as there are. The calls change the whole process,
    // which has one thread.
    unsafe {
        done(libc::setgroups(others.len(), others.as_ptr()))?;
        done(libc::setgid(*group))?;
        done(libc::setuid(*user))
    }
}

/// Returns the value of [`LIBRARY_PATH`] with `folders` before those that it has; `None` if there
/// are no folders to add.
fn library_path(folders: &[PathBuf], before: Option<OsString>) -> Option<OsString> {
    if folders.is_empty() {
        return None;
    }
    let before = before.filter(|before| !before.is_empty());
    let all = folders.iter().map(|folder| folder.as_os_str());
    let all: Vec<&OsStr> = all.chain(before.as_deref()).collect();
    Some(all.join(OsStr::new(":")))
}

/// Makes the console the terminal of this process, which is the first one, and of the program. If
/// the program itself led the session, its end would hang the console up, and the kernel would drop
/// what the serial port has not sent yet.
pub(crate) fn lead_the_console() {
    // Without a terminal the program runs as well.
    let _ = setsid();
    let _ = ioctl_tiocsctty(rustix::stdio::stdin());
    // It goes on to print, though the console is the program's.
    on_output_in_background(libc::SIG_IGN);
}

/// Gives the calling process what is typed at the console, and Ctrl-C.
fn have_the_console() -> io::Result<()> {
    setpgid(None, None)?;
    let _ = tcsetpgrp(rustix::stdio::stdin(), getpid());
    on_output_in_background(libc::SIG_DFL);
    Ok(())
}

fn on_output_in_background(action: libc::sighandler_t) {
    // SAFETY: the action is no function, so nothing is called that could be wrong.
    unsafe { libc::signal(libc::SIGTTOU, action) };
}

/// Waits for a process to die. One that stops goes on: there is no shell that would let it.
fn next_dead(options: WaitOptions) -> Result<Option<(Pid, WaitStatus)>, Errno> {
    loop {
        match wait(options | WaitOptions::UNTRACED) {
            Err(Errno::INTR) => {}
            Ok(Some((pid, status))) if status.stopped() => {
                let _ = kill_process_group(pid, Signal::CONT);
            }
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

    fn run_shell(script: &str) -> Status {
        let configuration = Configuration {
            program: "/bin/sh".into(),
            arguments: ["-c", script].map(OsString::from).to_vec(),
            libraries: vec!["/run/causeway/lib".into()],
            ..Configuration::default()
        };
        run(&configuration, || {})
    }

    #[test]
    fn folders_of_libraries_come_before_those_of_the_environment() {
        let folders = ["/a", "/b"].map(PathBuf::from);
        let path = |folders: &[PathBuf], before: Option<&str>| {
            library_path(folders, before.map(OsString::from))
        };
        assert_eq!(path(&[], Some("/c")), None);
        assert_eq!(path(&folders, Some("/c")).unwrap(), "/a:/b:/c");
        // An empty entry would mean the working directory.
        assert_eq!(path(&folders, Some("")).unwrap(), "/a:/b");
        assert_eq!(path(&folders[..1], None).unwrap(), "/a");
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
        let found = "case $LD_LIBRARY_PATH in /run/causeway/lib*) exit 0; esac; exit 1";
        assert_eq!(run_shell(found), Status::Exited(0));
        let missing = Configuration {
            program: "/nonexistent/program".into(),
            ..Configuration::default()
        };
        assert_eq!(run(&missing, || {}), Status::NotRun);
    }
}
