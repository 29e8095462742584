//! Programs that run for the host.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use causeway_nested_agent::message::{Answer, End, Stream};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::serve::Outgoing;

/// How long outputs may stay open after their program has ended, before somebody else is said to hold them.
const PATIENCE: Duration = Duration::from_secs(2);

/// Process groups of the jobs that run.
type Groups = Arc<Mutex<BTreeMap<u32, Pid>>>;

/// All jobs.
pub struct Jobs {
    groups: Groups,
    outgoing: Outgoing,
}

impl Jobs {
    /// None yet; what they print goes to the host.
    pub fn new(outgoing: Outgoing) -> Self {
        Self {
            groups: Groups::default(),
            outgoing,
        }
    }

    /// Starts a program, and threads that pass on what it prints and how it ends.
    pub fn start(&mut self, job: u32, mut command: Command) -> io::Result<()> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let started = Instant::now();
        let mut child = command.spawn()?;
        let (done, closed) = channel();
        if let Some(output) = child.stdout.take() {
            self.pass_on((job, started), Stream::Output, output, done.clone());
        }
        if let Some(error) = child.stderr.take() {
            self.pass_on((job, started), Stream::Error, error, done);
        }
        lock(&self.groups).insert(job, Pid::from_child(&child));
        let (groups, outgoing) = (Arc::clone(&self.groups), self.outgoing.clone());
        thread::spawn(move || {
            let code = code(wait(child, job, &groups));
            let deadline = Instant::now() + PATIENCE;
            let left = || deadline.saturating_duration_since(Instant::now());
            let outputs_held = (0..2).any(|_| closed.recv_timeout(left()).is_err());
            let end = End { code, outputs_held };
            outgoing.send(&Answer::Ended { job, end }, &[]);
        });
        Ok(())
    }

    fn pass_on(
        &self,
        (job, started): (u32, Instant),
        stream: Stream,
        mut from: impl Read + Send + 'static,
        done: Sender<()>,
    ) {
        let outgoing = self.outgoing.clone();
        thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(bytes @ 1..) = from.read(&mut buffer) {
                let at_us = started.elapsed().as_micros() as u64;
                outgoing.send(&Answer::Output { job, stream, at_us }, &buffer[..bytes]);
            }
            // The receiver may have given up waiting.
            let _ = done.send(());
        });
    }

    /// Sends a signal to a job or its group, if the job has not ended.
    pub fn signal(&self, job: u32, signal: i32, group: bool) -> io::Result<()> {
        let signal = Signal::from_named_raw(signal)
            .ok_or_else(|| io::Error::other(format!("there is no signal {signal}")))?;
        match lock(&self.groups).get(&job) {
            Some(leader) if group => Ok(kill_process_group(*leader, signal)?),
            Some(leader) => Ok(kill_process(*leader, signal)?),
            None => Ok(()),
        }
    }
}

fn lock(groups: &Groups) -> std::sync::MutexGuard<'_, BTreeMap<u32, Pid>> {
    groups.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(mut child: Child, job: u32, groups: &Groups) -> io::Result<ExitStatus> {
    let status = child.wait();
    lock(groups).remove(&job);
    status
}

fn code(status: io::Result<ExitStatus>) -> i32 {
    status.map_or(-1, |status| {
        status
            .code()
            .unwrap_or_else(|| -status.signal().unwrap_or(0))
    })
}
