//! Any record is acted upon or refused.
#![no_main]

use causeway_fuzz::records::Records;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static RECORDS: Records = Records::new();
}

fuzz_target!(|bytes: &[u8]| RECORDS.with(|records| {
    records.hand(bytes);
    if bytes.is_empty() {
        records.check();
    }
}));
