//! Looks at processes, one time after the other.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::absent;
use super::client::{FetchError, PATIENCE, fetch};
use super::rates::Rates;
use super::runtime::{self, Entry};
use super::snapshot::{Guest, Snapshot};
use crate::failure::{Code, Failure};

/// Longest that a look may take: processes that do not answer can be many.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

/// What a look has found.
#[derive(Debug, Default)]
pub struct Seen {
    /// Processes that answered, with the rates of their guests since the look before.
    pub processes: Vec<(Snapshot, Vec<Rates>)>,
    /// Why others did not, in a sentence each.
    pub troubles: Vec<String>,
}

impl Seen {
    /// All guests, with their processes and rates.
    pub fn guests(&self) -> impl Iterator<Item = (&Snapshot, &Guest, &Rates)> {
        self.processes.iter().flat_map(|(process, rates)| {
            let guests = process.guests.iter().zip(rates);
            guests.map(move |(guest, rates)| (process, guest, rates))
        })
    }
}

/// Looks at one process, or at all.
pub struct Sampler {
    /// The only one that is wanted.
    pid: Option<u32>,
    /// Guests as they were seen last, by process and name.
    earlier: HashMap<(u32, String), Guest>,
    /// Whether there was anything to see before.
    has_seen: bool,
}

impl Sampler {
    /// Who will look at process `pid`, or at all.
    pub fn new(pid: Option<u32>) -> Self {
        Self {
            pid,
            earlier: HashMap::new(),
            has_seen: false,
        }
    }

    /// Looks.
    ///
    /// # Errors
    /// If there is only one process to look at, and it is no more, or does not answer.
    pub fn look(&mut self) -> Result<Seen, Failure> {
        let entries = runtime::entries().into_iter();
        let entries: Vec<Entry> = entries
            .filter(|entry| self.pid.is_none_or(|pid| pid == entry.pid))
            .collect();
        let mut seen = Seen::default();
        let mut snapshots = Vec::new();
        let deadline = Instant::now() + LOOK_PATIENCE;
        for (asked, entry) in entries.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let left = entries.len() - asked;
                let trouble = format!("{left} processes were not asked: others took all the time");
                seen.troubles.push(trouble);
                break;
            }
            match fetch(entry, PATIENCE.min(left)) {
                Ok(snapshot) => snapshots.push(snapshot),
                Err(FetchError::Gone { .. }) => runtime::forget(entry),
                Err(trouble) if self.pid.is_some() => {
                    return Err(Failure::new(
                        Code::Usage,
                        "there is nothing to see",
                        trouble,
                    ));
                }
                Err(trouble) => seen.troubles.push(trouble.to_string()),
            }
        }
        if let Some(pid) = self.pid
            && snapshots.is_empty()
        {
            return Err(match self.has_seen {
                true => absent::gone(pid),
                false => absent::explain(pid),
            });
        }
        self.has_seen = true;
        seen.processes = self.rate(snapshots);
        Ok(seen)
    }

    /// Adds rates, and remembers the guests for the next look.
    fn rate(&mut self, snapshots: Vec<Snapshot>) -> Vec<(Snapshot, Vec<Rates>)> {
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
        self.earlier = present;
        rated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::fixture;

    #[test]
    fn rates_are_those_since_the_look_before_for_each_guest_of_each_process() {
        let mut sampler = Sampler::new(None);
        let first = fixture::snapshot();
        let other = Snapshot {
            pid: 4712,
            ..fixture::snapshot()
        };
        let lives = sampler.rate(vec![first.clone(), other]);
        let life_ns = |n: usize| lives[n].1[0].interval_ns;
        assert_eq!((life_ns(0), life_ns(1)), (10_000_000_000, 10_000_000_000));
        let later = Snapshot {
            guests: vec![fixture::later()],
            ..first
        };
        let rated = sampler.rate(vec![later]);
        assert_eq!(rated.len(), 1);
        assert_eq!(rated[0].1[0].interval_ns, 1_000_000_000);
        assert_eq!(sampler.earlier.len(), 1, "who is gone is forgotten");
    }
}
