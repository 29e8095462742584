//! How a VM ended, and its counts at its end.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::time::Instant;

use causeway_host_vfio::Address;
use causeway_mediator::SessionReport;
use causeway_mediator::statistics::Statistics;
use serde::Serialize;

use crate::bus::StrayCounts;
use crate::passthrough::DeviceReport;
use crate::pause::Pauses;
use crate::registers::Registers;
use crate::vcpu_state::VcpuState;

/// How a VM ended.
#[derive(Clone, Debug, PartialEq)]
pub enum VmResult {
    /// The guest reported success: it stored zero to the exit port, which ends the VM.
    Pass,
    /// The guest turned its machine off.
    PoweredOff,
    /// The guest restarted its machine, which ends the VM.
    Reset,
    /// The guest halted every virtual CPU for good, without turning its machine off.
    Halted,
    /// The guest's kernel panicked.
    GuestPanic {
        /// The message of the panic, as the kernel printed it.
        message: String,
    },
    /// The guest reported failure: it stored a value other than zero to the exit port, which ends
    /// the VM.
    Fail {
        /// The value that the guest stored; not zero.
        code: u32,
        /// Where and why the guest failed, such as "at main.rs:7: sum is 3"; `None` if the guest
        /// has not reported it to the test device.
        reason: Option<String>,
    },
    /// The guest caused an exception for which it has no handler.
    TripleFault {
        /// Number of the virtual CPU, from 0.
        vcpu: u32,
        /// The registers of the virtual CPU.
        registers: Registers,
    },
    /// A virtual CPU cannot go on for another reason than a triple fault.
    Crash {
        /// Number of the virtual CPU, from 0.
        vcpu: u32,
        /// The error with its causes.
        reason: String,
        /// The registers of the virtual CPU.
        registers: Registers,
    },
    /// Every virtual CPU of a bare guest stopped or halted, and none stored to the exit port.
    Abandoned,
    /// The host wants a device back that was passed through to the guest.
    DeviceWanted {
        /// The device's PCI address on the host.
        address: Address,
    },
    /// The run reached its time limit.
    Timeout,
    /// A signal ended the command; the value is its number.
    Signal(i32),
    /// The VMM failed; the text is the error with its causes.
    Error(String),
}

impl VmResult {
    /// Returns whether the VM counts as successful: its guest reported success, or turned off,
    /// restarted or halted its machine.
    pub fn passed(&self) -> bool {
        matches!(
            self,
            Self::Pass | Self::PoweredOff | Self::Reset | Self::Halted
        )
    }
}

impl fmt::Display for VmResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("passed"),
            Self::PoweredOff => f.write_str("turned off"),
            Self::Reset => f.write_str("restarted"),
            Self::Halted => f.write_str("halted"),
            Self::GuestPanic { message } => write!(f, "the guest's kernel panicked: {message}"),
            Self::Fail {
                reason: Some(reason),
                ..
            } => write!(f, "failed {reason}"),
            Self::Fail { code, reason: None } => write!(f, "failed with code {code}"),
            Self::TripleFault { vcpu, registers } => write!(
                f,
                "triple fault on virtual CPU {vcpu}: the guest has no handler for an exception \
                 ({registers})"
            ),
            Self::Crash {
                vcpu,
                reason,
                registers,
            } => write!(f, "virtual CPU {vcpu} cannot go on: {reason} ({registers})"),
            Self::Abandoned => f.write_str(
                "every virtual CPU has stopped or halted, and none has stored to the exit port",
            ),
            Self::DeviceWanted { address } => write!(
                f,
                "the host asks for device {address} back, which was passed through to the guest"
            ),
            Self::Timeout => f.write_str("did not end before the time-out"),
            Self::Signal(signal) => write!(f, "interrupted by signal {signal}"),
            Self::Error(reason) => write!(f, "the VMM cannot go on: {reason}"),
        }
    }
}

/// What a VM did when the time limit ended it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AtTimeout {
    /// What the virtual CPUs did, in their order.
    pub vcpus: Vec<VcpuState>,
    /// What the guest's GPU work had come to.
    pub gpu: GpuWork,
}

/// What a guest's GPU work has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuWork {
    /// Number of command buffers; 0 if the session was lost.
    pub command_buffers: u64,
    /// Number of packets that were executed.
    pub packets: u64,
    /// Units of 64 bytes that wait in rings.
    pub queued_units: u64,
}

impl GpuWork {
    /// Returns what a session with these `statistics` has come to.
    pub fn of(statistics: &Statistics) -> Self {
        Self {
            command_buffers: statistics.command_buffers,
            packets: statistics.packets,
            queued_units: statistics.queued_units,
        }
    }
}

impl Sum for GpuWork {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |all, part| Self {
            command_buffers: all.command_buffers + part.command_buffers,
            packets: all.packets + part.packets,
            queued_units: all.queued_units + part.queued_units,
        })
    }
}

impl fmt::Display for GpuWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "command buffers: {}; packets executed: {}; units of 64 bytes that waited in rings: {}",
            self.command_buffers, self.packets, self.queued_units
        )
    }
}

/// How a VM ended, and its counters at that time.
#[derive(Debug)]
pub struct VmOutcome {
    /// Name of the VM.
    pub name: String,
    /// How the VM ended.
    pub result: VmResult,
    /// What the VM did when the time limit ended it; `None` if it ended in another way.
    pub at_timeout: Option<AtTimeout>,
    /// Values of KVM's counters for the whole run, by KVM's names for them; empty if the host's
    /// kernel does not offer them.
    pub kvm_exits: BTreeMap<String, u64>,
    /// Number of exits that the VMM counted in the whole run for each cause, such as
    /// `mmio:registers:control_doorbell`.
    pub vmm_exits: BTreeMap<String, u64>,
    /// When the first virtual CPU entered guest code; `None` if none has done so.
    pub first_instruction: Option<Instant>,
    /// When the VM ended.
    pub ended: Instant,
    /// Counters of the VM's sessions in the mediator, one for each of its GPUs.
    pub sessions: Vec<SessionReport>,
    /// Numbers of the guest's stray accesses, by kind.
    pub strays: StrayCounts,
    /// The last lines that the guest wrote to its console, oldest first.
    pub console_tail: Vec<String>,
    /// Size of the guest's RAM in bytes.
    pub memory_bytes: u64,
    /// How often and how long the VM was paused.
    pub pauses: Pauses,
    /// Reports on the host devices that were passed through to the VM, one for each device.
    pub devices: Vec<DeviceReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_read_as_one_clause() {
        let failed = VmResult::Fail {
            code: 1,
            reason: Some("at main.rs:7: sum is 3".to_owned()),
        };
        assert_eq!(failed.to_string(), "failed at main.rs:7: sum is 3");
        let code = VmResult::Fail {
            code: 9,
            reason: None,
        };
        assert_eq!(code.to_string(), "failed with code 9");
        assert!(VmResult::Pass.passed() && !code.passed());
        let fault = VmResult::TripleFault {
            vcpu: 1,
            registers: Registers {
                rip: 0x1234,
                ..Registers::default()
            },
        };
        assert!(fault.to_string().contains("rip 0x1234"));
    }
}
