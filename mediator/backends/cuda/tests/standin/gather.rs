//! Launches that wait for each other go to the driver together: order, parameters and faults must
//! be as if they did not.

use std::sync::Arc;

use causeway_mediator::backend::{Kernel, Launch, LaunchShape, MemoryWork, Module, Work};
use causeway_protocol::message::{MemoryKind, Status};

use crate::support::{Buffer, GRANULE, Rig, host, is_child};

/// Kernels whose order shows: one word becomes `word * 6364136223846793005 + value`, or is turned
/// left by `value` bits.
const STEPS: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry mix(.param .u64 to, .param .u64 value)
{
    .reg .u64 %to, %value, %word;
    ld.param.u64 %to, [to];
    ld.param.u64 %value, [value];
    ld.global.u64 %word, [%to];
    mad.lo.u64 %word, %word, 6364136223846793005, %value;
    st.global.u64 [%to], %word;
    ret;
}
.visible .entry turn(.param .u64 to, .param .u32 value)
{
    .reg .u64 %to, %word, %high, %low;
    .reg .u32 %value, %rest;
    ld.param.u64 %to, [to];
    ld.param.u32 %value, [value];
    ld.global.u64 %word, [%to];
    sub.u32 %rest, 64, %value;
    shl.b64 %high, %word, %value;
    shr.u64 %low, %word, %rest;
    or.b64 %word, %high, %low;
    st.global.u64 [%to], %word;
    ret;
}
";
const SHAPE: LaunchShape = LaunchShape {
    grid: [1; 3],
    block: [1; 3],
    shared_bytes: 0,
};

/// The kernels, and the word they work on.
struct Steps {
    mix: Arc<dyn Kernel>,
    turn: Arc<dyn Kernel>,
    word: Buffer,
}

impl Steps {
    fn new(rig: &Rig) -> Self {
        let module: Arc<dyn Module> = rig.load(STEPS.as_bytes()).unwrap();
        Self {
            mix: module.kernel("mix").unwrap(),
            turn: module.kernel("turn").unwrap(),
            word: rig.buffer(MemoryKind::Host, GRANULE),
        }
    }

    /// Launch number `step` of a sequence, and what it makes of the word.
    fn launch(&self, rig: &mut Rig, step: u64, word: u64) -> u64 {
        let mut parameters = self.word.va.to_le_bytes().to_vec();
        let value = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let (kernel, next) = if step.is_multiple_of(3) {
            let bits = 1 + (value % 63) as u32;
            parameters.extend(bits.to_le_bytes());
            (&self.turn, word.rotate_left(bits))
        } else {
            // Most are the same as the time before: then nothing is exchanged.
            let value = value & 1;
            parameters.extend(value.to_le_bytes());
            (
                &self.mix,
                word.wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(value),
            )
        };
        let work = Work::Launch(Launch::new(kernel, SHAPE, &parameters).unwrap());
        rig.queue.submit(work).unwrap();
        next
    }
}

#[test]
fn many_launches_have_the_effect_of_each_in_turn() {
    if !is_child("gather::many_launches_have_the_effect_of_each_in_turn", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let steps = Steps::new(&rig);
    let mut word = 1;
    host(&steps.word.memory)
        .0
        .store_u64(0, word, std::sync::atomic::Ordering::SeqCst)
        .unwrap();
    let mut step = 0;
    // Bursts that fill no graph, one, and several, with and without rests; other work between.
    for burst in [1, 2, 31, 32, 33, 64, 100, 7, 320, 5] {
        for _ in 0..burst {
            word = steps.launch(&mut rig, step, word);
            step += 1;
        }
        let done = Work::Memory(MemoryWork::Release {
            address: steps.word.va + 8,
            value: step,
        });
        rig.queue.submit(done).unwrap();
        if burst % 2 == 0 {
            rig.queue.finish().unwrap();
            assert_eq!(
                host(&steps.word.memory).word(0),
                word,
                "after {step} launches"
            );
            assert_eq!(host(&steps.word.memory).word(8), step);
        }
    }
    rig.queue.finish().unwrap();
    assert_eq!(host(&steps.word.memory).word(0), word);
}

#[test]
fn kernels_of_a_module_that_went_are_not_taken_for_those_of_the_next() {
    if !is_child(
        "gather::kernels_of_a_module_that_went_are_not_taken_for_those_of_the_next",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let word = rig.buffer(MemoryKind::Host, GRANULE);
    for round in 1..20_u64 {
        // The driver may give a new kernel the handle of an old one.
        let text = STEPS.replace("6364136223846793005", &(2 * round + 1).to_string());
        let module = rig.load(text.as_bytes()).unwrap();
        let mix = module.kernel("mix").unwrap();
        host(&word.memory)
            .0
            .store_u64(0, 1, std::sync::atomic::Ordering::SeqCst)
            .unwrap();
        let mut parameters = word.va.to_le_bytes().to_vec();
        parameters.extend(0_u64.to_le_bytes());
        for _ in 0..96 {
            let work = Work::Launch(Launch::new(&mix, SHAPE, &parameters).unwrap());
            rig.queue.submit(work).unwrap();
        }
        rig.queue.flush().unwrap();
        drop((mix, module));
        rig.queue.finish().unwrap();
        assert_eq!(host(&word.memory).word(0), (2 * round + 1).wrapping_pow(96));
    }
}

#[test]
fn what_was_launched_before_a_wrong_launch_is_done() {
    if !is_child(
        "gather::what_was_launched_before_a_wrong_launch_is_done",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let steps = Steps::new(&rig);
    let mut word = 0;
    for step in 0..50 {
        word = steps.launch(&mut rig, step, word);
    }
    let wrong = Launch::new(&steps.mix, SHAPE, &[0; 3]);
    assert_eq!(wrong.unwrap_err().status, Status::BadParameters);
    rig.queue.flush().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while host(&steps.word.memory).word(0) != word {
        assert!(std::time::Instant::now() < deadline, "never done");
        std::thread::yield_now();
    }
}

#[test]
fn a_fault_among_many_launches_is_the_queues_end() {
    if !is_child("gather::a_fault_among_many_launches_is_the_queues_end", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let steps = Steps::new(&rig);
    let mut wild = 0xdead_0000_0000_u64.to_le_bytes().to_vec();
    wild.extend(0_u64.to_le_bytes());
    let mut outcome = Ok(());
    for launch in 0..200 {
        let mut good = steps.word.va.to_le_bytes().to_vec();
        good.extend(0_u64.to_le_bytes());
        let parameters = if launch == 40 { &wild } else { &good };
        outcome = rig.queue.submit(Work::Launch(
            Launch::new(&steps.mix, SHAPE, parameters).unwrap(),
        ));
        if outcome.is_err() {
            break;
        }
    }
    let fault = outcome.and_then(|()| rig.queue.finish()).unwrap_err();
    assert_eq!(fault.status, Status::MemoryFault, "{fault}");
    assert!(fault.text.contains("mix"), "{fault}");
}
