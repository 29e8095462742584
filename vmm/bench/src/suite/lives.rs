//! The lives of a program by one way.

use causeway_bench_suites::{Exits, Life, Program, Verdict, Way, Work};

/// The lives of a program by one way.
pub struct Lives {
    pub way: Way,
    /// What they were worth: that of the last one, after which there are no more if it did not
    /// pass.
    pub verdict: Verdict,
    /// A signal that ended one.
    pub signal: Option<i32>,
    /// Times in nanoseconds, taken in turn with other ways.
    pub in_turn_ns: Vec<f64>,
    /// Times in nanoseconds, taken beside no other way.
    pub alone_ns: Vec<f64>,
    /// What the last one did on the GPU.
    pub work: Option<Work>,
    /// Exits of that one which had the most.
    pub exits: Option<Exits>,
}

impl Lives {
    pub const fn new(way: Way) -> Self {
        Self {
            way,
            verdict: Verdict::Passed,
            signal: None,
            in_turn_ns: Vec::new(),
            alone_ns: Vec::new(),
            work: None,
            exits: None,
        }
    }

    /// Takes in a life, which may have taken place beside no other way.
    pub fn take(&mut self, program: &Program, life: Life, is_alone: bool) {
        self.verdict = Verdict::of(program, self.way, &life);
        match is_alone {
            true => self.alone_ns.push(life.time_ns),
            false => self.in_turn_ns.push(life.time_ns),
        }
        self.work = life.work;
        let most = self
            .exits
            .as_ref()
            .map_or(-1.0, |exits| exits.user_space_per_operation);
        let exits = life
            .exits
            .filter(|exits| exits.user_space_per_operation > most);
        self.exits = exits.or(self.exits.take());
    }
}
