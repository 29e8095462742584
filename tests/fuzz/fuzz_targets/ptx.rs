//! Any text is a module or a refusal with a line of its own.
#![no_main]

use causeway_software::ptx;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = ptx::parse(text) {
        let lines = text.bytes().filter(|&byte| byte == b'\n').count() + 1;
        assert!((1..=lines).contains(&(error.line as usize)), "{error}");
    }
});
