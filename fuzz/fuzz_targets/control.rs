//! Three batches in one session: as they are, or with right heads if the first byte is odd.
#![no_main]

use causeway_fuzz::control::{Control, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|batches: [Vec<u8>; 3]| {
    let control = Control::new();
    for mut batch in batches {
        if batch.first().is_some_and(|first| first & 1 == 1) {
            frame(&mut batch);
        }
        control.execute(&mut batch);
    }
    control.finish();
});
