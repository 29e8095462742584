//! Programs that run for the host.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use causeway_nested_agent::message::{Answer, End, Stream};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::serve::Outgoing;
use crate::terminal::{LetGo, Terminal};

/// How long outputs may stay open after their program has ended, before somebody else is said to
/// hold them.
const PATIENCE: Duration = Duration::from_secs(2);

/// Process groups of the jobs that run.
type Groups = Arc<Mutex<BTreeMap<u32, Pid>>>;

/// All jobs.
pub struct Jobs {
    groups: Groups,
    terminals: BTreeMap<u32, Terminal>,
    outgoing: Outgoing,
}

impl Jobs {
    /// None yet; what they print goes to the host.
    pub fn new(outgoing: Outgoing) -> Self {
        Self {
            groups: Groups::default(),
            terminals: BTreeMap::new(),
            outgoing,
        }
    }

    /// Starts a program, and threads that pass on what it prints and how it ends.
    pub fn start(&mut self, job: u32, mut command: Command, on_terminal: bool) -> io::Result<()> {
        command.process_group(0);
        let started = Instant::now();
        let (open, closed) = channel();
        let (child, let_go) = if on_terminal {
            let (terminal, let_go) = Terminal::open()?;
            terminal.give_to(&mut command)?;
            let child = command.spawn()?;
            self.pass_on((job, started), Stream::Output, terminal.screen()?, open);
            self.terminals.insert(job, terminal);
            (child, Some(let_go))
        } else {
            command.stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn()?;
            if let Some(output) = child.stdout.take() {
                self.pass_on((job, started), Stream::Output, output, open.clone());
            }
            if let Some(error) = child.stderr.take() {
                self.pass_on((job, started), Stream::Error, error, open);
            }
            (child, None)
        };
        lock(&self.groups).insert(job, Pid::from_child(&child));
        self.tell_end(job, child, let_go, closed);
        Ok(())
    }

    /// Waits for the end of a job, and for that of what it prints, which closes a channel.
    fn tell_end(
        &self,
        job: u32,
        child: Child,
        let_go: Option<LetGo>,
        closed: Receiver<Infallible>,
    ) {
        let (groups, outgoing) = (Arc::clone(&self.groups), self.outgoing.clone());
        thread::spawn(move || {
            let code = code(wait(child, job, &groups));
            if let Some(let_go) = let_go {
                let_go.wait();
            }
            let outputs_held = closed.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
            let end = End { code, outputs_held };
            outgoing.send(&Answer::Ended { job, end }, &[]);
        });
    }

    fn pass_on(
        &self,
        (job, started): (u32, Instant),
        stream: Stream,
        mut from: impl Read + Send + 'static,
        open: Sender<Infallible>,
    ) {
        let outgoing = self.outgoing.clone();
        thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(bytes @ 1..) = from.read(&mut buffer) {
                let at_us = started.elapsed().as_micros() as u64;
                outgoing.send(&Answer::Output { job, stream, at_us }, &buffer[..bytes]);
            }
            drop(open);
        });
    }

    /// The terminal of a job.
    pub fn terminal(&mut self, job: u32) -> io::Result<&mut Terminal> {
        let terminal = self.terminals.get_mut(&job);
        terminal.ok_or_else(|| io::Error::other(format!("job {job} has no terminal")))
    }

    /// Lets go of the terminal of a job.
    pub fn let_go(&mut self, job: u32) {
        self.terminals.remove(&job);
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
