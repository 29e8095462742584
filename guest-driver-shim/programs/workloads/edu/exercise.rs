//! Tests of the device, in phases of the data path: none of them may cause an exit.

use causeway_shim::Window;
use causeway_testdev_records::PhasePath;

use super::{Edu, IDENTITY, Registers, TRANSFER_BYTES};
use crate::platform::{Phase, Totals};
use crate::{Required, pattern};

/// Number of pairs of a store and a load in [`accesses`].
pub const PASSES: u64 = 500_000;
/// Number of transfers in each direction in [`dma`].
const TRANSFERS: u64 = 4;
/// Largest n whose factorial fits into 32 bits.
const FACTORIAL_MAX: u32 = 12;

/// A page of memory for the device's DMA.
#[derive(Clone, Copy, Debug)]
pub struct DmaMemory {
    /// The first [`TRANSFER_BYTES`] bytes of the page, for the CPU.
    pub window: Window,
    /// Guest-physical address of the page, for the device.
    pub address: u32,
}

fn phase(name: &str, totals: Totals, work: impl FnOnce()) {
    let phase = Phase::begin(PhasePath::Data, name);
    work();
    phase.end(totals);
}

/// Checks the device's identity and liveness registers. The first access maps the registers' page,
/// so that no phase has the page fault.
///
/// # Panics
/// If a register has a wrong value.
pub fn introduce<R: Registers>(edu: &Edu<R>) {
    let identity = edu.identity();
    assert!(identity == IDENTITY, "its identity is {identity:#x}");
    let answer = edu.liveness(0x1234_5678);
    assert!(answer == !0x1234_5678, "it answers {answer:#x}");
}

/// Makes the device compute factorials.
///
/// # Panics
/// If a result is wrong.
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

/// Makes the device copy patterns from one page to its own memory and from there to another page.
///
/// # Panics
/// If a copy is wrong, or if it changes bytes beside the range.
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
    // A copy to the middle of the page must not change the rest.
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

/// Does 10^6 accesses to registers.
///
/// # Panics
/// If a register reads as a wrong value.
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

/// Makes the device raise an interrupt, waits for it with `wait`, and acknowledges it.
///
/// # Panics
/// If the interrupt does not arrive, or stays after it was acknowledged.
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
