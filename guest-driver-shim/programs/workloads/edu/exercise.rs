//! What is done with the device, in phases of the data path: none of it may leave the guest.

use causeway_shim::Window;
use causeway_testdev_records::PhasePath;

use super::{Edu, IDENTITY, Registers, TRANSFER_BYTES};
use crate::platform::{Phase, Totals};
use crate::{Required, pattern};

/// Pairs of a store and a load of [`accesses`].
pub const PASSES: u64 = 500_000;
/// Transfers in each direction of [`dma`].
const TRANSFERS: u64 = 4;
/// Largest n whose factorial fits into 32 bits.
const FACTORIAL_MAX: u32 = 12;

/// A page of memory that the device reaches.
#[derive(Clone, Copy, Debug)]
pub struct DmaMemory {
    /// For the CPU: [`TRANSFER_BYTES`] bytes of it.
    pub window: Window,
    /// For the device: guest-physical.
    pub address: u32,
}

fn phase(name: &str, totals: Totals, work: impl FnOnce()) {
    let phase = Phase::begin(PhasePath::Data, name);
    work();
    phase.end(totals);
}

/// Whether it is the device, and alive. The first access faults its page in, so that no phase does.
///
/// # Panics
/// If it is not.
pub fn introduce<R: Registers>(edu: &Edu<R>) {
    let identity = edu.identity();
    assert!(identity == IDENTITY, "its identity is {identity:#x}");
    let answer = edu.liveness(0x1234_5678);
    assert!(answer == !0x1234_5678, "it answers {answer:#x}");
}

/// Factorials, by registers.
///
/// # Panics
/// If one is wrong.
pub fn factorials<R: Registers>(edu: &Edu<R>) {
    let totals = Totals {
        operations: FACTORIAL_MAX.into(),
        ..Totals::default()
    };
    phase("factorials", totals, || {
        for n in 1..=FACTORIAL_MAX {
            let want: u32 = (1..=n).product();
            let got = edu.factorial(n);
            assert!(got == want, "{n}! is {want}, and not {got}");
        }
    });
}

/// Patterns, from memory into the device and from there to other memory.
///
/// # Panics
/// If not all of one arrives, or more than that.
pub fn dma<R: Registers>(edu: &Edu<R>, source: &DmaMemory, target: &DmaMemory) {
    let bytes = TRANSFER_BYTES as u64;
    let totals = Totals {
        operations: 2 * TRANSFERS,
        bytes: 2 * TRANSFERS * bytes,
        doorbells: 0,
    };
    pattern::write(&target.window, 0);
    phase("DMA to the device and back", totals, || {
        for round in 1..=TRANSFERS as u32 {
            pattern::write(&source.window, round);
            edu.read_memory(source.address, bytes as u32);
            edu.write_memory(target.address, bytes as u32);
            pattern::verify(&target.window, round);
        }
    });
    // A part, in the middle: what is beside it stays.
    let word = TRANSFER_BYTES as u32 / 8;
    pattern::write(&source.window, !0);
    edu.read_memory(source.address + 4 * word, 4);
    edu.write_memory(target.address + 4 * word, 4);
    let at = |index: u32| {
        target
            .window
            .load_u32(4 * index as usize)
            .required("a word")
    };
    let want = |index, mask| pattern::word(index) ^ mask;
    let mask = TRANSFERS as u32;
    for (index, mask) in [(word - 1, mask), (word, !0), (word + 1, mask)] {
        assert!(
            at(index) == want(index, mask),
            "word {index} is {:#x}",
            at(index)
        );
    }
}

/// 10^6 accesses to registers.
///
/// # Panics
/// If one is answered wrongly.
pub fn accesses<R: Registers>(edu: &Edu<R>) {
    let totals = Totals {
        operations: 2 * PASSES,
        bytes: 8 * PASSES,
        doorbells: 0,
    };
    phase("10^6 accesses to registers", totals, || {
        for value in 0..PASSES as u32 {
            let answer = edu.liveness(value);
            assert!(answer == !value, "{value:#x} is answered by {answer:#x}");
        }
    });
}

/// An interrupt, from the device's register to where `wait` sees it, and acknowledged.
///
/// # Panics
/// If it does not arrive, or does not end.
pub fn interrupt<R: Registers>(
    edu: &Edu<R>,
    path: PhasePath,
    value: u32,
    wait: impl FnOnce() -> bool,
) {
    let phase = Phase::begin(path, "an interrupt");
    edu.raise(value);
    let seen = wait();
    edu.acknowledge(value);
    phase.end(Totals {
        operations: 1,
        ..Totals::default()
    });
    assert!(seen, "the interrupt has not arrived");
    let status = edu.interrupt_status();
    assert!(
        status == 0,
        "the interrupt is acknowledged, but its status is {status:#x}"
    );
}
