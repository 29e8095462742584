//! Modules with random damage: each is refused or runs, and nothing else happens. The number of
//! modules is taken from `CAUSEWAY_FUZZ_INPUTS`, if set.

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_kernels::{CASES, PARAMETER_BYTES_MAX};
use causeway_protocol::Access;
use support::Device;

/// A sequence of numbers that looks random and is always the same (Marsaglia's xorshift64).
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Exchanges, drops and repeats words and numbers of a module.
fn damage(text: &str, sequence: &mut Sequence) -> String {
    let mut words: Vec<&str> = text
        .split_inclusive([' ', ',', '.', ';', '\t', '\n'])
        .collect();
    for _ in 0..1 + sequence.below(4) {
        let (a, b) = (sequence.below(words.len()), sequence.below(words.len()));
        match sequence.below(4) {
            0 => words.swap(a, b),
            1 => words[a] = words[b],
            2 => drop(words.remove(a)),
            _ => words[a] = ["0", "-1 ", "4294967295 ", "64 ", "pred ", "b128 "][b % 6],
        }
    }
    words.concat()
}

fn inputs(default: usize) -> usize {
    let given = std::env::var("CAUSEWAY_FUZZ_INPUTS").ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn damaged_modules_are_refused_or_run() {
    let mut sequence = Sequence(0x9e37_79b9_7f4a_7c15);
    let mut ran = 0;
    for round in 0..inputs(400) {
        let case = &CASES[round % CASES.len()];
        let text = damage(case.ptx, &mut sequence);
        let mut device = Device::new(1);
        let Ok(module) = device.load(&text) else {
            continue;
        };
        let buffers: Vec<_> = case
            .buffers
            .iter()
            .map(|b| device.buffer(b.bytes as u64, Access::ReadWrite))
            .collect();
        let addresses: Vec<u64> = buffers.iter().map(|b| b.va).collect();
        let mut parameters = [0; PARAMETER_BYTES_MAX];
        let count = case.parameters(&addresses, &mut parameters);
        let Some(name) = module.kernels().into_iter().find(|name| name == case.name) else {
            continue;
        };
        let stop = std::sync::Arc::clone(&device.stop);
        let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let watch = std::thread::spawn({
            let ended = std::sync::Arc::clone(&ended);
            move || {
                for _ in 0..200 {
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                stop.store(true, Ordering::Relaxed);
            }
        });
        let shape = ([2, 1, 1], case.block, case.dynamic_shared);
        ran += u32::from(
            device
                .launch(&module, &name, shape, &parameters[..count])
                .is_ok(),
        );
        ended.store(true, Ordering::Relaxed);
        watch.join().unwrap();
    }
    assert!(ran > 0, "damage was so great that nothing ran at all");
}
