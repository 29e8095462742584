//! From a vCPU exit to what is to be done about it.

use std::sync::Arc;

use causeway_protocol::harness::{PORT_EXIT, PORT_RECORD, PORT_RECORD_APERTURE};
use kvm_ioctls::VcpuExit;

use crate::bus::{GuestAddress, Hit, MmioBus, Port, PortBus, STRAY};
use crate::counters::{ExitCounters, ExitKey};
use crate::harness::{Harness, MARKER, Recorded};
use crate::linux::PowerEvent;

/// What exits are dispatched to.
pub struct Platform {
    /// I/O ports.
    pub ports: Arc<PortBus>,
    /// Guest-physical addresses that are neither RAM nor mapped.
    pub mmio: Arc<MmioBus>,
    /// The test bench; its ports are not on the bus.
    pub harness: Harness,
    /// Whether the guest has registers by which it turns its machine off, or resets it.
    pub has_power: bool,
}

/// What is to be done after an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Run on.
    Continue,
    /// The guest ended the VM with this code.
    End(u32),
    /// The guest turned its machine off, or reset it.
    Power(PowerEvent),
    /// This virtual CPU has nothing more to do.
    Park,
    /// The guest touched memory that the host could not provide as it is mapped.
    MemoryFault,
    /// KVM could not emulate an instruction.
    EmulationFailure,
    /// The guest cannot go on.
    Crash(Crash),
}

/// Why a guest cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Crash {
    /// An exception for which the guest has no handler: a triple fault.
    TripleFault,
    /// The processor did not take the guest's state.
    FailedEntry {
        /// The hardware's reason.
        reason: u64,
    },
    /// An exit that a bare guest has no way to cause.
    Unexpected {
        /// KVM's name for it.
        exit: String,
    },
}

/// Handles one exit: dispatches it, counts it, and says what is to be done.
pub fn handle(exit: VcpuExit<'_>, platform: &Platform, counters: &ExitCounters) -> Outcome {
    match exit {
        VcpuExit::IoOut(PORT_EXIT, data) => {
            counters.count(ExitKey::device("io", "harness", "exit"));
            word(data).map_or(Outcome::Continue, Outcome::End)
        }
        // Counted first, so that samples taken on its behalf contain it.
        VcpuExit::IoOut(PORT_RECORD, data) => {
            counters.count(MARKER);
            record(data, |address| platform.harness.record(address))
        }
        VcpuExit::IoOut(PORT_RECORD_APERTURE, data) => {
            counters.count(MARKER);
            record(data, |units| platform.harness.record_in_aperture(units))
        }
        VcpuExit::IoOut(port, data) => {
            if platform.has_power
                && let Some(event) = PowerEvent::of(port, data)
            {
                counters.count(ExitKey::device("io", "power", event.register()));
                return Outcome::Power(event);
            }
            count(counters, "io", platform.ports.write(Port(port), data));
            Outcome::Continue
        }
        VcpuExit::IoIn(port, data) => {
            data.fill(0);
            count(counters, "io", platform.ports.read(Port(port), data));
            Outcome::Continue
        }
        VcpuExit::MmioWrite(address, data) => {
            let hit = platform.mmio.write(GuestAddress(address), data);
            count(counters, "mmio", hit);
            Outcome::Continue
        }
        VcpuExit::MmioRead(address, data) => {
            data.fill(0);
            let hit = platform.mmio.read(GuestAddress(address), data);
            count(counters, "mmio", hit);
            Outcome::Continue
        }
        other => rare(&other, counters),
    }
}

