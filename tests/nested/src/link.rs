//! The connection to a machine's agent.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use causeway_nested_agent::frame;
use causeway_nested_agent::message::{Answer, End, Request, Stream};

/// Most bytes that are kept of each output of a job; what comes after them is dropped.
const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The agent refused.
    #[error("{0}")]
    Refused(String),
    /// The machine has gone.
    #[error("the machine has ended: {0}")]
    Gone(String),
    /// No answer.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
}

/// A program that was started. Its number is good for the machine that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job(pub(crate) u32);

/// What is known of a job.
#[derive(Clone, Debug, Default)]
pub struct JobRecord {
    pub output: Printed,
    pub error: Printed,
    pub end: Option<End>,
}

/// What a job printed, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    pub bytes: Vec<u8>,
    /// Number of bytes that had come, and when they had, from the start of the job.
    pub times: Vec<(usize, Duration)>,
}

/// The connection. One request at a time; jobs print meanwhile.
pub struct Link {
    stream: Mutex<UnixStream>,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: bool,
    answer: Option<(Answer, Vec<u8>)>,
    jobs: BTreeMap<u32, JobRecord>,
    jobs_started: u32,
    gone: Option<String>,
}

impl Link {
    /// Over a connected socket.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        let inbox = Arc::new(Inbox::default());
        let (mut from, into) = (stream.try_clone()?, Arc::clone(&inbox));
        thread::Builder::new()
            .name("agent".to_owned())
            .spawn(move || {
                let error = loop {
                    match frame::read(&mut from) {
                        Ok((answer, body)) => into.receive(answer, body),
                        Err(error) => break error,
                    }
                };
                into.lock().gone = Some(error.to_string());
                into.changed.notify_all();
            })?;
        Ok(Self {
            stream: Mutex::new(stream),
            inbox,
        })
    }

    /// Waits until the machine is up.
    pub fn wait_until_ready(&self, limit: Duration) -> Result<(), RequestError> {
        self.inbox.wait(limit, |state| state.ready.then_some(()))
    }

    /// Sends a request and waits for its answer.
    pub fn ask(
        &self,
        request: &Request,
        body: &[u8],
        limit: Duration,
    ) -> Result<(Answer, Vec<u8>), RequestError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // Left over from a request that was given up.
        self.inbox.lock().answer = None;
        let gone = |error: io::Error| RequestError::Gone(error.to_string());
        stream.set_write_timeout(Some(limit)).map_err(gone)?;
        frame::write(&mut *stream, request, body).map_err(gone)?;
        match self.inbox.wait(limit, |state| state.answer.take())? {
            (Answer::Failed { message }, _) => Err(RequestError::Refused(message)),
            answer => Ok(answer),
        }
    }

    /// A number for a job that is about to be started.
    pub fn new_job(&self) -> Job {
        let mut state = self.inbox.lock();
        state.jobs_started += 1;
        let job = state.jobs_started;
        state.jobs.insert(job, JobRecord::default());
        Job(job)
    }

    /// Waits for something about a job.
    pub fn wait_for<T>(
        &self,
        job: Job,
        limit: Duration,
        found: impl Fn(&JobRecord) -> Option<T>,
    ) -> Result<T, RequestError> {
        self.inbox
            .wait(limit, |state| found(state.jobs.get(&job.0)?))
    }

    /// What is known of a job, which is forgotten.
    pub fn forget(&self, job: Job) -> JobRecord {
        self.inbox.lock().jobs.remove(&job.0).unwrap_or_default()
    }

    /// Whether the machine has gone.
    pub fn is_gone(&self) -> bool {
        self.inbox.lock().gone.is_some()
    }
}

impl Drop for Link {
    /// Ends the reading thread.
    fn drop(&mut self) {
        let stream = self
            .stream
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, answer: Answer, body: Vec<u8>) {
        let mut state = self.lock();
        match answer {
            Answer::Ready => state.ready = true,
            Answer::Output { job, stream, at_us } => {
                if let Some(job) = state.jobs.get_mut(&job) {
                    job.add(stream, &body, Duration::from_micros(at_us));
                }
            }
            Answer::Ended { job, end } => {
                if let Some(job) = state.jobs.get_mut(&job) {
                    job.end = Some(end);
                }
            }
            answer => state.answer = Some((answer, body)),
        }
        drop(state);
        self.changed.notify_all();
    }

    fn wait<T>(
        &self,
        limit: Duration,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, RequestError> {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(found) = found(&mut state) {
                return Ok(found);
            }
            if let Some(reason) = &state.gone {
                return Err(RequestError::Gone(reason.clone()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RequestError::Late(limit));
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl JobRecord {
    fn add(&mut self, stream: Stream, bytes: &[u8], at: Duration) {
        let kept = match stream {
            Stream::Output => &mut self.output,
            Stream::Error => &mut self.error,
        };
        let room = OUTPUT_BYTES_MAX - kept.bytes.len();
        kept.bytes.extend(&bytes[..bytes.len().min(room)]);
        kept.times.push((kept.bytes.len(), at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);

    /// A link whose agent is the closure.
    fn linked(agent: impl FnOnce(UnixStream) + Send + 'static) -> Link {
        let (near, far) = UnixStream::pair().unwrap();
        thread::spawn(move || agent(far));
        Link::new(near).unwrap()
    }

    fn say(to: &mut UnixStream, answer: Answer, body: &[u8]) {
        frame::write(to, &answer, body).unwrap();
    }

    #[test]
    fn a_refusal_is_an_error_and_what_a_job_prints_is_kept_apart() {
        let link = linked(|mut stream| {
            say(&mut stream, Answer::Ready, &[]);
            let _: (Request, _) = frame::read(&mut stream).unwrap();
            for (stream_of_job, text) in [(Stream::Output, "out"), (Stream::Error, "err")] {
                let output = Answer::Output {
                    job: 1,
                    stream: stream_of_job,
                    at_us: 5,
                };
                say(&mut stream, output, text.as_bytes());
            }
            let message = "no".to_owned();
            say(&mut stream, Answer::Failed { message }, &[]);
            let end = End {
                code: 3,
                outputs_held: false,
            };
            say(&mut stream, Answer::Ended { job: 1, end }, &[]);
            let _ = frame::read::<Request>(&mut stream);
        });
        link.wait_until_ready(LIMIT).unwrap();
        let job = link.new_job();
        let error = link.ask(&Request::Survey, &[], LIMIT).unwrap_err();
        assert_eq!(error.to_string(), "no");
        let end = link.wait_for(job, LIMIT, |record| record.end).unwrap();
        let record = link.forget(job);
        assert_eq!(
            (end.code, &record.output.bytes[..], &record.error.bytes[..]),
            (3, &b"out"[..], &b"err"[..])
        );
    }

    #[test]
    fn a_machine_that_ends_or_talks_nonsense_is_gone() {
        for nonsense in [&b""[..], b"Kernel panic - not syncing"] {
            let link =
                linked(move |mut stream| io::Write::write_all(&mut stream, nonsense).unwrap());
            let error = link.wait_until_ready(LIMIT).unwrap_err();
            assert!(matches!(error, RequestError::Gone(_)), "{error}");
            assert!(link.is_gone());
        }
    }

    #[test]
    fn an_agent_that_does_not_answer_is_late() {
        let (near, _far) = UnixStream::pair().unwrap();
        let link = Link::new(near).unwrap();
        let error = link
            .ask(&Request::Survey, &[], Duration::from_millis(20))
            .unwrap_err();
        assert!(matches!(error, RequestError::Late(_)), "{error}");
    }
}
