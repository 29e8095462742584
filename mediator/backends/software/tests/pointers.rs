//! Calls through registers.

mod support;

use support::{Device, kernel};

const FUNCTIONS: &str = "\
    .func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a];\n\
    add.u32 %x, %x, %x; st.param.b32 [r], %x; ret; }\n\
    .func (.param .b32 r) more(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a];\n\
    add.u32 %x, %x, 100; st.param.b32 [r], %x; ret; }\n\
    .func (.param .b64 r) wide(.param .b64 a) { trap; }";

/// Odd threads call `more`, the others `twice`, with the number of the thread.
const CALL: &str = "mov.u64 %d1, twice; mov.u64 %d2, more; mov.u64 %d4, wide;\n\
    and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; selp.b64 %d3, %d1, %d2, %p1; mov.u32 %r2, 7;\n\
    CHANGE\n\
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %t;\n\
    kind: .callprototype (.param .b32 _) _ (.param .b32 _);\n\
    GUARD call (r), %d3, (a), kind; ld.param.b32 %r2, [r]; }\n\
    st.global.u32 [%o], %r2;";

fn run(change: &str, guard: &str) -> Result<Vec<u32>, String> {
    let mut device = Device::new(1);
    let body = CALL.replace("CHANGE", change).replace("GUARD", guard);
    let module = device.load(&kernel(FUNCTIONS, &body)).unwrap();
    let found = device.run_module(&module, (2, 64), &[], 128);
    found.map_err(|fault| fault.text)
}

#[test]
fn each_thread_calls_the_function_that_it_means() {
    let want = |t: u32| if t.is_multiple_of(2) { 2 * t } else { t + 100 };
    assert_eq!(run("", ""), Ok((0..128).map(want).collect()));
    // Threads that the guard leaves out call nothing.
    let found = run("setp.lt.u32 %p2, %t, 40;", "@!%p2").unwrap();
    assert_eq!(found[40..], (40..128).map(want).collect::<Vec<u32>>());
    assert_eq!(found[..40], [0; 40], "the result has not been written");
}

#[test]
fn an_address_of_no_such_function_is_a_trap() {
    for change in [
        "setp.eq.u32 %p2, %t, 70; @%p2 mov.u64 %d3, 0;",
        "setp.eq.u32 %p2, %t, 70; @%p2 add.u64 %d3, %d3, 1;",
        "setp.eq.u32 %p2, %t, 70; @%p2 mov.u64 %d3, %out;",
        // A function with other parameters.
        "setp.eq.u32 %p2, %t, 70; @%p2 mov.u64 %d3, %d4;",
    ] {
        let text = run(change, "").unwrap_err();
        assert!(text.contains("block (1,0,0), thread (6,0,0)"), "{text}");
        assert!(text.contains("trap"), "{text}");
    }
}

#[test]
fn a_function_that_calls_through_a_register_may_call_itself() {
    let function = ".func (.param .b32 r) down(.param .b32 a, .param .b64 f) {\n\
        .reg .b32 %x<3>; .reg .b64 %f; .reg .pred %p;\n\
        ld.param.b32 %x1, [a]; ld.param.b64 %f, [f]; setp.eq.u32 %p, %x1, 0; mov.u32 %x2, 0;\n\
        @%p bra done; sub.u32 %x1, %x1, 1;\n\
        { .param .b32 n; .param .b64 g; .param .b32 s; st.param.b32 [n], %x1;\n\
        st.param.b64 [g], %f; call (s), %f, (n, g); ld.param.b32 %x2, [s]; }\n\
        add.u32 %x2, %x2, %x1; add.u32 %x2, %x2, 1; done: st.param.b32 [r], %x2; ret; }";
    let body = "mov.u64 %d1, down; and.b32 %r1, %t, 15; { .param .b32 a; .param .b64 f;\n\
        .param .b32 r; st.param.b32 [a], %r1; st.param.b64 [f], %d1; call (r), down, (a, f);\n\
        ld.param.b32 %r2, [r]; } st.global.u32 [%o], %r2;";
    let mut device = Device::new(1);
    let module = device.load(&kernel(function, body)).unwrap();
    let found = device.run_module(&module, (1, 32), &[], 32).unwrap();
    let want = |t: u32| (1..=t % 16).sum::<u32>();
    assert_eq!(found, (0..32).map(want).collect::<Vec<u32>>());
}
