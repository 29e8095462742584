//! A virtual CPU's registers at the moment at which its guest crashed.

use std::fmt;

use kvm_ioctls::VcpuFd;
use serde::Serialize;

/// Where a processor is after a reset; KVM on SVM resets it on a triple fault, and the trace is
/// lost.
const RESET_VECTOR: u64 = 0xfff0;

/// The x86 registers of a virtual CPU at the moment its guest crashed, as the VM's report shows
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Registers {
    /// Instruction pointer.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// Flags register.
    pub rflags: u64,
    /// General registers, in this order: rax, rbx, rcx, rdx, rsi, rdi, rbp.
    pub general: [u64; 7],
    /// Control register 0.
    pub cr0: u64,
    /// Control register 2: the address of the last page fault.
    pub cr2: u64,
    /// Control register 3: the physical address of the page tables.
    pub cr3: u64,
    /// Control register 4.
    pub cr4: u64,
    /// Code segment selector; its low two bits are the privilege level.
    pub cs: u16,
}

impl Registers {
    /// Reads the registers of `vcpu`. Registers that KVM fails to return are zero.
    pub fn of(vcpu: &VcpuFd) -> Self {
        let regs = vcpu.get_regs().unwrap_or_default();
        let sregs = vcpu.get_sregs().unwrap_or_default();
        Self {
            rip: regs.rip,
            rsp: regs.rsp,
            rflags: regs.rflags,
            general: [
                regs.rax, regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rbp,
            ],
            cr0: sregs.cr0,
            cr2: sregs.cr2,
            cr3: sregs.cr3,
            cr4: sregs.cr4,
            cs: sregs.cs.selector,
        }
    }

    /// Returns whether KVM reset the processor before its registers could be read, as KVM does
    /// after a triple fault on AMD processors.
    pub fn were_reset(&self) -> bool {
        self.rip == RESET_VECTOR && self.cr3 == 0
    }
}

impl fmt::Display for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.were_reset() {
            return f.write_str("registers unknown: KVM has reset the virtual CPU");
        }
        write!(
            f,
            "rip {:#x} rsp {:#x} rflags {:#x} cs {:#x} cr2 {:#x} cr3 {:#x}",
            self.rip, self.rsp, self.rflags, self.cs, self.cr2, self.cr3
        )?;
        let names = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp"];
        for (name, value) in names.iter().zip(self.general) {
            write!(f, " {name} {value:#x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_read_as_one_line_and_a_reset_is_said() {
        let mut registers = Registers {
            rip: 0x10_0004,
            cr2: 0xdead_0000,
            cr3: 0x9000,
            ..Registers::default()
        };
        let text = registers.to_string();
        assert!(text.contains("rip 0x100004") && text.contains("cr2 0xdead0000"));
        (registers.rip, registers.cr3) = (0xfff0, 0);
        assert!(registers.to_string().contains("reset"));
    }
}
