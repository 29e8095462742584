use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_cuda::{Config, Cuda};
use causeway_mediator::backend::{Backend as _, Module};

use crate::support::{Rig, is_child};

const PRINTER: &str = "\
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 out) vprintf(.param .b64 format, .param .b64 values);
.global .align 1 .b8 text[9] = {110, 32, 61, 32, 37, 100, 10, 0, 0};
.visible .entry say(.param .u32 number)
{
    .local .align 8 .b8 values[8];
    .reg .b64 %at, %text;
    .reg .b32 %n, %r;
    ld.param.u32 %n, [number];
    mov.u64 %at, values;
    cvta.local.u64 %at, %at;
    st.u32 [%at], %n;
    mov.u64 %text, text;
    cvta.global.u64 %text, %text;
    .param .b64 a;
    .param .b64 b;
    .param .b32 out;
    st.param.b64 [a], %text;
    st.param.b64 [b], %at;
    call (out), vprintf, (a, b);
    ld.param.b32 %r, [out];
    ret;
}
";

/// Returns a rig whose process has its standard output for kernels.
fn rig() -> Rig {
    Rig::with(&Config {
        captures_output: true,
        ..Config::default()
    })
}

#[test]
fn text_of_kernels_is_taken_after_their_work() {
    if !is_child("printing::text_of_kernels_is_taken_after_their_work", &[]) {
        return;
    }
    let mut rig = rig();
    assert_eq!(rig.space.take_output(100), b"", "nothing prints");
    let module = rig.load(PRINTER.as_bytes()).unwrap();
    assert!(module.kernel("say").unwrap().prints());
    assert!(module.memory_bytes() > 1 << 20, "text is charged");
    for number in [7_u32, 42] {
        rig.launch(&module, "say", ([1; 3], [1; 3]), &number.to_le_bytes())
            .unwrap();
    }
    rig.queue.finish().unwrap();
    assert_eq!(rig.space.take_output(3), b"n =");
    assert_eq!(rig.space.take_output(100), b" 7\nn = 42\n");
    assert_eq!(rig.space.take_output(100), b"");
    let other = rig.cuda.create_space(std::sync::Arc::default()).unwrap();
    rig.launch(&module, "say", ([1; 3], [1; 3]), &1_u32.to_le_bytes())
        .unwrap();
    rig.queue.finish().unwrap();
    assert_eq!(other.take_output(100), b"", "it has no module that prints");
    assert_eq!(rig.space.take_output(100), b"n = 1\n");
}

#[test]
fn kernels_that_print_more_than_is_kept_do_not_wait() {
    if !is_child(
        "printing::kernels_that_print_more_than_is_kept_do_not_wait",
        &[],
    ) {
        return;
    }
    let mut rig = rig();
    let module = rig.load(PRINTER.as_bytes()).unwrap();
    // Far more than a pipe holds: each round prints 64 times 1,024 lines.
    let number = 1_000_000_000_u32.to_le_bytes();
    for _ in 0..3 {
        rig.launch(&module, "say", ([64, 1, 1], [1024, 1, 1]), &number)
            .unwrap();
        rig.queue.finish().unwrap();
        let _ = rig.space.take_output(0);
    }
    let kept = rig.space.take_output(usize::MAX);
    assert!((1..=1 << 20).contains(&kept.len()), "{}", kept.len());
    assert!(kept.ends_with(b"n = 1000000000\n"));
    assert_eq!(rig.space.take_output(usize::MAX), b"");
}

#[test]
fn without_a_process_of_their_own_kernels_cannot_print() {
    if !is_child(
        "printing::without_a_process_of_their_own_kernels_cannot_print",
        &[],
    ) {
        return;
    }
    let rig = Rig::with(&Config::default());
    let refused = rig.load(PRINTER.as_bytes()).err().unwrap();
    assert!(refused.reason.contains("isolation=process"), "{refused}");
    assert_eq!(rig.space.take_output(100), b"");
}

/// Returns a rig with the first address space of the next session.
fn next(cuda: &Arc<Cuda>) -> Rig {
    let stop = Arc::default();
    let space = cuda.create_space(Arc::clone(&stop)).unwrap();
    let queue = space.create_queue(0).unwrap();
    Rig {
        cuda: Arc::clone(cuda),
        space,
        queue,
        stop,
    }
}

/// Has a kernel print `number`, and returns its module.
fn say(rig: &mut Rig, number: u32) -> Arc<dyn Module> {
    let module = rig.load(PRINTER.as_bytes()).unwrap();
    rig.launch(&module, "say", ([1; 3], [1; 3]), &number.to_le_bytes())
        .unwrap();
    rig.queue.finish().unwrap();
    module
}

#[test]
fn text_of_a_session_before_is_dropped() {
    if !is_child("printing::text_of_a_session_before_is_dropped", &[]) {
        return;
    }
    let mut first = rig();
    let module = say(&mut first, 7);
    // Another address space of the same session begins and ends.
    drop(first.cuda.create_space(Arc::default()).unwrap());
    assert_eq!(first.space.take_output(4), b"n = ");
    // The next session begins while the first one's address space ends.
    first.stop.store(true, Ordering::SeqCst);
    let mut second = next(&first.cuda);
    drop((module, first));
    let module = say(&mut second, 8);
    assert_eq!(second.space.take_output(100), b"n = 8\n");
    // And after it has ended.
    let more = say(&mut second, 9);
    let cuda = Arc::clone(&second.cuda);
    drop((module, more, second));
    let mut third = next(&cuda);
    let _module = say(&mut third, 10);
    assert_eq!(third.space.take_output(100), b"n = 10\n");
}
