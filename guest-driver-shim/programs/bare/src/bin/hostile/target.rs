//! The device under attack: each kind of attack gets a fresh session, and afterwards the device
//! must work.

use causeway_bare::{Machine, PciTransport, Phase, Totals};
use causeway_guests::{CaseMemory, Pipeline, Required};
use causeway_protocol::registers::Register;
use causeway_shim::{AddressSpace, Buffer, Device, MemoryKind, Transport};
use causeway_testdev_records::PhasePath;

/// The device under attack, and state that all attacks need.
pub struct Target {
    pub machine: Machine,
    pub transport: PciTransport,
    /// RAM for module images and results.
    pub memory: CaseMemory,
    attacks: u64,
}

impl Target {
    pub fn find(machine: &Machine) -> Self {
        let transport = PciTransport::find(machine).required("finding the device");
        Self {
            machine: *machine,
            transport,
            memory: CaseMemory::new(machine),
            attacks: 0,
        }
    }

    /// Number of attacks so far.
    pub fn attacks(&self) -> u64 {
        self.attacks
    }

    /// Counts one attack that the device has refused as defined.
    pub fn survived(&mut self) {
        self.attacks += 1;
    }

    /// Returns an address above all low RAM. RAM may end a little before: on a CPU without large
    /// pages, the page tables of this guest lie behind the RAM that the boot page states, and those
    /// must not be attacked.
    pub fn beyond_ram(&self) -> u64 {
        self.machine.boot().ram_low_end + (2 << 20)
    }

    /// Returns the number of stray accesses that the device has counted.
    pub fn strays(&self) -> u32 {
        self.transport.read_register(Register::StrayCount)
    }

    /// Runs one kind of attack in its own phase, and verifies afterwards that the device works.
    pub fn attack(&mut self, name: &str, attack: fn(&mut Self)) {
        let before = self.attacks;
        let phase = Phase::begin(PhasePath::Control, name);
        attack(self);
        phase.end(Totals {
            operations: self.attacks - before,
            ..Totals::default()
        });
        self.still_works(name);
    }

    /// Resets the device and opens it again, so that the session owns nothing.
    ///
    /// Callers must not use objects of the time before: their handles may name other objects now.
    pub fn fresh(transport: &PciTransport) -> Device<'_> {
        Device::reset(transport);
        Device::open(transport).required("opening a fresh session")
    }

    fn still_works(&self, after: &str) {
        let device = Self::fresh(&self.transport);
        assert!(
            !device.is_lost(),
            "the device is lost after {after} and a reset"
        );
        let space = device.create_space().required(after);
        works(&device, &space, after);
    }
}

/// Does work through a new command buffer, and verifies it.
#[track_caller]
pub fn works<'d>(device: &'d Device<'d>, space: &AddressSpace<'d>, after: &str) {
    const WORD: u32 = 0x600d_600d;
    let buffer = Buffer::new(device, space, 8192, MemoryKind::Host).required(after);
    let mut pipeline = Pipeline::new(device, space, 256);
    let address = buffer.gpu.address();
    let commands = &mut pipeline.commands;
    commands.fill(address, 4096, WORD).required(after);
    commands.copy(address + 4096, address, 4096).required(after);
    pipeline.drain();
    for offset in (0..8192).step_by(4) {
        assert_eq!(
            buffer.cpu.load_u32(offset),
            Ok(WORD),
            "the device computes wrongly after {after}"
        );
    }
}
