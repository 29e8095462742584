//! The registers over a made-up session and real RAM.

use std::sync::Barrier;
use std::time::Duration;

use super::*;
use crate::aperture::Aperture;
use crate::device::Doorbells;
use crate::hypervisor::fake::Fake;
use crate::memory::GuestRam;
use causeway_mediator::host::Host;
use causeway_mediator_testing::FakeSession;
use causeway_memory::{PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use causeway_protocol::registers::{
    CONTROL_BYTES_MAX, CONTROL_IN_WINDOW, CONTROL_WINDOW_BYTES, NO_CONTROL_WINDOW, REGISTERS,
    status,
};

const SLEEPY: u8 = 0x77;

/// Returns a session that adds one to every byte, and refuses batches of 16 bytes.
fn session() -> Arc<FakeSession> {
    FakeSession::new(increment)
}

fn increment(batch: &mut [u8]) -> Status {
    batch.iter_mut().for_each(|b| *b = b.wrapping_add(1));
    if batch.len() == 16 {
        Status::BadOpcode
    } else {
        Status::Ok
    }
}

const RAM_BYTES: u64 = 8 << 20;

fn registers(session: Arc<FakeSession>) -> Registers {
    let fake = Arc::new(Fake::default());
    let aperture = Aperture::new(64 << 20, Arc::clone(&fake) as _).unwrap();
    let ram = GuestRam::new("test", RAM_BYTES, false).unwrap();
    let doorbells = Doorbells::new(fake);
    let host = GuestHost::new(Arc::new(aperture), Arc::new(doorbells), Arc::new(ram));
    Registers::new(Arc::new(host), session, 5 << 32 | 3, Arc::default())
}

fn get(registers: &Registers, register: Register) -> u32 {
    get_of(registers, 0, register)
}

fn get_of(registers: &Registers, client: u64, register: Register) -> u32 {
    let mut word = [0; 4];
    let response = registers.read(client * PAGE_BYTES + register as u64, &mut word);
    assert_eq!(response, Response::ok(register.name()));
    u32::from_le_bytes(word)
}

fn set(registers: &Registers, register: Register, value: u32) -> Result<(), Refusal> {
    set_of(registers, 0, register, value)
}

fn set_of(
    registers: &Registers,
    client: u64,
    register: Register,
    value: u32,
) -> Result<(), Refusal> {
    registers
        .write(client * PAGE_BYTES + register as u64, &value.to_le_bytes())
        .result
}

fn ring(registers: &Registers, base: u64, bytes: u32) -> Status {
    ring_of(registers, 0, base, bytes)
}

fn ring_of(registers: &Registers, client: u64, base: u64, bytes: u32) -> Status {
    set_of(registers, client, Register::ControlBaseLow, base as u32).unwrap();
    set_of(
        registers,
        client,
        Register::ControlBaseHigh,
        (base >> 32) as u32,
    )
    .unwrap();
    set_of(registers, client, Register::ControlDoorbell, bytes).unwrap();
    Status::from_wire(get_of(registers, client, Register::BatchStatus)).unwrap()
}

fn window_of(registers: &Registers, client: u64) -> u64 {
    u64::from(get_of(registers, client, Register::ControlWindowLow))
        | u64::from(get_of(registers, client, Register::ControlWindowHigh)) << 32
}

#[test]
fn identity_reads_as_the_protocol_says() {
    let registers = registers(session());
    for (register, value) in [
        (Register::Magic, u32::from_le_bytes(*b"CWAY")),
        (Register::Version, (1 << 16) | 5),
        (Register::FeaturesLow, 3 | features::CONTROL_WINDOW as u32),
        (Register::FeaturesHigh, 5),
        (Register::Status, status::READY),
        (Register::BatchStatus, 0),
        (Register::Reset, 0),
        (Register::ControlDoorbell, 0),
        (Register::ApertureLow, 64 << 20),
        (Register::ApertureHigh, 0),
        (Register::DoorbellCount, 256),
        (Register::StrayCount, 0),
        (Register::InterruptStatus, 0),
        (Register::ClientCount, 64),
    ] {
        assert_eq!(get(&registers, register), value, "{}", register.name());
    }
}

#[test]
fn only_aligned_words_at_registers_are_taken() {
    let registers = registers(session());
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
    let session = session();
    let registers = registers(Arc::clone(&session));
    let ram = &registers.host.ram;
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
    assert_eq!(
        session.batches(),
        [(Client::FIRST, 24), (Client::FIRST, 65536)]
    );
}

#[test]
fn a_batch_that_is_not_taken_is_as_it_was() {
    let registers = registers(session());
    assert_eq!(ring(&registers, 0x2000, 16), Status::BadOpcode);
    let mut bytes = [9; 16];
    registers.host.ram.read(0x2000, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 16]);
}

