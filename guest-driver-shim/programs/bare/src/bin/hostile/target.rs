//! The device under attack: a fresh session for each kind of attack, and proof afterwards that it
//! works.

use causeway_bare::{Machine, PciTransport, Phase, Totals};
use causeway_guests::{CaseMemory, Pipeline, Required};
use causeway_protocol::registers::Register;
use causeway_shim::{AddressSpace, Buffer, Device, MemoryKind, Transport};
use causeway_testdev_records::PhasePath;

/// The device and what attacks need.
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

    /// Attacks so far.
    pub fn attacks(&self) -> u64 {
        self.attacks
    }

    /// Counts one attack that had its defined end.
    pub fn survived(&mut self) {
        self.attacks += 1;
    }

    /// An address from which on there is no low RAM. RAM may end a little before: a machine whose
    /// CPU lacks large pages keeps the page tables of this guest behind the RAM that the boot page
    /// counts, and those are no target.
    pub fn beyond_ram(&self) -> u64 {
        self.machine.boot().ram_low_end + (2 << 20)
    }

    /// Stray accesses so far, as the device counts them.
    pub fn strays(&self) -> u32 {
        self.transport.read_register(Register::StrayCount)
    }

    /// Runs one kind of attack in a phase of its own, and verifies afterwards that the device
    /// works.
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

    /// Opens a session that owns nothing yet, ending the one before.
    ///
    /// Objects of the session before must be gone: their handles may mean something else in the new
    /// one.
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

/// Work through a new command buffer, verified.
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
