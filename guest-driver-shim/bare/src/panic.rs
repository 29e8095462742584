//! The panic handler: sends file, line and message to the host, then ends the guest as failed.

use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use causeway_testdev_records::Panic;

use crate::record;

/// Set by the first CPU that panics. Only its message is reported.
static PANICKED: AtomicBool = AtomicBool::new(false);

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if PANICKED.swap(true, Ordering::AcqRel) {
        record::park();
    }
    let place = info.location();
    let (file, line) = place.map_or(("", 0), |place| (place.file(), place.line()));
    record::send(&mut Panic::new(file, line, info.message()));
    record::exit(1)
}
