//! Carrying out requests.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_nested_agent::frame::{self, BODY_BYTES_MAX, FrameError};
use causeway_nested_agent::message::{Answer, Request};

use crate::job::Jobs;
use crate::{kernel_log, port, survey};

/// The way to the host, which the threads of jobs share.
#[derive(Clone)]
pub struct Outgoing(Arc<Mutex<File>>);

impl Outgoing {
    /// Sends an answer. If the host has gone there is nobody to tell.
    pub fn send(&self, answer: &Answer, body: &[u8]) {
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = frame::write(&mut *port, answer, body) {
            eprintln!("nested-agent: an answer was lost: {error}");
        }
    }
}

/// Serves until the connection fails.
pub fn run() -> Result<Infallible, FrameError> {
    let (mut incoming, outgoing) = port::open()?;
    let outgoing = Outgoing(Arc::new(Mutex::new(outgoing)));
    let mut jobs = Jobs::new(outgoing.clone());
    outgoing.send(&Answer::Ready, &[]);
    loop {
        let (request, body) = frame::read(&mut incoming)?;
        let (answer, body) = carry_out(request, &body, &mut jobs).unwrap_or_else(|error| {
            let message = error.to_string();
            (Answer::Failed { message }, Vec::new())
        });
        outgoing.send(&answer, &body);
    }
}

fn carry_out(request: Request, body: &[u8], jobs: &mut Jobs) -> io::Result<(Answer, Vec<u8>)> {
    match request {
        Request::Start {
            job,
            program,
            arguments,
            environment,
            directory,
            on_terminal,
        } => {
            fs::create_dir_all(&directory)?;
            let mut command = std::process::Command::new(&program);
            command.args(arguments).current_dir(directory);
            command.env_clear().env("PATH", "/bin").env("HOME", "/tmp");
            command.envs(environment);
            jobs.start(job, command, on_terminal)
                .map_err(|e| io::Error::other(format!("cannot start {program}: {e}")))?;
        }
        Request::Signal { job, signal, group } => jobs.signal(job, signal, group)?,
        Request::Type { job } => jobs.terminal(job)?.type_keys(body)?,
        Request::Terminal { job } => {
            let terminal = jobs.terminal(job)?.look()?;
            return Ok((Answer::Terminal(terminal), Vec::new()));
        }
        Request::LetGo { job } => jobs.let_go(job),
        Request::Write { path, mode } => write(Path::new(&path), mode, body)
            .map_err(|e| io::Error::other(format!("cannot write {path}: {e}")))?,
        Request::Allow { path, mode } => {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
                .map_err(|e| io::Error::other(format!("cannot change {path}: {e}")))?;
        }
        Request::Read { path } => {
            let content = read(Path::new(&path))
                .map_err(|e| io::Error::other(format!("cannot read {path}: {e}")))?;
            return Ok((Answer::Content, content));
        }
        Request::KernelLog => return Ok((Answer::Content, kernel_log::read()?)),
        Request::Survey => return Ok((Answer::Survey(survey::take()?), Vec::new())),
    }
    Ok((Answer::Done, Vec::new()))
}

fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = fs::metadata(path)?.len();
    if bytes > BODY_BYTES_MAX as u64 {
        let why = format!("{bytes} bytes are more than {BODY_BYTES_MAX}");
        return Err(io::Error::other(why));
    }
    fs::read(path)
}
