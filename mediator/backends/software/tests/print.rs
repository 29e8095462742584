//! Kernels that print, and assertions that fail.

mod support;

use std::sync::Arc;

use causeway_mediator::backend::{Module, Space};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use support::{Device, kernel};

/// Declares `vprintf`, and a format as a variable of the module.
fn format(text: &str) -> String {
    let bytes: Vec<String> = text.bytes().chain([0]).map(|b| b.to_string()).collect();
    format!(
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
         .global .b8 format[{}] = {{{}}};",
        text.len() + 1,
        bytes.join(", ")
    )
}

/// Calls `vprintf` with the format in `%d1` and the arguments at `%d2`; `%r1` is the result.
const CALL: &str = "{ .param .b64 f; .param .b64 a; .param .b32 r;\n\
    st.param.b64 [f], %d1; st.param.b64 [a], %d2; call.uni (r), vprintf, (f, a);\n\
    ld.param.b32 %r1, [r]; }";

fn printed(device: &Device) -> String {
    String::from_utf8(device.space.take_output(usize::MAX)).unwrap()
}

#[test]
fn what_a_compiler_makes_of_printf_is_printed() {
    let mut device = Device::new(2);
    let module = device.load(include_str!("ptx/printing.ptx")).unwrap();
    let out = device.buffer(4096, Access::ReadWrite);
    let text = device.buffer(4096, Access::Read);
    text.write(b"abc\0");
    let given = [
        out.va.to_le_bytes(),
        1.25_f64.to_le_bytes(),
        text.va.to_le_bytes(),
    ]
    .concat();
    device
        .launch(&module, "report", ([2, 1, 1], [3, 1, 1], 0), &given)
        .unwrap();
    let text = printed(&device);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let want = [
        "0:  0.00|abc   |+1.250e+00|0xff|a|0|%|   0",
        "1:  1.25|abc   |+1.250e+00|0x100|b|1099511627776|%|   1",
        "2:  2.50|abc   |+1.250e+00|0x101|c|2199023255552|%|   2",
        "3:  3.75|abc   |+1.250e+00|0x102|d|3298534883328|%|   3",
        "4:  5.00|abc   |+1.250e+00|0x103|e|4398046511104|%|   4",
        "5:  6.25|abc   |+1.250e+00|0x104|f|5497558138880|%|   5",
    ];
    assert_eq!(lines, want);
    assert_eq!(out.words(6), [9; 6], "arguments of the format");
    assert_eq!(printed(&device), "", "it has been taken");
}

#[test]
fn a_call_prints_for_each_thread_that_makes_it() {
    let body = format!(
        ".local .b32 a; mov.u64 %d3, a; cvta.local.u64 %d2, %d3; st.local.u32 [a], %t;\n\
         mov.u64 %d1, format; cvta.global.u64 %d1, %d1;\n\
         setp.lt.u32 %p1, %t, 60; @%p1 bra done;\n{CALL}\nst.global.u32 [%o], %r1; done:"
    );
    let mut device = Device::new(1);
    let module = device.load(&kernel(&format("thread %d\n"), &body)).unwrap();
    let found = device.run_module(&module, (1, 64), &[], 64).unwrap();
    assert_eq!(found[59..], [0, 1, 1, 1, 1]);
    assert_eq!(
        printed(&device),
        "thread 60\nthread 61\nthread 62\nthread 63\n"
    );
}

#[test]
fn text_that_nobody_takes_is_bounded() {
    let body = format!(
        "mov.u64 %d1, format; cvta.global.u64 %d1, %d1; mov.u64 %d2, 0;\n\
         mov.u32 %r2, 0; back:\n{CALL}\nadd.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 200;\n\
         @%p1 bra back;"
    );
    let mut device = Device::new(2);
    let line = format!("{}\n", "x".repeat(99));
    let module = device.load(&kernel(&format(&line), &body)).unwrap();
    device.run_module(&module, (4, 32), &[], 128).unwrap();
    let text = printed(&device);
    assert_eq!(text.len(), (1 << 20) / 100 * 100);
    assert!(text.lines().all(|l| l.len() == 99));
}