#[test]
fn impossible_batches_never_reach_the_session() {
    let session = session();
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
    assert!(session.batches().is_empty());
}

#[test]
fn reset_wants_its_key() {
    let session = session();
    let registers = registers(Arc::clone(&session));
    set(&registers, Register::Reset, 1).unwrap();
    assert_eq!(session.resets(), 0);
    set(&registers, Register::Reset, RESET_KEY).unwrap();
    assert_eq!(session.resets(), 1);
}

#[test]
fn a_sleeping_batch_blocks_neither_registers_nor_other_batches() {
    let asleep = Arc::new((Barrier::new(2), Barrier::new(2)));
    let sleep = Arc::clone(&asleep);
    let registers = Arc::new(registers(FakeSession::new(move |batch| {
        if batch[0] == SLEEPY {
            sleep.0.wait();
            sleep.1.wait();
        }
        increment(batch)
    })));
    registers.host.ram.write(0x3000, &[SLEEPY; 8]).unwrap();
    let sleeper = {
        let registers = Arc::clone(&registers);
        std::thread::spawn(move || ring(&registers, 0x3000, 8))
    };
    let (entered, leave) = &*asleep;
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

#[test]
fn each_page_has_registers_of_its_own() {
    let session = session();
    let registers = registers(Arc::clone(&session));
    for (client, base) in [(0, 0x2000), (1, 0x3000), (63, 0x4000)] {
        assert_eq!(ring_of(&registers, client, base, 24), Status::Ok);
    }
    assert_eq!(ring_of(&registers, 1, 0x3000, 16), Status::BadOpcode);
    assert_eq!(get_of(&registers, 0, Register::BatchStatus), 0);
    assert_eq!(get_of(&registers, 63, Register::ControlBaseLow), 0x4000);
    let clients: Vec<u32> = session.batches().iter().map(|b| b.0.number()).collect();
    assert_eq!(clients, [0, 1, 63, 1]);
    let mut word = [0; 4];
    let behind = registers.read(64 * PAGE_BYTES, &mut word);
    assert_eq!(behind, Response::refused(Refusal::NoRegister));
}

#[test]
fn a_page_says_whether_its_client_owns_something_and_resets_it_alone() {
    let session = session();
    let registers = registers(Arc::clone(&session));
    session.set_owners(0b101);
    let owning = status::READY | status::OWNS;
    assert_eq!(get_of(&registers, 2, Register::Status), owning);
    assert_eq!(get_of(&registers, 1, Register::Status), status::READY);
    assert_eq!(get(&registers, Register::Status), status::READY, "as ever");
    window_of(&registers, 1);
    assert_eq!(get_of(&registers, 1, Register::Status), owning);
    set_of(&registers, 1, Register::Reset, RESET_KEY - 1).unwrap();
    assert!(session.client_resets().is_empty());
    assert_eq!(ring_of(&registers, 1, 0x3000, 16), Status::BadOpcode);
    set_of(&registers, 1, Register::Reset, RESET_KEY).unwrap();
    assert_eq!(session.client_resets(), [Client::new(1).unwrap()]);
    assert_eq!(session.resets(), 0);
    assert_eq!(get_of(&registers, 1, Register::BatchStatus), 0);
    assert_eq!(get_of(&registers, 1, Register::ControlBaseLow), u32::MAX);
    assert_eq!(get_of(&registers, 1, Register::Status), status::READY);
}

#[test]
fn a_control_window_takes_batches_until_its_client_is_reset() {
    let registers = registers(session());
    let aperture = Arc::clone(&registers.host.aperture);
    assert_eq!(
        ring_of(&registers, 5, CONTROL_IN_WINDOW, 24),
        Status::BadAlignment,
        "there is none yet"
    );
    let offset = window_of(&registers, 5);
    assert_eq!(window_of(&registers, 5), offset);
    let other = window_of(&registers, 6);
    assert_ne!(other, offset);
    assert_eq!(aperture.usage().placements, 2);
    let window = |offset| {
        let leased = aperture.object(offset, CONTROL_WINDOW_BYTES).unwrap();
        let memory = leased.memory;
        memory
            .map(leased.offset, CONTROL_WINDOW_BYTES, leased.access)
            .unwrap()
    };
    let seen = window(offset);
    seen.write(0, &[1; 32]).unwrap();
    assert_eq!(ring_of(&registers, 5, CONTROL_IN_WINDOW, 24), Status::Ok);
    let mut bytes = [0; 32];
    seen.read(0, &mut bytes).unwrap();
    assert_eq!(
        (bytes[..24].to_vec(), &bytes[24..]),
        (vec![2; 24], &[1; 8][..])
    );
    let all = CONTROL_WINDOW_BYTES as u32;
    assert_eq!(ring_of(&registers, 5, CONTROL_IN_WINDOW, all), Status::Ok);
    set_of(&registers, 5, Register::Reset, RESET_KEY).unwrap();
    assert_eq!(aperture.usage().placements, 1);
    assert_eq!(get_of(&registers, 5, Register::ControlBaseHigh), u32::MAX);
    // What the next client there finds was not written by the one before.
    window(window_of(&registers, 5))
        .read(0, &mut bytes)
        .unwrap();
    assert_eq!(bytes, [0; 32]);
    set(&registers, Register::Reset, RESET_KEY).unwrap();
    assert_eq!(aperture.usage().placements, 0, "the reset of all");
}

#[test]
fn an_aperture_without_room_has_no_control_window() {
    let registers = registers(session());
    let aperture = &registers.host.aperture;
    let memory = Arc::new(SharedMemory::new("test", 64 << 20, PageSize::Small).unwrap());
    let all = aperture
        .place(&memory.into(), 0, 64 << 20, Access::Read)
        .unwrap();
    assert_eq!(window_of(&registers, 1), NO_CONTROL_WINDOW);
    aperture.remove(all).unwrap();
    assert_ne!(window_of(&registers, 1), NO_CONTROL_WINDOW);
}

#[test]
fn an_interrupt_is_pending_until_it_is_acknowledged() {
    let registers = registers(session());
    let pending = |client| get_of(&registers, client, Register::InterruptStatus);
    registers.host.raise(Client::new(7).unwrap());
    assert_eq!((pending(6), pending(7)), (0, 1));
    set_of(&registers, 7, Register::InterruptStatus, 2).unwrap();
    set_of(&registers, 6, Register::InterruptStatus, 1).unwrap();
    assert_eq!(pending(7), 1);
    set_of(&registers, 7, Register::InterruptStatus, 1).unwrap();
    assert_eq!(pending(7), 0);
    registers.host.raise(Client::new(7).unwrap());
    set_of(&registers, 7, Register::Reset, RESET_KEY).unwrap();
    assert_eq!(pending(7), 0);
    registers.host.raise(Client::new(9).unwrap());
    set(&registers, Register::Reset, RESET_KEY).unwrap();
    assert_eq!(pending(9), 0);
}
