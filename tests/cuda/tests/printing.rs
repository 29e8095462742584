//! Text of kernels, as a program prints it when it waits for them.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ffi::c_void;

use causeway_cuda_tests::library as start;
use code::*;

/// `say` prints its number.
const PRINTER: &str =
    ".extern .func (.param .b32 out) vprintf(.param .b64 format, .param .b64 values);
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
}";

/// Calls `call`, and returns what this process has printed meanwhile.
fn printed(call: impl FnOnce()) -> String {
    let before = rustix::io::dup(rustix::stdio::stdout()).unwrap();
    let path = std::env::temp_dir().join(format!("causeway-printed-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    rustix::stdio::dup2_stdout(&file).unwrap();
    call();
    rustix::stdio::dup2_stdout(&before).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    text
}

/// One test, because tests at the same time have one standard output.
#[test]
fn text_appears_when_the_program_waits_or_unloads_the_module() {
    start();
    let module = module(PRINTER);
    let say = function(module, c"say");
    let text = printed(|| {
        for number in [7_u32, 42] {
            let arguments = [(&raw const number).cast::<c_void>()];
            assert_eq!(launch(say, [1; 3], [1; 3], &arguments), 0);
        }
        assert_eq!(cuCtxSynchronize(), 0);
    });
    assert_eq!(text, "n = 7\nn = 42\n");
    // More than the device keeps of a module that it has no more.
    let text = printed(|| {
        let number = 1_000_000_000_u32;
        let arguments = [(&raw const number).cast::<c_void>()];
        assert_eq!(launch(say, [100, 1, 1], [100, 1, 1], &arguments), 0);
        assert_eq!(cuModuleUnload(module), 0);
        assert_eq!(cuCtxSynchronize(), 0);
    });
    assert_eq!(text.lines().count(), 10_000);
    assert!(text.lines().all(|line| line == "n = 1000000000"));
}
