//! Programs to run in a machine, and how they ended.

use std::time::Duration;

use causeway_nested_agent::message::Request;

use crate::link::{Job, Printed};

/// How long a program may take unless it is said otherwise.
const LIMIT: Duration = Duration::from_secs(120);

/// A program to run.
#[derive(Clone, Debug)]
pub struct Command {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) limit: Duration,
    pub(crate) on_terminal: bool,
}

impl Command {
    /// A program by its path in the machine, with arguments.
    #[must_use]
    pub fn new(program: &str, arguments: &[&str]) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            environment: Vec::new(),
            limit: LIMIT,
            on_terminal: false,
        }
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Gives it another time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Gives it a terminal. What it shows there is its standard output.
    #[must_use]
    pub fn on_terminal(mut self) -> Self {
        self.on_terminal = true;
        self
    }

    pub(crate) fn request(&self, job: Job) -> Request {
        Request::Start {
            job: job.0,
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
            directory: "/tmp".to_owned(),
            on_terminal: self.on_terminal,
        }
    }
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its command line.
    pub command: String,
    /// Exit code, or the negative number of the signal that killed it.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it printed to standard error.
    pub stderr: String,
    /// Whether another process held its outputs open long after its end.
    pub outputs_held: bool,
    pub(crate) printed: [Printed; 2],
}

impl Outcome {
    /// Asserts an exit code; everything that was printed is in the message.
    #[track_caller]
    pub fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{}", self.text());
        self
    }

    /// When the program had printed a text, from its start, by the machine's own clock.
    #[must_use]
    pub fn time_of(&self, text: &str) -> Option<Duration> {
        let times = self
            .printed
            .iter()
            .filter_map(|printed| printed.time_of(text));
        times.min()
    }

    /// Everything, for people to read.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "`{}` ended with {}\n--- standard output ---\n{}--- standard error ---\n{}---",
            self.command, self.code, self.stdout, self.stderr
        )
    }
}

impl Printed {
    fn time_of(&self, text: &str) -> Option<Duration> {
        let windows = self.bytes.windows(text.len());
        let end = windows
            .into_iter()
            .position(|part| part == text.as_bytes())?
            + text.len();
        let mut times = self.times.iter();
        times.find(|(bytes, _)| *bytes >= end).map(|(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_time_of_the_piece_that_completes_it() {
        let times = [(4, 10), (8, 20), (9, 30)];
        let times = times.map(|(bytes, ms)| (bytes, Duration::from_millis(ms)));
        let printed = Printed {
            bytes: b"one two 3".to_vec(),
            times: times.to_vec(),
        };
        let of = |text| printed.time_of(text).map(|at| at.as_millis());
        assert_eq!(of("one"), Some(10));
        assert_eq!(of("one two"), Some(20));
        assert_eq!(of("3"), Some(30));
        assert_eq!(of("four"), None);
    }
}
