//! Two publications of any units, in one session.
#![no_main]

use causeway_fuzz::packets::Packets;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|units: [Vec<u8>; 2]| {
    let mut packets = Packets::new();
    for units in units {
        if !packets.lost() {
            packets.submit(&units);
        }
    }
    packets.finish();
});
