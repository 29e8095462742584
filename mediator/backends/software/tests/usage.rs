//! What work takes of the device, by which sessions share it out.

mod support;

use causeway_mediator::backend::{LaunchOptions, LaunchShape, Usage};
use causeway_protocol::message::Status;
use causeway_protocol::packet::launch_flags;
use support::Device;

/// Every thread counts to a parameter. Then it stores to another one, if that is not 0.
const PTX: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
    .visible .entry count(.param .u32 steps, .param .u64 to) {\n\
    .reg .pred %p<3>; .reg .b32 %r<3>; .reg .b64 %d<2>;\n\
    ld.param.u32 %r1, [steps]; mov.u32 %r0, 0;\n\
    again: add.u32 %r0, %r0, 1; setp.lt.u32 %p1, %r0, %r1; @%p1 bra again;\n\
    ld.param.u64 %d0, [to]; setp.eq.u64 %p2, %d0, 0; @%p2 bra done;\n\
    st.global.u32 [%d0], %r0;\n\
    done: ret; }\n";
const STEPS: u32 = 20_000;

/// Launches so many blocks, and returns what they have taken, and the status of their fault.
fn launch(device: &mut Device, blocks: u32, steps: u32, to: u64) -> (Usage, Option<Status>) {
    let module = device.load(PTX).unwrap();
    let mut parameters = [0; 16];
    parameters[..4].copy_from_slice(&steps.to_le_bytes());
    parameters[8..].copy_from_slice(&to.to_le_bytes());
    let shape = ([blocks, 1, 1], [32, 1, 1], 0);
    let launched = device.launch(&module, "count", shape, &parameters);
    let usage = device.queue.take_usage();
    assert_eq!(device.queue.take_usage(), Usage::default(), "it is taken");
    (usage, launched.err().map(|fault| fault.status))
}

#[test]
fn a_kernel_of_one_block_has_a_use_for_one_core_and_others_for_more() {
    let mut device = Device::new(4);
    let (one, _) = launch(&mut device, 1, 100 * STEPS, 0);
    assert_eq!(one.width(), Some(1), "{one:?}");
    let (many, _) = launch(&mut device, 2048, STEPS, 0);
    assert!(many.width() >= Some(2), "{many:?}");
    assert_eq!(Usage::default().width(), None);
}

#[test]
fn a_launch_uses_no_more_cores_than_it_may() {
    let mut device = Device::new(4);
    device.queue.limit_units(1);
    let (usage, _) = launch(&mut device, 512, STEPS, 0);
    assert!(usage.busy_ns <= usage.elapsed_ns, "{usage:?}");
    assert!(usage.width() >= Some(2), "what it wants: {usage:?}");
}

#[test]
fn a_kernel_that_faults_has_taken_what_it_has_taken() {
    let mut device = Device::new(2);
    let (usage, status) = launch(&mut device, 1, STEPS, 64);
    assert_eq!(status, Some(Status::MemoryFault));
    assert!(usage.busy_ns > 0 && usage.elapsed_ns > 0, "{usage:?}");
}

#[test]
fn work_that_gets_less_than_half_of_what_it_wants_is_starved() {
    let usage = |busy_ns| Usage {
        busy_ns,
        elapsed_ns: 50,
        wanted_ns: 100,
    };
    assert!(usage(49).is_starved() && !usage(50).is_starved());
}

#[test]
fn a_launch_is_charged_for_what_its_thread_takes_beyond_a_little() {
    let device = Device::new(1);
    let ptx = PTX.replace(".reg .pred", ".local .b8 large[32768]; .reg .pred");
    let kernel = |ptx: &str| device.load(ptx).unwrap().kernel("count").unwrap();
    let shape = |threads| LaunchShape {
        grid: [64, 1, 1],
        block: [threads, 1, 1],
        shared_bytes: 0,
    };
    let bytes = |ptx, threads, flags| {
        let options = LaunchOptions {
            flags,
            ..LaunchOptions::PLAIN
        };
        kernel(ptx).launch_bytes(&shape(threads), &options)
    };
    assert_eq!(bytes(PTX, 1024, 0), 0);
    assert_eq!(bytes(&ptx, 32, 0), 0);
    let one_block = bytes(&ptx, 1024, 0);
    assert!((28 << 20..29 << 20).contains(&one_block), "{one_block}");
    // All blocks at once: 64 times a mebibyte, and a little.
    let all = bytes(&ptx, 32, launch_flags::COOPERATIVE);
    assert!((60 << 20..62 << 20).contains(&all), "{all}");
}
