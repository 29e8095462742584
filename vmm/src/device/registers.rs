//! BAR 0: the control registers, by [`causeway_protocol::registers`].

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use causeway_mediator::host::Host;
use causeway_protocol::message::Status;
use causeway_protocol::registers::{
    CONTROL_BYTES_MAX, Direction, MAGIC, RESET_KEY, Register, doorbells,
};
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};

use super::{Control, GuestHost};
use crate::bus::{BusDevice, Refusal, Response, StrayCounters};

/// Alignment of the control area and of batch lengths, in bytes.
const CONTROL_ALIGNMENT: u64 = 8;

/// The registers of one function.
///
/// There is one control base and one batch status for all virtual CPUs. A doorbell takes the base as it is at that
/// moment and then executes its batch on a copy with no lock held; so a guest that sends batches from several virtual
/// CPUs keeps setting the base and ringing together, and reads the outcome from its messages, each of which has a
/// status of its own.
pub struct Registers {
    host: Arc<GuestHost>,
    session: Arc<dyn Control>,
    features: u64,
    strays: Arc<StrayCounters>,
    control_base: Mutex<u64>,
    batch_status: AtomicU32,
}

impl Registers {
    /// Registers in front of `session`. `features` is a bit set of [`causeway_protocol::registers::features`].
    pub fn new(
        host: Arc<GuestHost>,
        session: Arc<dyn Control>,
        features: u64,
        strays: Arc<StrayCounters>,
    ) -> Self {
        Self {
            host,
            session,
            features,
            strays,
            control_base: Mutex::new(0),
            batch_status: AtomicU32::new(Status::Ok as u32),
        }
    }

    fn load(&self, register: Register) -> u32 {
        match register {
            Register::Magic => MAGIC,
            Register::Version => u32::from(VERSION_MAJOR) << 16 | u32::from(VERSION_MINOR),
            Register::FeaturesLow => low(self.features),
            Register::FeaturesHigh => high(self.features),
            Register::Status => self.session.status_bits(),
            Register::BatchStatus => self.batch_status.load(Ordering::Acquire),
            Register::Reset | Register::ControlDoorbell => 0,
            Register::ControlBaseLow => low(self.base()),
            Register::ControlBaseHigh => high(self.base()),
            Register::ApertureLow => low(self.host.aperture().bytes()),
            Register::ApertureHigh => high(self.host.aperture().bytes()),
            Register::DoorbellCount => doorbells::COUNT,
            Register::StrayCount => u32::try_from(self.strays.total()).unwrap_or(u32::MAX),
        }
    }

    fn store(&self, register: Register, value: u32) {
        match register {
            Register::Reset if value == RESET_KEY => self.session.reset(),
            Register::ControlBaseLow => {
                self.set_base(|base| base & !u64::from(u32::MAX) | u64::from(value));
            }
            Register::ControlBaseHigh => {
                self.set_base(|base| base & u64::from(u32::MAX) | u64::from(value) << 32);
            }
            Register::ControlDoorbell => {
                let status = self.execute(self.base(), value);
                self.batch_status.store(status as u32, Ordering::Release);
            }
            _ => {}
        }
    }

    /// Takes a batch from guest RAM, has it executed, and puts the replies in its place.
    fn execute(&self, base: u64, bytes: u32) -> Status {
        if bytes == 0
            || bytes > CONTROL_BYTES_MAX
            || !u64::from(bytes).is_multiple_of(CONTROL_ALIGNMENT)
        {
            return Status::BadLength;
        }
        if !base.is_multiple_of(CONTROL_ALIGNMENT) {
            return Status::BadAlignment;
        }
        let mut batch = vec![0; bytes as usize];
        if self.host.read_ram(base, &mut batch).is_err() {
            return Status::BadRange;
        }
        let status = self.session.execute(&mut batch);
        // A batch that was not taken is as it was: nothing to write, and the guest's own writes since then stay.
        if status == Status::Ok && self.host.write_ram(base, &batch).is_err() {
            return Status::BadRange;
        }
        status
    }

    fn base(&self) -> u64 {
        *self
            .control_base
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn set_base(&self, change: impl FnOnce(u64) -> u64) {
        let mut base = self
            .control_base
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *base = change(*base);
    }
}

impl BusDevice for Registers {
    fn name(&self) -> &'static str {
        "registers"
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        match (find(offset, into.len()), <&mut [u8; 4]>::try_from(into)) {
            (Ok(register), Ok(word)) => {
                *word = self.load(register).to_le_bytes();
                Response::ok(register.name())
            }
            (Err(refusal), _) => Response::refused(refusal),
            (_, Err(_)) => Response::refused(Refusal::BadSize),
        }
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        let register = match find(offset, from.len()) {
            Ok(register) => register,
            Err(refusal) => return Response::refused(refusal),
        };
        let Ok(word) = <[u8; 4]>::try_from(from) else {
            return Response::refused(Refusal::BadSize);
        };
        if register.direction() == Direction::ReadOnly {
            return Response::refused(Refusal::ReadOnly);
        }
        self.store(register, u32::from_le_bytes(word));
        Response::ok(register.name())
    }
}

/// The register that an access of `bytes` bytes at `offset` means.
fn find(offset: u64, bytes: usize) -> Result<Register, Refusal> {
    if bytes != 4 {
        return Err(Refusal::BadSize);
    }
    if !offset.is_multiple_of(4) {
        return Err(Refusal::Misaligned);
    }
    Register::at(offset).ok_or(Refusal::NoRegister)
}

const fn low(value: u64) -> u32 {
    value as u32
}

const fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

#[cfg(test)]
mod tests;
