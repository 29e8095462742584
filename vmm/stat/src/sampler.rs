//! Queries processes for their statistics, once per interval.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::rates::Rates;
use causeway_publisher::absent;
use causeway_publisher::client::{FetchError, PATIENCE, fetch};
use causeway_publisher::runtime::{self, Entry};
use causeway_publisher::snapshot::{Guest, Snapshot};
use causeway_terminal::{Code, Failure};

/// Longest time for querying all processes, because many of them may not answer.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

/// What the monitored processes answered to one query.
#[derive(Debug, Default)]
pub struct Observation {
    /// Snapshot of each process that answered, with the rates of each of its guests since the
    /// previous query.
    pub processes: Vec<(Snapshot, Vec<Rates>)>,
    /// A message for each process that did not answer, in plain text.
    pub troubles: Vec<String>,
}

impl Observation {
    /// Returns all guests of all processes that answered, each with its process and its rates.
    pub fn guests(&self) -> impl Iterator<Item = (&Snapshot, &Guest, &Rates)> {
        self.processes.iter().flat_map(|(process, rates)| {
            let guests = process.guests.iter().zip(rates);
            guests.map(move |(guest, rates)| (process, guest, rates))
        })
    }
}

/// Queries one process or all processes for their statistics, and remembers the previous answers to
/// compute rates.
#[derive(Default)]
pub struct Sampler {
    /// The only process to query; `None` for all.
    pid: Option<u32>,
    /// The previous state of each guest, by process and name.
    earlier: HashMap<(u32, String), Guest>,
    /// Whether a process has answered before.
    has_seen: bool,
    /// Processes that did not answer the previous query, with the owners of their folders. The
    /// owner is part of the key, so that a socket of one user does not delay queries of another
    /// user's process.
    silent: HashSet<(u32, u32)>,
}

/// Answers of processes to one query.
#[derive(Default)]
struct Answers {
    snapshots: Vec<Snapshot>,
    /// Processes that sent no snapshot, with the reason.
    troubles: Vec<(u32, FetchError)>,
    /// Number of processes that were not queried.
    unasked: usize,
}

impl Sampler {
    /// Returns a sampler of the process with ID `pid`, or of all processes if `pid` is absent.
    pub fn new(pid: Option<u32>) -> Self {
        Self {
            pid,
            ..Self::default()
        }
    }

    /// Queries the processes once, and computes rates since the previous query.
    ///
    /// # Errors
    /// A usage failure if the only process to query has ended, or has never answered.
    pub fn look(&mut self) -> Result<Observation, Failure> {
        let answers = self.ask(runtime::entries());
        self.conclude(answers)
    }

    /// Queries the processes, those that did not answer before last.
    fn ask(&mut self, mut entries: Vec<Entry>) -> Answers {
        entries.retain(|entry| self.pid.is_none_or(|pid| pid == entry.pid));
        entries.sort_by_key(|entry| self.silent.contains(&(entry.owner, entry.pid)));
        self.silent.clear();
        let mut answers = Answers::default();
        let mut answered = HashSet::new();
        let deadline = Instant::now() + LOOK_PATIENCE;
        for (asked, entry) in entries.iter().enumerate() {
            // Another user may have put a socket with this name in another folder.
            if answered.contains(&entry.pid) {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                answers.unasked = entries.len() - asked;
                break;
            }
            match fetch(entry, PATIENCE.min(left)) {
                Ok(snapshot) => {
                    answered.insert(entry.pid);
                    answers.snapshots.push(snapshot);
                }
                Err(FetchError::Gone { .. }) => runtime::forget(entry),
                Err(trouble) => {
                    if matches!(trouble, FetchError::Silent { .. }) {
                        self.silent.insert((entry.owner, entry.pid));
                    }
                    answers.troubles.push((entry.pid, trouble));
                }
            }
        }
        answers.troubles.retain(|(pid, _)| !answered.contains(pid));
        answers
    }

