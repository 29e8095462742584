//! What the control socket needs of a VM; tests put others in its place.

use causeway_vmm::pause_switch::{PauseSwitch, Standing};

/// A VM that can be paused. The functions never wait.
pub trait Pausable: Send {
    /// Returns the name of the VM.
    fn name(&self) -> &str;
    /// Returns the number of its virtual CPUs.
    fn vcpus(&self) -> u32;
    /// Returns the size of its RAM in bytes.
    fn memory_bytes(&self) -> u64;
    /// Asks its virtual CPUs to stand still.
    fn pause(&self);
    /// Lets its virtual CPUs go on.
    fn resume(&self);
    /// Returns whether the VM runs; `None` if it does not exist any more.
    fn look(&self) -> Option<Standing>;
}

impl Pausable for PauseSwitch {
    fn name(&self) -> &str {
        self.name()
    }

    fn vcpus(&self) -> u32 {
        self.vcpus()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes()
    }

    fn pause(&self) {
        self.pause();
    }

    fn resume(&self) {
        self.resume();
    }

    fn look(&self) -> Option<Standing> {
        self.look()
    }
}
