//! Any file is an image within bounds, or refused.
#![no_main]

use causeway_fuzz::records::load;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = load(bytes);
});
