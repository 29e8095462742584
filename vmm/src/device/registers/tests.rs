//! The registers over a made-up session and real RAM.

use std::sync::Barrier;
use std::time::Duration;

use super::*;
use crate::aperture::Aperture;
use crate::device::Doorbells;
use crate::hypervisor::fake::Fake;
use crate::memory::GuestRam;
use causeway_protocol::registers::{REGISTERS, status};

/// Adds one to every byte; refuses batches of 16 bytes; sleeps on those that begin with `SLEEPY`.
#[derive(Default)]
struct Session {
    batches: Mutex<Vec<usize>>,
    resets: AtomicU32,
    asleep: Option<(Barrier, Barrier)>,
}

const SLEEPY: u8 = 0x77;

impl Control for Session {
    fn execute(&self, batch: &mut [u8]) -> Status {
        if let (SLEEPY, Some((entered, leave))) = (batch[0], &self.asleep) {
            entered.wait();
            leave.wait();
        }
        self.batches.lock().unwrap().push(batch.len());
        batch.iter_mut().for_each(|b| *b = b.wrapping_add(1));
        if batch.len() == 16 {
            Status::BadOpcode
        } else {
            Status::Ok
        }
    }
    fn reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }
    fn status_bits(&self) -> u32 {
        status::READY
    }
}

const RAM_BYTES: u64 = 8 << 20;

fn registers(session: Arc<Session>) -> Registers {
    let fake = Arc::new(Fake::default());
    let aperture = Aperture::new(64 << 20, Arc::clone(&fake) as _).unwrap();
    let ram = GuestRam::new("test", RAM_BYTES, false).unwrap();
    let doorbells = Doorbells::new(fake);
    let host = GuestHost::new(Arc::new(aperture), Arc::new(doorbells), Arc::new(ram));
    Registers::new(Arc::new(host), session, 5 << 32 | 3, Arc::default())
}

fn get(registers: &Registers, register: Register) -> u32 {
    let mut word = [0; 4];
    let response = registers.read(register as u64, &mut word);
    assert_eq!(response, Response::ok(register.name()));
    u32::from_le_bytes(word)
}

fn set(registers: &Registers, register: Register, value: u32) -> Result<(), Refusal> {
    registers
        .write(register as u64, &value.to_le_bytes())
        .result
}

fn ring(registers: &Registers, base: u64, bytes: u32) -> Status {
    set(registers, Register::ControlBaseLow, base as u32).unwrap();
    set(registers, Register::ControlBaseHigh, (base >> 32) as u32).unwrap();
    set(registers, Register::ControlDoorbell, bytes).unwrap();
    Status::from_wire(get(registers, Register::BatchStatus)).unwrap()
}

#[test]
fn identity_reads_as_the_protocol_says() {
    let registers = registers(Arc::default());
    for (register, value) in [
        (Register::Magic, u32::from_le_bytes(*b"CWAY")),
        (Register::Version, (1 << 16) | 1),
        (Register::FeaturesLow, 3),
        (Register::FeaturesHigh, 5),
        (Register::Status, status::READY),
        (Register::BatchStatus, 0),
        (Register::Reset, 0),
        (Register::ControlDoorbell, 0),
        (Register::ApertureLow, 64 << 20),
        (Register::ApertureHigh, 0),
        (Register::DoorbellCount, 256),
        (Register::StrayCount, 0),
    ] {
        assert_eq!(get(&registers, register), value, "{}", register.name());
    }
}

#[test]
fn only_aligned_words_at_registers_are_taken() {
    let registers = registers(Arc::default());
    for (offset, bytes, refusal) in [
        (0, 1, Refusal::BadSize),
        (0, 2, Refusal::BadSize),
        (0, 8, Refusal::BadSize),
        (2, 4, Refusal::Misaligned),
        (0x1c, 4, Refusal::NoRegister),
        (BAR0_LAST, 4, Refusal::NoRegister),
    ] {
        let mut data = vec![0; bytes];
        assert_eq!(
            registers.read(offset, &mut data),
            Response::refused(refusal)
        );
        assert_eq!(registers.write(offset, &data), Response::refused(refusal));
    }
    for &register in REGISTERS {
        let wanted = match register.direction() {
            Direction::ReadOnly => Err(Refusal::ReadOnly),
            Direction::WriteOnly | Direction::ReadWrite => Ok(()),
        };
        assert_eq!(set(&registers, register, 0), wanted, "{}", register.name());
    }
}

