//! How a VM ended, and its counts at its end.

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
        /// The message of the panic, as the kernel printed it.
        message: String,
    },
    /// The guest stored a value other than zero to the exit port.
    Fail {
        /// The value; not zero.
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
    /// The host asks for a device back that was passed through to the guest.
    DeviceWanted {
        /// The device's PCI address on the host.
        address: Address,
    },
    /// The run reached its time-out.
    Timeout,
    /// A signal to the command ended the run; the number of the signal.
    Signal(i32),
    /// The VMM failed; the error with its causes.
    Error(String),
}

impl VmResult {
    /// Returns whether the guest ended without a failure: passed, or turned off, restarted or
    /// halted its machine.
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

/// The result and the counts of a VM that has ended.
#[derive(Debug)]
pub struct VmOutcome {
    /// Name of the VM.
    pub name: String,
    /// How the VM ended.
    pub result: VmResult,
    /// KVM's counters for the whole run, by their names in KVM; empty if this kernel does not offer
    /// them.
    pub kvm_exits: BTreeMap<String, u64>,
    /// The VMM's own counts of exits in the whole run, by keys such as
    /// `mmio:registers:control_doorbell`.
    pub vmm_exits: BTreeMap<String, u64>,
    /// When the first virtual CPU entered guest code; `None` if none did.
    pub first_instruction: Option<Instant>,
    /// When the VM ended.
    pub ended: Instant,
    /// The counters of the VM's session in the mediator.
    pub session: SessionReport,
    /// Numbers of the guest's accesses that hit no register and no mapping.
    pub strays: StrayCounts,
    /// The last lines of the guest's console, oldest first.
    pub console_tail: Vec<String>,
    /// Guest RAM in bytes.
    pub memory_bytes: u64,
    /// Reports on the host's devices that were passed through to the VM.
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
