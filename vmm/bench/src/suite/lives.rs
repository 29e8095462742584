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
    /// What the last one did on the GPU, or that one whose exits are kept.
    pub work: Option<Work>,
    /// Exits of that one which had the most; those of the data path are of the worst one.
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
        let Some(exits) = life.exits else {
            self.work = life.work;
            return;
        };
        let worst = self.exits.as_ref().and_then(|exits| exits.data_path);
        let data_path = [worst, exits.data_path].into_iter().flatten();
        let data_path = data_path.max_by_key(|marked| marked.exits);
        let all = |exits: &Exits| exits.user_space_per_operation;
        if self
            .exits
            .as_ref()
            .is_none_or(|most| all(&exits) > all(most))
        {
            (self.exits, self.work) = (Some(exits), life.work);
        }
        if let Some(exits) = &mut self.exits {
            exits.data_path = data_path;
        }
    }
}
