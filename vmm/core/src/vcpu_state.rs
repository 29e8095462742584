//! What a virtual CPU did when it was stopped: the place to look at in a guest that does not end.

use std::fmt;

use kvm_bindings::{KVM_MP_STATE_HALTED, KVM_MP_STATE_INIT_RECEIVED, KVM_MP_STATE_UNINITIALIZED};
use kvm_ioctls::VcpuFd;
use serde::Serialize;

use crate::counters::ExitCounters;

/// What a virtual CPU did when it was stopped, or when it stopped by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VcpuState {
    /// Number of the virtual CPU, from 0.
    pub vcpu: u32,
    /// Whether it executed instructions.
    pub doing: Doing,
    /// Instruction pointer.
    pub rip: u64,
    /// Privilege level, 0 to 3; in real mode without meaning.
    pub cpl: u16,
    /// Number of its exits to the VMM, without those that the VMM caused.
    pub exits: u64,
    /// The last of these exits, as in counts of exits; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
}

/// Whether a virtual CPU executes instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It executes instructions.
    Running,
    /// It has halted (HLT), and may wait for an interrupt.
    Halted,
    /// The guest has not started it.
    NotStarted,
}

impl VcpuState {
    /// Reads the state of `vcpu`, whose thread calls this function. Registers that KVM fails to
    /// return are zero. `parked` says whether the virtual CPU has halted or was stopped for good,
    /// which KVM need not know.
    pub(crate) fn of(index: u32, vcpu: &VcpuFd, counters: &ExitCounters, parked: bool) -> Self {
        let doing = match vcpu.get_mp_state().map(|state| state.mp_state) {
            _ if parked => Doing::Halted,
            Ok(KVM_MP_STATE_HALTED) => Doing::Halted,
            Ok(KVM_MP_STATE_UNINITIALIZED | KVM_MP_STATE_INIT_RECEIVED) => Doing::NotStarted,
            Ok(_) | Err(_) => Doing::Running,
        };
        let (exits, last) = counters.of_guest();
        Self {
            vcpu: index,
            doing,
            rip: vcpu.get_regs().unwrap_or_default().rip,
            cpl: vcpu.get_sregs().unwrap_or_default().cs.selector & 3,
            exits,
            last_exit: last.map(|exit| exit.to_string()),
        }
    }
}

impl fmt::Display for VcpuState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            vcpu,
            rip,
            cpl,
            exits,
            ..
        } = self;
        write!(f, "virtual CPU {vcpu} ")?;
        match self.doing {
            Doing::NotStarted => return f.write_str("was not started"),
            Doing::Halted => write!(f, "had halted at rip {rip:#x} (CPL {cpl})")?,
            Doing::Running => write!(f, "ran at rip {rip:#x} (CPL {cpl})")?,
        }
        write!(f, ", after {exits} exits")?;
        match &self.last_exit {
            Some(exit) => write!(f, ", the last of them {exit}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_read_as_one_clause() {
        let mut state = VcpuState {
            vcpu: 1,
            doing: Doing::Running,
            rip: 0x10_0004,
            cpl: 3,
            exits: 2,
            last_exit: Some("io:console:data".to_owned()),
        };
        assert_eq!(
            state.to_string(),
            "virtual CPU 1 ran at rip 0x100004 (CPL 3), after 2 exits, the last of them \
             io:console:data"
        );
        (state.doing, state.exits, state.last_exit) = (Doing::Halted, 0, None);
        let halted = "virtual CPU 1 had halted at rip 0x100004 (CPL 3), after 0 exits";
        assert_eq!(state.to_string(), halted);
        state.doing = Doing::NotStarted;
        assert_eq!(state.to_string(), "virtual CPU 1 was not started");
    }
}
