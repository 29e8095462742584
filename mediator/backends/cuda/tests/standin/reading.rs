//! Fences in memory that the CPU does not reach, while the GPU does not come to copy them.

use std::time::Duration;

use causeway_cuda::Config;
use causeway_mediator::backend::Backend;
use causeway_protocol::message::MemoryKind;

use crate::support::{Buffer, GRANULE, Rig, has_hung, is_child};

/// Longer than a back end waits for work that may never end, and not much longer.
const SLOW_WORDS: &[(&str, &str)] = &[("CAUSEWAY_STANDIN_HANG_WORD", "2")];

/// A rig with a fence that has a value.
fn with_fence(value: u32) -> (Rig, Buffer) {
    let mut rig = Rig::with(&Config::default());
    let fence = rig.buffer(MemoryKind::Device, GRANULE);
    set(&mut rig, &fence, value);
    (rig, fence)
}

fn set(rig: &mut Rig, fence: &Buffer, value: u32) {
    rig.fill(fence.va, 4, value).unwrap();
    rig.queue.finish().unwrap();
}

/// Waits until the GPU has begun to copy a word.
fn await_copy() {
    while !has_hung() {
        std::thread::yield_now();
    }
}

#[test]
fn a_look_at_a_fence_gives_up_and_the_next_one_sees_what_is_there_then() {
    const TEST: &str =
        "reading::a_look_at_a_fence_gives_up_and_the_next_one_sees_what_is_there_then";
    if !is_child(TEST, SLOW_WORDS) {
        return;
    }
    let (mut rig, fence) = with_fence(5);
    // A look that waits for the GPU finds the value.
    assert_eq!(rig.space.fetch_u64(fence.va, &|| true), None);
    await_copy();
    set(&mut rig, &fence, 7);
    std::thread::scope(|scope| {
        let patient = scope.spawn(|| rig.space.fetch_u64(fence.va, &|| false));
        await_copy();
        // Nor does one wait for another that waits.
        assert_eq!(rig.space.fetch_u64(fence.va, &|| true), None);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!patient.is_finished());
        assert_eq!(patient.join().unwrap(), Some(7));
    });
    assert!(!rig.cuda.is_poisoned());
}

#[test]
fn the_end_of_a_space_does_not_wait_for_a_copy_that_does_not_end() {
    const TEST: &str = "reading::the_end_of_a_space_does_not_wait_for_a_copy_that_does_not_end";
    if !is_child(TEST, SLOW_WORDS) {
        return;
    }
    let (rig, fence) = with_fence(5);
    assert_eq!(rig.space.fetch_u64(fence.va, &|| true), None);
    let Rig {
        cuda, space, queue, ..
    } = rig;
    drop((queue, space));
    assert!(cuda.is_poisoned(), "work is left behind");
}

/// What the GPU copies stays, and what a guest has unmapped is not given to the driver.
#[test]
fn a_module_whose_variable_is_being_read_stays_loaded() {
    const TEST: &str = "reading::a_module_whose_variable_is_being_read_stays_loaded";
    if !is_child(TEST, SLOW_WORDS) {
        return;
    }
    let (rig, fence) = with_fence(5);
    let text = ".version 7.0\n.target sm_70\n.address_size 64\n\
                .visible .global .u64 variable = 9;\n.visible .entry k() { ret; }\n";
    let module = rig.load(text.as_bytes()).unwrap();
    let va = module.variable("variable").unwrap().address;
    assert_eq!(rig.space.fetch_u64(va, &|| false), Some(9));
    assert_eq!(rig.space.fetch_u64(va, &|| true), None);
    drop(module);
    assert_eq!(rig.space.fetch_u64(va, &|| false), None, "it is gone");
    // Waits for the end of the copy before.
    assert_eq!(rig.space.fetch_u64(fence.va, &|| false), Some(5));
    assert!(!rig.cuda.is_poisoned());
}
