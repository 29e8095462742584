//! The threads of a VM's virtual CPUs.

use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::kick;
use crate::vcpu_state::VcpuState;

/// The threads of a VM's virtual CPUs that were not taken to be joined. Any thread can kick them.
#[derive(Debug, Default)]
pub struct VcpuThreads(Mutex<Vec<JoinHandle<Option<VcpuState>>>>);

impl VcpuThreads {
    /// Adds a thread.
    pub fn add(&self, thread: JoinHandle<Option<VcpuState>>) {
        self.0.lock().push(thread);
    }

    /// Makes all virtual CPUs leave guest code.
    pub fn kick(&self) {
        self.0.lock().iter().for_each(kick::kick);
    }

    /// Removes a thread and returns it; `None` if there is none.
    pub fn take(&self) -> Option<JoinHandle<Option<VcpuState>>> {
        self.0.lock().pop()
    }
}
