//! The serial console of a bare guest: a 16550A whose lines go to whoever the caller named.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use vm_superio::serial::NoEvents;
use vm_superio::{Serial, Trigger};

use crate::bus::{BusDevice, Refusal, Response};

/// Registers of the device in bytes.
pub const CONSOLE_BYTES: u64 = 8;
/// Longest line in bytes; a longer one is broken.
const LINE_BYTES_MAX: usize = 1024;
/// Lines kept for the report of a guest that failed.
const TAIL_LINES: usize = 32;

/// Takes the lines of a console, without their line ends, and with control characters replaced.
pub type LineSink = Arc<dyn Fn(&str) + Send + Sync>;

/// The console device.
pub struct Console {
    serial: Mutex<Serial<NoInterrupt, NoEvents, LineWriter>>,
}

/// Nothing takes the console's interrupts: bare guests run with interrupts off.
struct NoInterrupt;

impl Trigger for NoInterrupt {
    type E = Infallible;
    fn trigger(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl Console {
    /// A console whose lines go to `sink`.
    pub fn new(sink: LineSink) -> Self {
        Self {
            serial: Mutex::new(Serial::new(NoInterrupt, LineWriter::new(sink))),
        }
    }

    /// The last lines, oldest first, and what has no line end yet. Also hands the latter to the sink.
    pub fn finish(&self) -> Vec<String> {
        let mut serial = self.serial.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = serial.writer_mut();
        writer.end_line();
        writer.tail.iter().cloned().collect()
    }
}

impl BusDevice for Console {
    fn name(&self) -> &'static str {
        "console"
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        let (Ok(offset), [byte]) = (u8::try_from(offset), into) else {
            return Response::refused(Refusal::BadSize);
        };
        let mut serial = self.serial.lock().unwrap_or_else(PoisonError::into_inner);
        *byte = serial.read(offset);
        Response::ok(register(offset))
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        let (Ok(offset), [byte]) = (u8::try_from(offset), from) else {
            return Response::refused(Refusal::BadSize);
        };
        let mut serial = self.serial.lock().unwrap_or_else(PoisonError::into_inner);
        // Errors: no interrupt can fail, the writer takes everything, and a full loopback FIFO is the guest's.
        if let Err(e) = serial.write(offset, *byte) {
            log::debug!("console: {e:?}");
        }
        Response::ok(register(offset))
    }
}

/// Names of a 16550A's registers with the divisor latch closed (PC16550D data sheet, table II).
fn register(offset: u8) -> &'static str {
    match offset {
        0 => "data",
        1 => "interrupt_enable",
        2 => "interrupt_identity",
        3 => "line_control",
        4 => "modem_control",
        5 => "line_status",
        6 => "modem_status",
        _ => "scratch",
    }
}

/// Cuts bytes into lines.
struct LineWriter {
    line: Vec<u8>,
    tail: VecDeque<String>,
    sink: LineSink,
}

impl LineWriter {
    fn new(sink: LineSink) -> Self {
        Self {
            line: Vec::with_capacity(LINE_BYTES_MAX),
            tail: VecDeque::with_capacity(TAIL_LINES),
            sink,
        }
    }

    fn end_line(&mut self) {
        if !self.line.is_empty() {
            self.emit();
        }
    }

    fn emit(&mut self) {
        let text = printable(&self.line);
        self.line.clear();
        (self.sink)(&text);
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(text);
    }
}

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            match byte {
                b'\n' => self.emit(),
                b'\r' => {}
                byte => self.line.push(*byte),
            }
            if self.line.len() == LINE_BYTES_MAX {
                self.emit();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Text of a guest that a terminal can be shown: escape sequences and the like are taken apart.
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console() -> (Console, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let sink: LineSink = Arc::new(move |line| sink.lock().unwrap().push(line.to_owned()));
        (Console::new(sink), lines)
    }

    fn print(console: &Console, text: &[u8]) {
        for byte in text {
            assert_eq!(console.write(0, &[*byte]), Response::ok("data"));
        }
    }

    #[test]
    fn lines_come_out_whole() {
        let (console, lines) = console();
        print(&console, b"one\r\ntwo\n\nthree");
        assert_eq!(*lines.lock().unwrap(), ["one", "two", ""]);
        assert_eq!(console.finish(), ["one", "two", "", "three"]);
        assert_eq!(lines.lock().unwrap().last().unwrap(), "three");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (console, lines) = console();
        print(&console, &vec![b'x'; LINE_BYTES_MAX * 2 + 1]);
        assert_eq!(lines.lock().unwrap().len(), 2);
        print(&console, "\n".repeat(100).as_bytes());
        assert_eq!(console.finish().len(), TAIL_LINES);
    }

    #[test]
    fn terminals_are_safe_from_guests() {
        assert_eq!(
            printable(b"\x1b[31mred\x07\xff\t."),
            "\u{fffd}[31mred\u{fffd}\u{fffd} ."
        );
    }

    #[test]
    fn the_transmitter_is_always_ready_and_wide_accesses_are_refused() {
        let (console, _) = console();
        let mut status = [0];
        assert_eq!(console.read(5, &mut status), Response::ok("line_status"));
        assert_eq!(status[0] & 0x20, 0x20);
        assert!(console.write(0, b"ab").result.is_err());
        assert!(console.read(0, &mut [0; 4]).result.is_err());
    }
}
