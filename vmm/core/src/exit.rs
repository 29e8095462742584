//! Turns a vCPU exit into what the virtual CPU must do next.

use std::sync::Arc;

use kvm_ioctls::VcpuExit;

use crate::bus::{Effect, GuestAddress, MmioBus, Port, PortBus, PowerEvent, STRAY};
use crate::counters::{ExitCounters, ExitKey, KICKED};

/// The two buses of a VM. An exit that is an access to a device finds the device on one of them.
#[derive(Debug)]
pub struct Platform {
    /// The bus of I/O ports.
    pub ports: Arc<PortBus>,
    /// The bus of guest-physical addresses that no memory slot covers.
    pub mmio: Arc<MmioBus>,
}

/// What a virtual CPU must do after an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Run the guest again.
    Continue,
    /// End the VM: the guest ended it with this exit code. Zero means success.
    End(u32),
    /// End the VM: the guest turned its machine off, or reset it.
    Power(PowerEvent),
    /// Stop this virtual CPU, which has nothing more to do.
    Park,
    /// Resolve the access by [`crate::aperture::Apertures::resolve`]: the guest accessed memory that
    /// KVM cannot map.
    MemoryFault,
    /// Run the instruction again or end the VM, as [`crate::aperture::Apertures::retry_emulation`]
    /// says: KVM cannot emulate the instruction.
    EmulationFailure,
    /// End the VM: the guest got an exception for which it has no handler (a triple fault), by
    /// mistake or to reset its machine.
    TripleFault,
    /// End the VM: the guest cannot go on, for this reason.
    Crash(String),
}

impl From<Effect> for Outcome {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::None => Self::Continue,
            Effect::Park => Self::Park,
            Effect::End(code) => Self::End(code),
            Effect::Power(event) => Self::Power(event),
        }
    }
}

/// Handles one exit of a virtual CPU. If the exit is an access to an I/O port or a guest-physical
/// address, carries it out on the corresponding bus of `platform`. Counts the exit in `counters`,
/// and returns what the virtual CPU must do next.
pub fn handle(exit: VcpuExit<'_>, platform: &Platform, counters: &ExitCounters) -> Outcome {
    let (reason, hit) = match exit {
        VcpuExit::IoOut(port, data) => ("io", platform.ports.write(Port(port), data)),
        VcpuExit::IoIn(port, data) => ("io", platform.ports.read(Port(port), data)),
        VcpuExit::MmioWrite(address, data) => {
            ("mmio", platform.mmio.write(GuestAddress(address), data))
        }
        VcpuExit::MmioRead(address, data) => {
            ("mmio", platform.mmio.read(GuestAddress(address), data))
        }
        other => return rare(&other, counters),
    };
    let register = hit.result.map_or(STRAY, |()| hit.register);
    counters.count(ExitKey::device(reason, hit.device, register));
    hit.effect.into()
}

/// Handles exits that concern no device.
fn rare(exit: &VcpuExit<'_>, counters: &ExitCounters) -> Outcome {
    let (reason, outcome) = match exit {
        VcpuExit::Intr => (KICKED.reason, Outcome::Continue),
        VcpuExit::IrqWindowOpen => ("irq_window", Outcome::Continue),
        // Interrupts are off and there is nobody to send one: this processor sleeps for good.
        VcpuExit::Hlt => ("halt", Outcome::Park),
        VcpuExit::Shutdown => ("shutdown", Outcome::TripleFault),
        VcpuExit::FailEntry(code, _) => {
            let reason =
                format!("the processor refuses the guest's state (hardware reason {code:#x})");
            ("failed_entry", Outcome::Crash(reason))
        }
        VcpuExit::InternalError => ("internal_error", Outcome::EmulationFailure),
        VcpuExit::MemoryFault { .. } => ("memory_fault", Outcome::MemoryFault),
        other => {
            let reason = format!("KVM exits for an unexpected reason: {other:?}");
            ("unexpected", Outcome::Crash(reason))
        }
    };
    counters.count(ExitKey::plain(reason));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{BusDevice, Refusal, Response, StrayCounters};
    use crate::counters;
    use parking_lot::Mutex;

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
            self.0.lock().extend(from);
            match from {
                [0xff, code] => Response::ok("only").with(Effect::End((*code).into())),
                [0xfe] => Response::ok("only").with(Effect::Park),
                _ => Response::ok("only"),
            }
        }
    }

    fn platform() -> (Platform, Arc<Device>) {
        let strays = Arc::new(StrayCounters::default());
        let device = Arc::new(Device::default());
        let ports = PortBus::new(Arc::clone(&strays));
        ports.insert(Port(0x40), 2, device.clone()).unwrap();
        let mmio = MmioBus::new(strays);
        mmio.insert(GuestAddress(0x1000_0000), 16, device.clone())
            .unwrap();
        let platform = Platform {
            ports: Arc::new(ports),
            mmio: Arc::new(mmio),
        };
        (platform, device)
    }

    fn keys(counters: &ExitCounters) -> Vec<(String, u64)> {
        counters::named(&counters::total([counters]))
            .into_iter()
            .collect()
    }

    #[test]
    fn loads_get_what_the_device_says_or_all_ones() {
        let (platform, _) = platform();
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
        let (platform, device) = platform();
        let counters = ExitCounters::default();
        for exit in [
            VcpuExit::IoOut(0x40, &[1]),
            VcpuExit::MmioWrite(0x1000_0008, &[2, 3]),
            VcpuExit::MmioWrite(0x2000_0000, &[4]),
        ] {
            assert_eq!(handle(exit, &platform, &counters), Outcome::Continue);
        }
        assert_eq!(*device.0.lock(), [1, 2, 3]);
        assert_eq!(keys(&counters)[2], ("mmio:unclaimed:stray".to_owned(), 1));
    }

    #[test]
    fn what_a_device_asks_for_is_counted_and_passed_on() {
        let (platform, _) = platform();
        let counters = ExitCounters::default();
        let exit = VcpuExit::IoOut(0x40, &[0xff, 3]);
        assert_eq!(handle(exit, &platform, &counters), Outcome::End(3));
        let exit = VcpuExit::MmioWrite(0x1000_0000, &[0xfe]);
        assert_eq!(handle(exit, &platform, &counters), Outcome::Park);
        let counted = [
            ("io:device:only".to_owned(), 1),
            ("mmio:device:only".to_owned(), 1),
        ];
        assert_eq!(keys(&counters), counted);
    }

    #[test]
    fn what_a_guest_cannot_survive_is_named() {
        let (platform, _) = platform();
        let counters = ExitCounters::default();
        let crash = |exit| match handle(exit, &platform, &counters) {
            Outcome::Crash(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(crash(VcpuExit::FailEntry(5, 0)).ends_with("(hardware reason 0x5)"));
        assert!(crash(VcpuExit::Nmi).ends_with("unexpected reason: Nmi"));
        assert_eq!(
            handle(VcpuExit::Shutdown, &platform, &counters),
            Outcome::TripleFault
        );
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
