//! How a VM ended, and what it left for the report.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use causeway_host_vfio::Address;
use causeway_mediator::SessionReport;

use crate::bus::StrayCounts;
use crate::passthrough::DeviceReport;
use crate::registers::Registers;

/// How a VM ended.
#[derive(Clone, Debug, PartialEq)]
pub enum VmResult {
    /// The guest said that all is well.
    Pass,
    /// The guest turned its machine off.
    PoweredOff,
    /// The guest restarted its machine, which ends the VM.
    Reset,
    /// The guest halted every virtual CPU for good, without turning its machine off.
    Halted,
    /// The guest's kernel panicked.
    GuestPanic {
        /// What it said.
        message: String,
    },
    /// The guest said that it failed.
    Fail {
        /// Its exit code; not zero.
        code: u32,
        /// Where and why, as a clause, if the guest has told a device: "at main.rs:7: sum is 3".
        reason: Option<String>,
    },
    /// An exception for which the guest has no handler.
    TripleFault {
        /// Virtual CPU.
        vcpu: u32,
        /// Where it was.
        registers: Registers,
    },
    /// The guest cannot go on, for another reason.
    Crash {
        /// Virtual CPU.
        vcpu: u32,
        /// Why, with causes.
        reason: String,
        /// Where it was.
        registers: Registers,
    },
    /// Every virtual CPU has parked or halted, and none ended the VM.
    Abandoned,
    /// The host wants a device back that the guest has.
    DeviceWanted {
        /// Its address on the host.
        address: Address,
    },
    /// Time was up.
    Timeout,
    /// The VMM was told to end by this signal.
    Signal(i32),
    /// The VMM itself could not go on.
    Error(String),
}

impl VmResult {
    /// Whether all is well.
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
                "triple fault on virtual CPU {vcpu}: an exception, and no handler for it ({registers})"
            ),
            Self::Crash {
                vcpu,
                reason,
                registers,
            } => write!(f, "virtual CPU {vcpu} cannot go on: {reason} ({registers})"),
            Self::Abandoned => f.write_str(
                "every virtual CPU has parked or halted, and none stored to the exit port",
            ),
            Self::DeviceWanted { address } => write!(
                f,
                "the host wants device {address} back, which was passed through to it"
            ),
            Self::Timeout => f.write_str("did not end in time"),
            Self::Signal(signal) => write!(f, "interrupted by signal {signal}"),
            Self::Error(reason) => write!(f, "the VMM cannot go on: {reason}"),
        }
    }
}

/// A VM that has ended: nothing of it runs any more.
#[derive(Debug)]
pub struct VmOutcome {
    /// Name of the VM.
    pub name: String,
    /// How it ended.
    pub result: VmResult,
    /// KVM's statistics over the life of the VM; empty if KVM has none.
    pub kvm_exits: BTreeMap<String, u64>,
    /// The VMM's own count over the life of the VM.
    pub vmm_exits: BTreeMap<String, u64>,
    /// When the first virtual CPU entered guest code; none if none did.
    pub first_instruction: Option<Instant>,
    /// When the VM ended.
    pub ended: Instant,
    /// The session's counters.
    pub session: SessionReport,
    /// Stray accesses.
    pub strays: StrayCounts,
    /// Last lines of the console.
    pub console_tail: Vec<String>,
    /// Guest RAM in bytes.
    pub memory_bytes: u64,
    /// Devices that were passed through to it.
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
