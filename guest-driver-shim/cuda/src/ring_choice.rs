//! Which ring a stream gets that waits for no other.
//!
//! The handle of a stream says which ring it has, so that the choice is made once, when the stream
//! is made. Rings are of two kinds: those of the least urgent priority, which most streams have,
//! and those of more urgent ones. Each kind may have equally many, so that neither takes the places
//! of the other: PyTorch makes streams of four priorities by turns, and uses few of them.

/// Most rings. The low bits of a stream's handle say which is its own.
pub(crate) const RINGS_MAX: usize = 8;
/// Most rings besides the first.
const OTHERS_MAX: usize = RINGS_MAX - 1;

/// What a stream gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The first ring of the process.
    First,
    /// A ring that is to be made, with this index besides the first.
    New(usize),
    /// The ring with this index besides the first.
    Made(usize),
}

/// The rings besides the first, and what they were given.
pub(crate) struct Choices {
    /// Most rings of each kind.
    each: usize,
    /// Whether the session allows no more rings.
    is_full: bool,
    made: Vec<Given>,
}

struct Given {
    priority: i32,
    /// Streams that were given to the ring.
    streams: usize,
}

impl Choices {
    /// Returns the choices where the first ring and those of one kind are `limit` at most.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            each: limit.saturating_sub(1).min(OTHERS_MAX),
            is_full: false,
            made: Vec::new(),
        }
    }

    /// Chooses a ring for a stream of `priority`: another one as long as its kind may have more,
    /// then the one with the nearest priority; of several one of its kind, and that with the fewest
    /// streams.
    pub(crate) fn choose(&mut self, priority: i32) -> Choice {
        let is_urgent = priority < 0;
        let is_of_kind = |ring: &Given| (ring.priority < 0) == is_urgent;
        let of_kind = self.made.iter().filter(|ring| is_of_kind(ring));
        let has_place = !self.is_full && self.made.len() < OTHERS_MAX;
        if has_place && of_kind.count() < self.each {
            return Choice::New(self.made.len());
        }
        let rings = self.made.iter_mut().enumerate();
        let nearest = rings.min_by_key(|(_, ring)| {
            let distance = ring.priority.abs_diff(priority);
            (distance, !is_of_kind(ring), ring.streams)
        });
        nearest.map_or(Choice::First, |(index, ring)| {
            ring.streams += 1;
            Choice::Made(index)
        })
    }

    /// Notes that the ring of [`Choice::New`] was made, for a stream of `priority`.
    pub(crate) fn made(&mut self, priority: i32) {
        self.made.push(Given {
            priority,
            streams: 1,
        });
    }

    /// Notes that no more rings can be made.
    pub(crate) const fn stop(&mut self) {
        self.is_full = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the indices that streams of these priorities get; 9 for the first ring.
    fn rings_of(choices: &mut Choices, priorities: &[i32]) -> Vec<usize> {
        let choose = |priority: &i32| match choices.choose(*priority) {
            Choice::First => 9,
            Choice::Made(index) => index,
            Choice::New(index) => {
                choices.made(*priority);
                index
            }
        };
        priorities.iter().map(choose).collect()
    }

    #[test]
    fn streams_of_one_priority_take_turns() {
        let mut choices = Choices::new(4);
        assert_eq!(rings_of(&mut choices, &[0; 7]), [0, 1, 2, 0, 1, 2, 0]);
        let mut choices = Choices::new(4);
        assert_eq!(rings_of(&mut choices, &[-5; 4]), [0, 1, 2, 0]);
    }

    #[test]
    fn urgent_streams_find_a_ring_behind_many_others() {
        let mut choices = Choices::new(4);
        rings_of(&mut choices, &[0; 10]);
        assert_eq!(rings_of(&mut choices, &[-5, -1, 0, -5]), [3, 4, 1, 5]);
        let nearest = rings_of(&mut choices, &[-1, -2, -4, -5, 0]);
        assert_eq!(nearest, [4, 4, 3, 5, 2]);
    }

    #[test]
    fn the_priorities_of_pytorch_leave_three_rings_for_usual_streams() {
        let mut choices = Choices::new(4);
        let streams = rings_of(&mut choices, &[0, -1, -2, -3, 0, -1, -2, -3, 0, -1, -2, -3]);
        assert_eq!(streams, [0, 1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3]);
    }

    #[test]
    fn an_urgent_stream_without_a_ring_gets_an_urgent_one() {
        let mut choices = Choices::new(2);
        rings_of(&mut choices, &[-2, -2, 0]);
        assert_eq!(rings_of(&mut choices, &[-1, -1]), [0, 0], "as near as 0");
    }

    #[test]
    fn there_are_no_more_than_handles_can_name() {
        let mut choices = Choices::new(8);
        assert_eq!(rings_of(&mut choices, &[0; 7]), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(rings_of(&mut choices, &[-5]), [0], "none of its own");
        let mut choices = Choices::new(1);
        assert_eq!(rings_of(&mut choices, &[0, -5]), [9, 9]);
    }

    #[test]
    fn streams_share_what_the_session_allows() {
        let mut choices = Choices::new(4);
        choices.stop();
        assert_eq!(rings_of(&mut choices, &[0, -5]), [9, 9]);
        let mut choices = Choices::new(4);
        rings_of(&mut choices, &[0, -5]);
        choices.stop();
        assert_eq!(rings_of(&mut choices, &[0, -5, -1, -4]), [0, 1, 0, 1]);
    }
}
