//! Text of kernels, as a program prints it when it waits for them.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ffi::c_void;
use std::io::Read;

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

#[test]
fn text_appears_when_the_program_waits() {
    start();
    let module = module(PRINTER);
    let say = function(module, c"say");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let before = rustix::io::dup(rustix::stdio::stdout()).unwrap();
    rustix::stdio::dup2_stdout(&writer).unwrap();
    drop(writer);
    for number in [7_u32, 42] {
        let arguments = [(&raw const number).cast::<c_void>()];
        assert_eq!(launch(say, [1; 3], [1; 3], &arguments), 0);
    }
    let waited = cuCtxSynchronize();
    rustix::stdio::dup2_stdout(&before).unwrap();
    assert_eq!(waited, 0);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "n = 7\nn = 42\n");
    assert_eq!(cuModuleUnload(module), 0);
}
