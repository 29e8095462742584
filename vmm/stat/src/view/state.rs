//! State of the live view: the statistics, and the chosen guest.

use std::time::Duration;

use crate::rates::Rates;
use crate::sampler::Observation;
use causeway_publisher::snapshot::{Guest, Snapshot};

/// Identity of a guest: its process ID and name.
type Key = (u32, String);

/// What the live view shows: the latest statistics, and the guest that the user has chosen.
#[derive(Default)]
pub struct State {
    seen: Observation,
    chosen: Option<Key>,
    /// Row of the chosen guest, from 0. The guest in this row is chosen when the chosen guest has
    /// ended.
    row: usize,
    /// Time between two updates of the statistics.
    pub interval: Duration,
}

/// A guest in the table of the live view.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// Snapshot of the process that runs the guest.
    pub process: &'a Snapshot,
    /// The guest's latest statistics.
    pub guest: &'a Guest,
    /// Rates of the guest in the last interval.
    pub rates: &'a Rates,
}

impl State {
    /// Returns the state of a view that shows `seen` and chooses the first guest.
    pub fn new(seen: Observation, interval: Duration) -> Self {
        let mut state = Self {
            interval,
            ..Self::default()
        };
        state.update(seen);
        state
    }

    /// Replaces the statistics by `seen`. The chosen guest stays chosen in its new row; if it has
    /// ended, the guest in its row becomes the chosen one.
    pub fn update(&mut self, seen: Observation) {
        self.seen = seen;
        let rows = self.rows();
        let is_chosen = |row: &Row<'_>| Some(row.key()) == self.chosen;
        let row = rows.iter().position(is_chosen);
        let last = rows.len().saturating_sub(1);
        let row = row.unwrap_or(self.row.min(last));
        self.choose(row);
    }

    /// Chooses the guest in the next row if `down` is true, else the one in the previous row.
    pub fn step(&mut self, down: bool) {
        let last = self.rows().len().saturating_sub(1);
        let row = match down {
            true => (self.row + 1).min(last),
            false => self.row.saturating_sub(1),
        };
        self.choose(row);
    }

    fn choose(&mut self, row: usize) {
        self.row = row;
        self.chosen = self.rows().get(row).map(Row::key);
    }

    /// Returns all guests, in the order of the table.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let guests = self.seen.guests();
        let row = |(process, guest, rates)| Row {
            process,
            guest,
            rates,
        };
        guests.map(row).collect()
    }

    /// Returns the row number of the chosen guest, from 0.
    pub fn chosen(&self) -> usize {
        self.row
    }

    /// Returns the message about the first process that did not answer, if there is one.
    pub fn trouble(&self) -> Option<&str> {
        self.seen.troubles.first().map(String::as_str)
    }
}

impl Row<'_> {
    fn key(&self) -> Key {
        (self.process.pid, self.guest.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_publisher::fixture;

    /// Three guests, named, of one process.
    fn seen(names: &[&str]) -> Observation {
        let named = |name: &&str| Guest {
            name: (*name).to_owned(),
            ..fixture::guest()
        };
        let process = Snapshot {
            guests: names.iter().map(named).collect(),
            ..fixture::snapshot()
        };
        let rates = process.guests.iter().map(|g| Rates::between(None, g));
        let rates = rates.collect();
        Observation {
            processes: vec![(process, rates)],
            troubles: Vec::new(),
        }
    }

    fn chosen(state: &State) -> Option<String> {
        let rows = state.rows();
        rows.get(state.chosen()).map(|row| row.guest.name.clone())
    }

    #[test]
    fn the_choice_stays_with_its_guest_and_goes_on_when_that_is_gone() {
        let mut state = State::new(seen(&["a", "b", "c"]), Duration::from_secs(1));
        assert_eq!(chosen(&state).as_deref(), Some("a"));
        state.step(false);
        state.step(true);
        assert_eq!(chosen(&state).as_deref(), Some("b"));
        state.update(seen(&["b", "c"]));
        assert_eq!(chosen(&state).as_deref(), Some("b"));
        state.step(true);
        state.step(true);
        assert_eq!(chosen(&state).as_deref(), Some("c"));
        state.update(seen(&["a", "b"]));
        assert_eq!(chosen(&state).as_deref(), Some("b"));
        state.update(seen(&[]));
        assert_eq!(chosen(&state), None);
        state.step(true);
        state.update(seen(&["d"]));
        assert_eq!(chosen(&state).as_deref(), Some("d"));
    }
}