    /// Turns answers into an observation. A process that answered before may answer again, so its
    /// failure does not end the command.
    fn conclude(&mut self, answers: Answers) -> Result<Observation, Failure> {
        let Answers {
            snapshots,
            mut troubles,
            unasked,
        } = answers;
        if let Some(pid) = self.pid
            && snapshots.is_empty()
            && unasked == 0
        {
            match (self.has_seen, troubles.is_empty()) {
                (true, true) => return Err(absent::gone(pid)),
                (false, true) => return Err(absent::explain(pid)),
                (true, false) => {}
                (false, false) => {
                    let (_, trouble) = troubles.swap_remove(0);
                    return Err(Failure::new(
                        Code::Usage,
                        "cannot get statistics of running guests",
                        trouble,
                    ));
                }
            }
        }
        self.has_seen |= !snapshots.is_empty();
        let troubled: HashSet<u32> = troubles.iter().map(|(pid, _)| *pid).collect();
        let told = troubles.iter().map(|(_, trouble)| trouble.to_string());
        let unasked = (unasked != 0).then(|| {
            format!("no statistics of {unasked} processes: other processes took too long to answer")
        });
        Ok(Observation {
            troubles: told.chain(unasked).collect(),
            processes: self.rate(snapshots, &troubled),
        })
    }

    /// Computes rates, and keeps the guests' state for the next query. Guests of `troubled`
    /// processes keep their previous state.
    fn rate(
        &mut self,
        snapshots: Vec<Snapshot>,
        troubled: &HashSet<u32>,
    ) -> Vec<(Snapshot, Vec<Rates>)> {
        let mut present = HashMap::new();
        let mut rated = Vec::new();
        for snapshot in snapshots {
            let mut rates = Vec::new();
            for guest in &snapshot.guests {
                let key = (snapshot.pid, guest.name.clone());
                rates.push(Rates::between(self.earlier.get(&key), guest));
                present.insert(key, guest.clone());
            }
            rated.push((snapshot, rates));
        }
        self.earlier.retain(|(pid, _), _| troubled.contains(pid));
        self.earlier.extend(present);
        rated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_publisher::fixture;

    #[test]
    fn rates_are_those_since_the_look_before_for_each_guest_of_each_process() {
        let mut sampler = Sampler::new(None);
        let first = fixture::snapshot();
        let other = Snapshot {
            pid: 4712,
            ..fixture::snapshot()
        };
        let lives = sampler.rate(vec![first.clone(), other], &HashSet::new());
        let life_ns = |n: usize| lives[n].1[0].interval_ns;
        assert_eq!((life_ns(0), life_ns(1)), (10_000_000_000, 10_000_000_000));
        let later = Snapshot {
            guests: vec![fixture::later()],
            ..first
        };
        let rated = sampler.rate(vec![later], &HashSet::new());
        assert_eq!(rated.len(), 1);
        assert_eq!(rated[0].1[0].interval_ns, 1_000_000_000);
        assert_eq!(sampler.earlier.len(), 1, "who is gone is forgotten");
    }

    fn late(pid: u32) -> Answers {
        Answers {
            troubles: vec![(
                pid,
                FetchError::Silent {
                    pid,
                    patience: PATIENCE,
                },
            )],
            ..Answers::default()
        }
    }

    #[test]
    fn one_late_answer_does_not_end_a_watch() {
        let answered = |guest| Answers {
            snapshots: vec![Snapshot {
                guests: vec![guest],
                ..fixture::snapshot()
            }],
            ..Answers::default()
        };
        let pid = fixture::snapshot().pid;
        let mut sampler = Sampler::new(Some(pid));
        let nothing = sampler.conclude(late(pid)).unwrap_err();
        assert!(
            nothing
                .to_string()
                .contains("cannot get statistics of running guests"),
            "{nothing}"
        );
        sampler.conclude(answered(fixture::guest())).unwrap();
        let seen = sampler.conclude(late(pid)).unwrap();
        assert!(seen.processes.is_empty());
        assert_eq!(seen.troubles.len(), 1);
        let seen = sampler.conclude(answered(fixture::later())).unwrap();
        assert_eq!(
            seen.processes[0].1[0].interval_ns, 1_000_000_000,
            "since it answered last"
        );
        let gone = sampler.conclude(Answers::default()).unwrap_err();
        assert!(gone.to_string().contains("has ended"), "{gone}");
    }
}
