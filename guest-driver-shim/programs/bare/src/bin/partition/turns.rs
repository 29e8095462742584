//! Turns of two guests that wait for each other. A single guest does not wait.

use causeway_bare::{Clock, Machine, fetch, post};
use causeway_guests::Required;

/// Longest time that the other guest takes for a step, in milliseconds.
const WAIT_MS: u32 = 120_000;

/// Counts the steps of this guest, and waits for those of the other.
pub struct Turns {
    own: u32,
    alone: bool,
    clock: Clock,
    /// Number of steps that this guest has made.
    steps: u32,
    /// Number of steps that this guest had made before the turns began.
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

    /// Waits until both guests have called this.
    pub fn meet(&mut self) {
        self.end();
        self.wait(self.steps);
    }

    /// Waits until it is the turn of guest `vm`. The first guest always begins.
    pub fn wait_for(&mut self, vm: u32, turn: u32) {
        let begun = *self.begun.get_or_insert(self.steps);
        self.wait(begun + turn + vm);
    }

    /// Tells the other guest that this guest has made a step.
    pub fn end(&mut self) {
        self.steps += 1;
        let mut mail = [0; 64];
        mail[..4].copy_from_slice(&self.steps.to_le_bytes());
        if !self.alone {
            post(self.own, &mail);
        }
    }

    /// Waits until the other guest has made `steps` steps.
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