#[test]
fn strings_are_read_like_any_other_memory() {
    let mut device = Device::new(1);
    let run = |device: &mut Device, pointers: &str| {
        let module = device.load(&kernel(
            &format("%s"),
            &format!("{pointers}\n{CALL}\nst.global.u32 [%o], %r1;"),
        ));
        device.run_module(&module.unwrap(), (1, 1), &[], 1)
    };
    // The format, the arguments, and a string that is an argument.
    for (pointers, address) in [
        ("mov.u64 %d1, 0x123450; mov.u64 %d2, 0;", "0x123450"),
        (
            "mov.u64 %d1, format; cvta.global.u64 %d1, %d1; mov.u64 %d2, 0x123450;",
            "load of 8 bytes at 0x123450",
        ),
        (
            "mov.u64 %d1, format; cvta.global.u64 %d1, %d1; mov.u64 %d2, -1;",
            "0xffffffffffffffff",
        ),
        (
            "mov.u64 %d1, format; cvta.global.u64 %d1, %d1; mov.u64 %d3, 0x123450;\n\
             st.global.u64 [%out], %d3; mov.u64 %d2, %out;",
            "load of 1 bytes at 0x123450",
        ),
    ] {
        let fault = run(&mut Device::new(1), pointers).unwrap_err();
        assert_eq!(fault.status, Status::MemoryFault);
        assert!(fault.text.contains(address), "{fault}");
    }
    let found = run(&mut device, "mov.u64 %d1, 0; mov.u64 %d2, 0;").unwrap();
    assert_eq!(found, [u32::MAX], "no format");
    // A string without an end stops at the bound, here before the end of the mapping.
    let input = vec![u32::from_le_bytes(*b"abcd"); 3072];
    let body = format!("mov.u64 %d1, %in; mov.u64 %d2, 0;\n{CALL}");
    let module = device.load(&kernel(&format(""), &body)).unwrap();
    device.run_module(&module, (1, 1), &input, 1).unwrap();
    assert_eq!(printed(&device), "abcd".repeat(2048));
}

#[test]
fn printing_without_end_can_be_stopped() {
    let body = format!(
        "mov.u64 %d1, %in; mov.u64 %d2, 0; mov.u32 %r2, 0; back:\n{CALL}\n\
         add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, -1; @%p1 bra back;"
    );
    let mut device = Device::new(1);
    let stop = Arc::clone(&device.stop);
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let module = device.load(&kernel(&format(""), &body)).unwrap();
    let input = vec![u32::from_le_bytes(*b"abcd"); 3000];
    device.run_module(&module, (1, 32), &input, 32).unwrap();
    stopper.join().unwrap();
}

#[test]
fn a_module_may_define_the_function_itself() {
    let own = ".visible .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a)\n\
               { st.param.b32 [r], 77; ret; }";
    let body = format!("mov.u64 %d1, 0; mov.u64 %d2, 0;\n{CALL}\nst.global.u32 [%o], %r1;");
    let mut device = Device::new(1);
    let module: Arc<dyn Module> = device.load(&kernel(own, &body)).unwrap();
    assert_eq!(device.run_module(&module, (1, 1), &[], 1).unwrap(), [77]);
}

#[test]
fn a_failed_assertion_says_what_cuda_says() {
    let mut device = Device::new(1);
    let module = device.load(include_str!("ptx/assert.ptx")).unwrap();
    let numbers = device.buffer(4096, Access::Read);
    let mut words = vec![9; 128];
    numbers.write_words(&words);
    let launch = |device: &mut Device| {
        let shape = ([2, 1, 1], [64, 1, 1], 0);
        device.launch(&module, "check", shape, &numbers.va.to_le_bytes())
    };
    launch(&mut device).unwrap();
    words[64 + 37] = 10;
    numbers.write_words(&words);
    let fault = launch(&mut device).unwrap_err();
    assert_eq!(fault.status, Status::KernelFault);
    let want = ": k.cu:3: void check(const int *): block: [1,0,0], thread: [37,0,0] Assertion \
                `in[i] < 10` failed.";
    assert!(fault.text.ends_with(want), "{fault}");
}

#[test]
fn an_assertion_without_readable_texts_fails_all_the_same() {
    let before = ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, \
                  .param .b64 n, .param .b64 s);";
    let body = "{ .param .b64 a; .param .b32 l; st.param.b64 [a], 24; st.param.b32 [l], 5;\n\
                call __assertfail, (a, a, l, a, a); }";
    let mut device = Device::new(1);
    let module = device.load(&kernel(before, body)).unwrap();
    let fault = device.run_module(&module, (1, 1), &[], 1).unwrap_err();
    assert_eq!(fault.status, Status::KernelFault);
    assert!(
        fault.text.contains("(unreadable):5: (unreadable): block"),
        "{fault}"
    );
}
