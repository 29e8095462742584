//! Last words: file, line and message reach the host, then the guest ends as failed.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use causeway_protocol::harness::{Panic, RecordKind};

use crate::record;

/// Set by the first CPU that panics: its words are the ones that count.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Text that is cut off where the room ends.
struct Cut<const BYTES: usize> {
    text: [u8; BYTES],
    used: usize,
}

impl<const BYTES: usize> Cut<BYTES> {
    const fn new() -> Self {
        Self {
            text: [0; BYTES],
            used: 0,
        }
    }
}

impl<const BYTES: usize> Write for Cut<BYTES> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let cut = record::cut_length(text, BYTES - self.used);
        self.text[self.used..self.used + cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.used += cut;
        if cut < text.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if PANICKED.swap(true, Ordering::AcqRel) {
        record::park();
    }
    let (mut file, mut message) = (Cut::<128>::new(), Cut::<256>::new());
    let line = info.location().map_or(0, |location| {
        // An error says that the text was cut, which is wanted.
        let _ = file.write_str(location.file());
        location.line()
    });
    let _ = write!(message, "{}", info.message());
    record::send(&mut Panic {
        header: record::header::<Panic>(RecordKind::Panic),
        line,
        file_bytes: file.used as u32,
        message_bytes: message.used as u32,
        reserved: 0,
        file: file.text,
        message: message.text,
    });
    record::exit(1)
}