/// Exits that no device has to do with.
fn rare(exit: &VcpuExit<'_>, counters: &ExitCounters) -> Outcome {
    let (reason, outcome) = match exit {
        VcpuExit::Intr => ("signal", Outcome::Continue),
        VcpuExit::IrqWindowOpen => ("irq_window", Outcome::Continue),
        // Interrupts are off and there is nobody to send one: this processor sleeps for good.
        VcpuExit::Hlt => ("halt", Outcome::Park),
        VcpuExit::Shutdown => ("shutdown", Outcome::Crash(Crash::TripleFault)),
        VcpuExit::FailEntry(reason, _) => {
            let crash = Crash::FailedEntry { reason: *reason };
            ("failed_entry", Outcome::Crash(crash))
        }
        VcpuExit::InternalError => ("internal_error", Outcome::EmulationFailure),
        VcpuExit::MemoryFault { .. } => ("memory_fault", Outcome::MemoryFault),
        other => {
            let exit = format!("{other:?}");
            ("unexpected", Outcome::Crash(Crash::Unexpected { exit }))
        }
    };
    counters.count(ExitKey::plain(reason));
    outcome
}

fn record(data: &[u8], act: impl FnOnce(u32) -> Recorded) -> Outcome {
    let Some(place) = word(data) else {
        return Outcome::Continue;
    };
    match act(place) {
        // What was refused is the guest's to notice: it gets no reply. The reason is in the debug log.
        Recorded::Done | Recorded::Refused(_) => Outcome::Continue,
        Recorded::Park => Outcome::Park,
    }
}

/// The value of a 4-byte store. The harness has no other registers.
fn word(data: &[u8]) -> Option<u32> {
    let word = data.try_into().map(u32::from_le_bytes).ok();
    if word.is_none() {
        log::debug!("a {}-byte store to a port of the harness", data.len());
    }
    word
}

