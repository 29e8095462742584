//! Properties of the machine that a guest runs on.

use causeway_protocol::boot::BootInfo;
use causeway_shim::Clock;

use crate::ram::Ram;

/// The machine, as one of its CPUs sees it.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    boot: BootInfo,
    cpu: u32,
}

impl Machine {
    pub(crate) const fn new(boot: BootInfo, cpu: u32) -> Self {
        Self { boot, cpu }
    }

    /// Returns the index of this CPU.
    #[must_use]
    pub const fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub const fn cpus(&self) -> u32 {
        self.boot.vcpus
    }

    /// Returns the index of this VM among those of its `causeway run`, from 0.
    #[must_use]
    pub const fn vm(&self) -> u32 {
        self.boot.vm
    }

    /// Returns the number of VMs in the run.
    #[must_use]
    pub const fn vms(&self) -> u32 {
        self.boot.vms
    }

    /// Returns the boot page.
    #[must_use]
    pub const fn boot(&self) -> &BootInfo {
        &self.boot
    }

    /// Returns the arguments of the guest; empty if they are not UTF-8.
    #[must_use]
    pub fn arguments(&self) -> &str {
        let used = (self.boot.argument_bytes as usize).min(self.boot.arguments.len());
        core::str::from_utf8(&self.boot.arguments[..used]).unwrap_or("")
    }

    /// Returns the RAM behind the image.
    #[must_use]
    pub fn ram(&self) -> Ram {
        Ram::new(&self.boot)
    }

    /// Time.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        Clock::new(self.boot.tsc_khz)
    }
}
