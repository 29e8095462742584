//! Two guests that wait for each other. A guest that is alone waits for nobody.

use causeway_bare::{Clock, Machine, fetch, post};
use causeway_guests::Required;

/// Longest that the other guest takes for anything, in milliseconds.
const WAIT_MS: u32 = 120_000;

/// Where this guest is, and where the other must be.
pub struct Turns {
    own: u32,
    alone: bool,
    clock: Clock,
    /// Steps that this guest has made.
    steps: u32,
    /// Steps it had made before the turns began.
    begun: Option<u32>,
}

impl Turns {
    pub fn new(machine: &Machine) -> Self {
        Self {
            own: machine.vm(),
            alone: machine.vms() == 1,
            clock: machine.clock(),
            steps: 0,
            begun: None,
        }
    }

    /// Waits until both are here.
    pub fn meet(&mut self) {
        self.end();
        self.wait(self.steps);
    }

    /// Waits until it is guest `vm`'s turn: the first guest is the first each time.
    pub fn wait_for(&mut self, vm: u32, turn: u32) {
        let begun = *self.begun.get_or_insert(self.steps);
        self.wait(begun + turn + vm);
    }

    /// Tells the other that this guest has made a step.
    pub fn end(&mut self) {
        self.steps += 1;
        let mut mail = [0; 64];
        mail[..4].copy_from_slice(&self.steps.to_le_bytes());
        if !self.alone {
            post(self.own, &mail);
        }
    }

    /// Waits until the other has made so many steps.
    fn wait(&self, steps: u32) {
        let deadline = self.clock.now_ns() + u64::from(WAIT_MS) * 1_000_000;
        let mut seen = 0;
        while !self.alone && seen < steps {
            // Mail stays in its box until other mail replaces it.
            let mail = fetch(1 - self.own, WAIT_MS).required("word of the other guest");
            seen = u32::from_le_bytes([mail[0], mail[1], mail[2], mail[3]]);
            let late = self.clock.now_ns() >= deadline;
            assert!(!late, "the other guest has made {seen} steps, not {steps}");
            if seen < steps {
                self.clock.spin(50_000);
            }
        }
    }
}