const BAR0_LAST: u64 = causeway_protocol::registers::BAR0_BYTES - 4;

#[test]
fn a_batch_is_copied_out_executed_and_copied_back() {
    let session = Arc::new(Session::default());
    let registers = registers(Arc::clone(&session));
    let ram = registers.host.guest_ram();
    ram.write(0x2000, &[1; 24]).unwrap();
    assert_eq!(ring(&registers, 0x2000, 24), Status::Ok);
    let mut bytes = [0; 32];
    ram.read(0x2000, &mut bytes).unwrap();
    assert_eq!(bytes[..24], [2; 24]);
    assert_eq!(bytes[24..], [0; 8], "nothing behind the batch is touched");
    assert_eq!(get(&registers, Register::ControlBaseLow), 0x2000);
    assert_eq!(
        ring(&registers, RAM_BYTES - 65536, CONTROL_BYTES_MAX),
        Status::Ok
    );
    assert_eq!(*session.batches.lock().unwrap(), [24, 65536]);
}

#[test]
fn a_batch_that_is_not_taken_is_as_it_was() {
    let registers = registers(Arc::default());
    assert_eq!(ring(&registers, 0x2000, 16), Status::BadOpcode);
    let mut bytes = [9; 16];
    registers.host.guest_ram().read(0x2000, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 16]);
}

#[test]
fn impossible_batches_never_reach_the_session() {
    let session = Arc::new(Session::default());
    let registers = registers(Arc::clone(&session));
    for bytes in [0, 7, 12, CONTROL_BYTES_MAX + 8, u32::MAX] {
        assert_eq!(
            ring(&registers, 0x2000, bytes),
            Status::BadLength,
            "{bytes}"
        );
    }
    assert_eq!(ring(&registers, 0x2004, 8), Status::BadAlignment);
    for base in [RAM_BYTES, RAM_BYTES - 8, 1 << 40, u64::MAX - 7] {
        assert_eq!(ring(&registers, base, 24), Status::BadRange, "{base:#x}");
    }
    assert!(session.batches.lock().unwrap().is_empty());
}

#[test]
fn reset_wants_its_key() {
    let session = Arc::new(Session::default());
    let registers = registers(Arc::clone(&session));
    set(&registers, Register::Reset, 1).unwrap();
    assert_eq!(session.resets.load(Ordering::Relaxed), 0);
    set(&registers, Register::Reset, RESET_KEY).unwrap();
    assert_eq!(session.resets.load(Ordering::Relaxed), 1);
}

#[test]
fn a_sleeping_batch_blocks_neither_registers_nor_other_batches() {
    let session = Arc::new(Session {
        asleep: Some((Barrier::new(2), Barrier::new(2))),
        ..Session::default()
    });
    let registers = Arc::new(registers(Arc::clone(&session)));
    registers
        .host
        .guest_ram()
        .write(0x3000, &[SLEEPY; 8])
        .unwrap();
    let sleeper = {
        let registers = Arc::clone(&registers);
        std::thread::spawn(move || ring(&registers, 0x3000, 8))
    };
    let (entered, leave) = session.asleep.as_ref().unwrap();
    entered.wait();
    let (done, other) = std::sync::mpsc::channel();
    let prober = {
        let registers = Arc::clone(&registers);
        std::thread::spawn(move || {
            get(&registers, Register::Status);
            done.send(ring(&registers, 0x4000, 8)).unwrap();
        })
    };
    let other = other.recv_timeout(Duration::from_secs(20));
    leave.wait();
    assert_eq!(other, Ok(Status::Ok));
    prober.join().unwrap();
    assert_eq!(sleeper.join().unwrap(), Status::Ok);
}
