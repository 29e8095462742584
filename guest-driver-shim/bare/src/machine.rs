//! Properties of the machine that a guest runs on.

use causeway_protocol::boot::BootInfo;
use causeway_shim::Clock;

use crate::ram::Ram;

/// The virtual machine that this guest runs on, as seen by one of its CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    boot: BootInfo,
    cpu: u32,
}

impl Machine {
    pub(crate) const fn new(boot: BootInfo, cpu: u32) -> Self {
        Self { boot, cpu }
    }

    /// Returns the index of the CPU that runs this code, from 0.
    #[must_use]
    pub const fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns the number of virtual CPUs of the VM.
    #[must_use]
    pub const fn cpus(&self) -> u32 {
        self.boot.vcpus
    }

    /// Returns the index of this VM, from 0, among the VMs that the same `causeway run` started.
    #[must_use]
    pub const fn vm(&self) -> u32 {
        self.boot.vm
    }

    /// Returns the number of VMs that the same `causeway run` started, including this one.
    #[must_use]
    pub const fn vms(&self) -> u32 {
        self.boot.vms
    }

    /// Returns the content of the boot page, in which the VMM describes the machine to the guest.
    #[must_use]
    pub const fn boot(&self) -> &BootInfo {
        &self.boot
    }

    /// Returns the text of `causeway run --arguments`, or an empty string if the text is not UTF-8.
    #[must_use]
    pub fn arguments(&self) -> &str {
        let used = (self.boot.argument_bytes as usize).min(self.boot.arguments.len());
        core::str::from_utf8(&self.boot.arguments[..used]).unwrap_or("")
    }

    /// Returns the RAM between the end of the guest image and 3 GiB, from which the guest can
    /// allocate.
    #[must_use]
    pub fn ram(&self) -> Ram {
        Ram::new(&self.boot)
    }

    /// Returns a clock that converts between nanoseconds and ticks of this machine's time stamp
    /// counter.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        Clock::new(self.boot.tsc_khz)
    }
}
