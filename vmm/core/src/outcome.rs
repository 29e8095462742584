//! Results of VMs that have ended.

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
    /// The guest stored zero to the exit port.
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
    /// The guest stored another value to the exit port.
    Fail {
        /// The value; not zero.
        code: u32,
        /// Where and why, as a clause, if the guest has told a device: "at main.rs:7: sum is 3".
        reason: Option<String>,
    },
    /// An exception that the guest does not handle.
    TripleFault {
        /// Virtual CPU.
        vcpu: u32,
        /// Its registers.
        registers: Registers,
    },
    /// The guest cannot go on for another reason.
    Crash {
        /// Virtual CPU.
        vcpu: u32,
        /// Why, with causes.
        reason: String,
        /// Its registers.
        registers: Registers,
    },
    /// Every virtual CPU parked or halted, and none ended the VM.
    Abandoned,
    /// The host takes a device back that was passed through to the guest.
    DeviceWanted {
        /// Its address on the host.
        address: Address,
    },
    /// The run reached its time-out.
    Timeout,
    /// This signal ended the VMM.
    Signal(i32),
    /// The VMM failed.
    Error(String),
}

impl VmResult {
    /// Returns whether the guest ended without a failure.
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
                "triple fault on virtual CPU {vcpu}: the guest does not handle an exception ({registers})"
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
                "the host takes device {address} back, which was passed through"
            ),
            Self::Timeout => f.write_str("did not end before the time-out"),
            Self::Signal(signal) => write!(f, "interrupted by signal {signal}"),
            Self::Error(reason) => write!(f, "the VMM cannot go on: {reason}"),
        }
    }
}

/// A VM that has ended. Nothing of it runs any more.
#[derive(Debug)]
pub struct VmOutcome {
    /// Name of the VM.
    pub name: String,
    /// How it ended.
    pub result: VmResult,
    /// KVM's statistics of the whole run; empty if KVM keeps none.
    pub kvm_exits: BTreeMap<String, u64>,
    /// The VMM's own count of exits in the whole run.
    pub vmm_exits: BTreeMap<String, u64>,
    /// When the first virtual CPU entered guest code; `None` if none did.
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
    /// Devices of the host that were passed through to the VM.
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
