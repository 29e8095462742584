//! The devices of the mechanisms on buses, driven as a guest drives them, over the software back
//! end.

mod forward;
mod samples;
mod trap;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_bench_mechanisms::Mechanisms;
use causeway_bench_workloads::host_interface::{
    PORT_FORWARD, PORT_SAMPLE, PORT_SINGLES, forward as wire,
};
use causeway_bench_workloads::measurement_plan::Effort;
use causeway_software::{Config, Software};
use causeway_vmm::aperture::Aperture;
use causeway_vmm::bus::{GuestAddress, Hit, MmioBus, Port, PortBus, StrayCounters};
use causeway_vmm::exit_counts::VmExits;
use causeway_vmm::hypervisor::NoGuest;
use causeway_vmm::memory::GuestRam;
use causeway_vmm::vm::{Attach, Bay};

/// Where the area for calls is.
const AREA: u64 = 0x10_0000;

/// A machine with nothing but these devices.
struct Machine {
    mechanisms: Mechanisms,
    ports: PortBus,
    mmio: MmioBus,
    ram: Arc<GuestRam>,
    stop: Arc<AtomicBool>,
}

impl Machine {
    fn new() -> Self {
        let backend = Arc::new(Software::new(Config {
            memory_bytes: 1 << 30,
            cores: Some(1),
            ..Config::default()
        }));
        let mechanisms = Mechanisms::new(backend, Effort::Quick).expect("a mechanisms");
        let strays = Arc::new(StrayCounters::default());
        let machine = Self {
            mechanisms,
            ports: PortBus::new(Arc::clone(&strays)),
            mmio: MmioBus::new(strays),
            ram: Arc::new(GuestRam::new("test", 8 << 20, false).expect("RAM")),
            stop: Arc::default(),
        };
        let aperture = Aperture::new(1 << 30, Arc::new(NoGuest)).expect("an aperture");
        let attached = machine.mechanisms.attach(&Bay {
            ports: &machine.ports,
            mmio: &machine.mmio,
            ram: &machine.ram,
            aperture: &Arc::new(aperture),
            exits: &VmExits::default(),
            tsc_khz: 1_000_000,
            stop: &machine.stop,
        });
        attached.expect("room on the buses");
        machine
    }

    fn load(&self, address: u64) -> (u64, Hit) {
        let mut bytes = [0; 8];
        let hit = self.mmio.read(GuestAddress(address), &mut bytes);
        (u64::from_le_bytes(bytes), hit)
    }

    fn store(&self, address: u64, value: u64) -> Hit {
        self.mmio.write(GuestAddress(address), &value.to_le_bytes())
    }

    fn word(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        self.ram.read(address, &mut bytes).expect("RAM");
        u64::from_le_bytes(bytes)
    }

    fn write_words(&self, address: u64, words: &[u64]) {
        for (at, word) in (address..).step_by(8).zip(words) {
            self.ram.write(at, &word.to_le_bytes()).expect("RAM");
        }
    }

    /// Has calls executed, each an opcode and operands. Gives the status.
    fn calls(&self, calls: &[&[u64]]) -> u64 {
        let mut words = Vec::new();
        for call in calls {
            words.push(wire::header(call[0], call.len()));
            words.extend(&call[1..]);
        }
        self.batch(&words)
    }

    /// Has a batch executed as it is.
    fn batch(&self, words: &[u64]) -> u64 {
        self.write_words(AREA + 8 * wire::CALLS as u64, words);
        self.write_words(AREA, &[words.len() as u64, u64::MAX]);
        self.kick(AREA);
        self.word(AREA + 8 * wire::STATUS as u64)
    }

    fn kick(&self, area: u64) {
        let page = (area / 4096) as u32;
        let hit = self.ports.write(Port(PORT_FORWARD), &page.to_le_bytes());
        assert!(hit.result.is_ok());
    }

    fn result(&self, index: u64) -> u64 {
        self.word(AREA + 8 * (wire::RESULTS as u64 + index))
    }

    fn singles(&self, address: u32) {
        let hit = self.ports.write(Port(PORT_SINGLES), &address.to_le_bytes());
        assert!(hit.result.is_ok());
    }

    fn sample(&self, address: u32) {
        let hit = self.ports.write(Port(PORT_SAMPLE), &address.to_le_bytes());
        assert!(hit.result.is_ok());
    }
}
