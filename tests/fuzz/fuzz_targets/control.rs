//! Batches of several clients in one session, in turn: as they are, or with right heads if the
//! first byte is odd. Then the clients are reset, one after the other.
#![no_main]

use causeway_fuzz::control::{Control, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|batches: [Vec<u8>; 4]| {
    let control = Control::new();
    for (client, mut batch) in (0..).zip(batches) {
        if batch.first().is_some_and(|first| first & 1 == 1) {
            frame(&mut batch);
        }
        // The first two are of one client, so that the second can use what the first has made.
        control.execute_as(client / 2, &mut batch);
    }
    control.reset(1);
    control.reset(0);
    control.finish();
});
