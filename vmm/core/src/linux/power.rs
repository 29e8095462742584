//! Turning the machine off and resetting it: ACPI's sleep and reset registers, and the keyboard
//! controller's reset.

use causeway_mediator::host::RamError;

use crate::bus::{BusDevice, Effect, PowerEvent, Refusal, Response};
use crate::memory::GuestRam;

/// First I/O port of ACPI's power registers: sleep control, sleep status and reset, of one byte
/// each.
pub(crate) const POWER_PORTS: u16 = 0x600;
/// Number of I/O ports of ACPI's power registers, from [`POWER_PORTS`] on.
pub(crate) const POWER_PORTS_BYTES: u64 = 3;
/// I/O port of ACPI's sleep control register (ACPI 6.5, 4.8.3.7), by which a guest turns its
/// machine off.
pub const SLEEP_CONTROL: u16 = POWER_PORTS;
/// I/O port of ACPI's sleep status register (ACPI 6.5, 4.8.3.7). It reads as zero: the machine
/// never sleeps.
pub const SLEEP_STATUS: u16 = POWER_PORTS + 1;
/// I/O port of ACPI's reset register (ACPI 6.5, 4.8.3.6), by which a guest resets its machine.
pub const RESET: u16 = POWER_PORTS + 2;
/// Value that a guest stores to port [`RESET`] to reset its machine.
pub const RESET_VALUE: u8 = 1;
/// Value of the sleep type in ACPI's sleep control register by which the guest turns its machine
/// off. The guest finds the value in the object `\_S5` of the DSDT.
pub const SLEEP_TYPE_OFF: u8 = 5;
/// Sleep control bit 5: sleep now.
const SLEEP_ENABLE: u8 = 1 << 5;
/// I/O command port of a PC's keyboard controller (8042), by which a guest can also reset its
/// machine.
pub(crate) const KEYBOARD_COMMAND: u16 = 0x64;
/// Keyboard controller command: pulse the reset line.
const KEYBOARD_RESET: u8 = 0xfe;

/// Guest-physical address from which a processor executes code after a reset, in real mode. A guest
/// that jumps there expects firmware that resets the machine.
pub const RESET_VECTOR: u64 = 0xf_fff0;

/// Writes code that resets the machine to [`RESET_VECTOR`], since this machine has no firmware that
/// would do so. A Linux kernel that finds hardware-reduced ACPI and no EFI jumps there to reset the
/// machine (arch/x86/kernel/reboot.c, `reboot_init` and `BOOT_BIOS`).
///
/// # Errors
/// [`RamError`] if [`RESET_VECTOR`] is not in guest RAM.
pub fn write_reset_vector(ram: &GuestRam) -> Result<(), RamError> {
    let [low, high] = RESET.to_le_bytes();
    // mov dx, RESET; mov al, RESET_VALUE; out dx, al; 1: hlt; jmp 1b
    let code = [0xba, low, high, 0xb0, RESET_VALUE, 0xee, 0xf4, 0xeb, 0xfd];
    ram.write(RESET_VECTOR, &code)
}

/// Returns what storing `data` to `port` does, with the register's name for counters.
fn power_event(port: u16, data: &[u8]) -> Option<(PowerEvent, &'static str)> {
    match (port, data) {
        (SLEEP_CONTROL, [value]) if *value == SLEEP_TYPE_OFF << 2 | SLEEP_ENABLE => {
            Some((PowerEvent::Off, "sleep_control"))
        }
        (RESET, [RESET_VALUE]) | (KEYBOARD_COMMAND, [KEYBOARD_RESET]) => {
            Some((PowerEvent::Reset, "reset"))
        }
        _ => None,
    }
}

/// Power registers from I/O port `first` on, as a device on the port bus. They read as zero:
/// nothing sleeps, and the machine has no keyboard.
#[derive(Debug)]
pub(crate) struct Power {
    pub first: u16,
}

impl BusDevice for Power {
    fn name(&self) -> &'static str {
        "power"
    }

    fn read(&self, _: u64, into: &mut [u8]) -> Response {
        if into.len() != 1 {
            return Response::refused(Refusal::BadSize);
        }
        Response::ok("status")
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        if from.len() != 1 {
            return Response::refused(Refusal::BadSize);
        }
        match power_event(self.first + offset as u16, from) {
            Some((event, register)) => Response::ok(register).with(Effect::Power(event)),
            None => Response::ok("control"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_value_at_the_right_port_ends_anything() {
        let event = |port, data: &[u8]| power_event(port, data).map(|(event, _)| event);
        assert_eq!(event(0x600, &[0x34]), Some(PowerEvent::Off));
        assert_eq!(event(0x602, &[1]), Some(PowerEvent::Reset));
        assert_eq!(event(0x64, &[0xfe]), Some(PowerEvent::Reset));
        for (port, data) in [
            (0x600, &[0x14][..]),
            (0x600, &[0x2c]),
            (0x600, &[0x34, 0]),
            (0x601, &[0x34]),
            (0x602, &[0]),
            (0x64, &[0xd1]),
            (0x60, &[0xfe]),
        ] {
            assert_eq!(event(port, data), None, "{port:#x} {data:x?}");
        }
    }
}