fn count(counters: &ExitCounters, reason: &'static str, hit: Hit) {
    let register = match hit.result {
        Ok(()) => hit.register,
        Err(_) => STRAY,
    };
    counters.count(ExitKey::device(reason, hit.device, register));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aperture::Leased;
    use crate::bus::{BusDevice, Refusal, Response, StrayCounters};
    use crate::counters;
    use crate::harness::{MappedMemory, PhaseRecorder};
    use crate::memory::GuestRam;
    use crate::statistics::VmStatistics;
    use std::sync::Mutex;

    struct Nothing;

    impl MappedMemory for Nothing {
        fn object(&self, _: u64, _: u64) -> Option<Leased> {
            None
        }

        fn placed(&self, _: u64, _: u64) -> Option<Leased> {
            None
        }
    }

    /// A device of one register at offset 0.
    #[derive(Default)]
    struct Device(Mutex<Vec<u8>>);

    impl BusDevice for Device {
        fn name(&self) -> &'static str {
            "device"
        }
        fn read(&self, offset: u64, into: &mut [u8]) -> Response {
            if offset != 0 {
                return Response::refused(Refusal::NoRegister);
            }
            assert!(into.iter().all(|b| *b == 0), "reads begin with zeros");
            into[0] = 7;
            Response::ok("only")
        }
        fn write(&self, _: u64, from: &[u8]) -> Response {
            self.0.lock().unwrap().extend(from);
            Response::ok("only")
        }
    }

    fn platform() -> (Platform, Arc<Device>, Arc<GuestRam>) {
        let strays = Arc::new(StrayCounters::default());
        let device = Arc::new(Device::default());
        let ports = PortBus::new(Arc::clone(&strays));
        ports.insert(Port(0x40), 2, device.clone()).unwrap();
        let mmio = MmioBus::new(strays);
        mmio.insert(GuestAddress(0x1000_0000), 16, device.clone())
            .unwrap();
        let ram = Arc::new(GuestRam::new("test", 8 << 20, false).unwrap());
        let phases = PhaseRecorder::new(Arc::new(VmStatistics::unavailable()), Vec::new());
        let harness = Harness::new(
            Arc::clone(&ram),
            Arc::new(Nothing),
            Arc::default(),
            phases,
            1,
            Arc::default(),
        );
        let platform = Platform {
            ports: Arc::new(ports),
            mmio: Arc::new(mmio),
            harness,
            has_power: false,
        };
        (platform, device, ram)
    }

    fn keys(counters: &ExitCounters) -> Vec<(String, u64)> {
        counters::named(&counters::total([counters]))
            .into_iter()
            .collect()
    }

    #[test]
    fn loads_get_what_the_device_says_or_all_ones() {
        let (platform, ..) = platform();
        let counters = ExitCounters::default();
        let mut data = [0xaa; 4];
        let exit = VcpuExit::MmioRead(0x1000_0000, &mut data);
        assert_eq!(handle(exit, &platform, &counters), Outcome::Continue);
        assert_eq!(data, [7, 0, 0, 0]);
        let exit = VcpuExit::IoIn(0x41, &mut data);
        assert_eq!(handle(exit, &platform, &counters), Outcome::Continue);
        assert_eq!(data, [0xff; 4], "crosses the edge");
        assert_eq!(
            keys(&counters),
            [
                ("io:device:stray".to_owned(), 1),
                ("mmio:device:only".to_owned(), 1)
            ]
        );
    }

    #[test]
    fn stores_reach_their_device_and_strays_nobody() {
        let (platform, device, _) = platform();
        let counters = ExitCounters::default();
        for exit in [
            VcpuExit::IoOut(0x40, &[1]),
            VcpuExit::MmioWrite(0x1000_0008, &[2, 3]),
            VcpuExit::MmioWrite(0x2000_0000, &[4]),
        ] {
            assert_eq!(handle(exit, &platform, &counters), Outcome::Continue);
        }
        assert_eq!(*device.0.lock().unwrap(), [1, 2, 3]);
        assert_eq!(keys(&counters)[2], ("mmio:unclaimed:stray".to_owned(), 1));
    }

    #[test]
    fn the_exit_port_takes_words_only() {
        let (platform, ..) = platform();
        let counters = ExitCounters::default();
        let exit = VcpuExit::IoOut(PORT_EXIT, &[3, 0, 0, 0]);
        assert_eq!(handle(exit, &platform, &counters), Outcome::End(3));
        let exit = VcpuExit::IoOut(PORT_EXIT, &[0]);
        assert_eq!(handle(exit, &platform, &counters), Outcome::Continue);
        assert_eq!(keys(&counters), [("io:harness:exit".to_owned(), 2)]);
    }

    #[test]
    fn a_park_record_parks() {
        let (platform, _, ram) = platform();
        let counters = ExitCounters::default();
        ram.write(0x1000, &[8, 0, 0, 0, 8, 0, 0, 0]).unwrap();
        let exit = VcpuExit::IoOut(PORT_RECORD, &[0, 0x10, 0, 0]);
        assert_eq!(handle(exit, &platform, &counters), Outcome::Park);
        let exit = VcpuExit::IoOut(PORT_RECORD, &[0, 0x20, 0, 0]);
        assert_eq!(handle(exit, &platform, &counters), Outcome::Continue);
        assert_eq!(keys(&counters), [("io:harness:record".to_owned(), 2)]);
    }

    #[test]
    fn what_a_guest_cannot_survive_is_named() {
        let (platform, ..) = platform();
        let counters = ExitCounters::default();
        let crash = |exit| match handle(exit, &platform, &counters) {
            Outcome::Crash(crash) => crash,
            other => panic!("{other:?}"),
        };
        assert_eq!(crash(VcpuExit::Shutdown), Crash::TripleFault);
        assert_eq!(
            crash(VcpuExit::FailEntry(5, 0)),
            Crash::FailedEntry { reason: 5 }
        );
        let Crash::Unexpected { exit } = crash(VcpuExit::Nmi) else {
            panic!("not expected to be expected");
        };
        assert_eq!(exit, "Nmi");
        assert_eq!(
            handle(VcpuExit::InternalError, &platform, &counters),
            Outcome::EmulationFailure
        );
        assert_eq!(handle(VcpuExit::Hlt, &platform, &counters), Outcome::Park);
        assert_eq!(
            handle(VcpuExit::Intr, &platform, &counters),
            Outcome::Continue
        );
    }
}
