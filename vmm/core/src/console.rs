//! The serial console: a 16550A whose output goes to the caller's sink, and that a person can type
//! into.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use vm_superio::serial::SerialEvents;
use vm_superio::{Serial, Trigger};

use crate::bus::{BusDevice, Refusal, Response};
use crate::interrupts::EdgeInterrupt;

/// Number of I/O ports that the serial port takes: one for each of its eight registers.
pub const CONSOLE_BYTES: u64 = 8;
/// Longest line in bytes; a longer one is broken.
const LINE_BYTES_MAX: usize = 1024;
/// Lines kept for the report of a guest that failed.
const TAIL_LINES: usize = 32;

/// A function that is called with each line of a guest's console output. The line has no line end,
/// and control characters in it have been replaced.
pub type LineSink = Arc<dyn Fn(&str) + Send + Sync>;

/// A function that is called with each byte of a guest's console output.
pub type ByteSink = Arc<dyn Fn(u8) + Send + Sync>;

/// Where the output of a guest's console goes: to a function that gets whole lines, or to one that
/// gets single bytes.
#[derive(Clone)]
pub enum ConsoleOutput {
    /// The function gets the output line by line, without characters that could harm a terminal.
    Lines(LineSink),
    /// The function gets every byte unchanged, for a terminal that belongs to the guest.
    Raw(ByteSink),
}

impl From<LineSink> for ConsoleOutput {
    fn from(sink: LineSink) -> Self {
        Self::Lines(sink)
    }
}

/// What a guest's Linux kernel has printed about its own end: a panic, a restart, a halt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastWords {
    /// The message of the first kernel panic; `None` if the kernel printed none.
    pub panic: Option<String>,
    /// Whether the kernel printed that it restarts.
    pub restarting: bool,
    /// Whether the kernel printed that it halts, without turning the machine off.
    pub halting: bool,
}

/// A guest's serial console: a 16550A UART whose output goes to a [`ConsoleOutput`].
pub struct Console {
    port: Mutex<Port>,
    room: Room,
}

/// The UART, and what its model lacks.
struct Port {
    serial: Serial<Interrupt, Room, LineWriter>,
    /// How many further reads of the interrupt identity say that the transmitter is empty.
    repeats: u8,
}

impl Port {
    /// Notes a store to the interrupt enable register.
    ///
    /// When Linux opens a port it enables this one interrupt alone and reads the identity at once
    /// (`serial8250_do_startup`). In a guest with several processors, the interrupt's handler may
    /// read the identity first on another processor, which takes the interrupt away. Linux then
    /// believes that the port loses interrupts, and from then on looks at it five times a second,
    /// which are 25 exits. So after such a store the identity is told once more to each of two
    /// readers.
    fn enabled(&mut self) {
        let divisor = self.serial.read(LINE_CONTROL) & DIVISOR_LATCH != 0;
        let alone = self.serial.read(INTERRUPT_ENABLE) == TRANSMITTER_EMPTY_ENABLED;
        self.repeats = if !divisor && alone { 2 } else { 0 };
    }

    fn identity(&mut self) -> u8 {
        let told = self.serial.read(INTERRUPT_IDENTITY);
        if told & NO_INTERRUPT == 0 || self.repeats == 0 {
            return told;
        }
        self.repeats -= 1;
        told & !NO_INTERRUPT | TRANSMITTER_EMPTY
    }
}

/// The port's interrupt. Bare guests have none: they run with interrupts off.
struct Interrupt(Option<EdgeInterrupt>);

impl Trigger for Interrupt {
    type E = Infallible;
    fn trigger(&self) -> Result<(), Infallible> {
        if let Some(interrupt) = &self.0 {
            interrupt.trigger();
        }
        Ok(())
    }
}

/// Wakes a thread that waits for the guest to read its input.
#[derive(Clone, Default)]
struct Room(Arc<Condvar>);

impl SerialEvents for Room {
    fn buffer_read(&self) {}
    fn out_byte(&self) {}
    fn tx_lost_byte(&self) {}
    fn in_buffer_empty(&self) {
        self.0.notify_all();
    }
}

debug_by_name!(Console, ConsoleOutput);

impl Console {
    /// Returns a console whose output goes to `output`. The console raises `interrupt` when it has
    /// input for the guest or room for its output; with `None` the guest must poll.
    pub fn new(output: ConsoleOutput, interrupt: Option<EdgeInterrupt>) -> Self {
        let room = Room::default();
        let serial =
            Serial::with_events(Interrupt(interrupt), room.clone(), LineWriter::new(output));
        let port = Mutex::new(Port { serial, repeats: 0 });
        Self { port, room }
    }

    /// Puts as many of `bytes` into the receive buffer of the guest's UART as it has room for,
    /// first bytes first, and returns their number. If the buffer is full, waits up to `patience`
    /// for the guest to empty it; returns 0 if it is still full then.
    pub fn input(&self, bytes: &[u8], patience: Duration) -> usize {
        let mut port = self.port.lock();
        let full = |port: &mut Port| port.serial.fifo_capacity() == 0;
        self.room.0.wait_while_for(&mut port, full, patience);
        match port.serial.fifo_capacity() {
            0 => 0,
            // Errors: no interrupt can fail, and there is room.
            _ => port.serial.enqueue_raw_bytes(bytes).unwrap_or(0),
        }
    }

    /// Returns what the guest's Linux kernel has printed about its end so far.
    pub fn last_words(&self) -> LastWords {
        self.port.lock().serial.writer().words.clone()
    }

    /// Ends the console's output, and returns its last lines, oldest first, for the VM's report. If
    /// the guest's last line has no line end, first passes that line to the console's output.
    pub fn finish(&self) -> Vec<String> {
        let mut port = self.port.lock();
        let writer = port.serial.writer_mut();
        if !writer.line.is_empty() {
            writer.emit();
        }
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
        let mut port = self.port.lock();
        *byte = match offset {
            INTERRUPT_IDENTITY => port.identity(),
            offset => port.serial.read(offset),
        };
        Response::ok(REGISTERS[usize::from(offset % 8)])
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        let (Ok(offset), [byte]) = (u8::try_from(offset), from) else {
            return Response::refused(Refusal::BadSize);
        };
        let mut port = self.port.lock();
        // Errors: no interrupt can fail, the writer takes everything, and a full loopback FIFO is
        // the guest's.
        if let Err(e) = port.serial.write(offset, *byte) {
            log::debug!("console: {e:?}");
        }
        if offset == INTERRUPT_ENABLE {
            port.enabled();
        }
        Response::ok(REGISTERS[usize::from(offset % 8)])
    }
}

/// Names of a 16550A's registers with the divisor latch closed (PC16550D data sheet, table II).
const REGISTERS: [&str; CONSOLE_BYTES as usize] = [
    "data",
    "interrupt_enable",
    "interrupt_identity",
    "line_control",
    "modem_control",
    "line_status",
    "modem_status",
    "scratch",
];

// Offsets and bits of registers (the same, table II).
const INTERRUPT_ENABLE: u8 = 1;
const INTERRUPT_IDENTITY: u8 = 2;
const LINE_CONTROL: u8 = 3;
const DIVISOR_LATCH: u8 = 1 << 7;
const TRANSMITTER_EMPTY_ENABLED: u8 = 1 << 1;
const TRANSMITTER_EMPTY: u8 = 1 << 1;
const NO_INTERRUPT: u8 = 1;

/// Cuts bytes into lines.
struct LineWriter {
    line: Vec<u8>,
    tail: VecDeque<String>,
    output: ConsoleOutput,
    words: LastWords,
}

impl LineWriter {
    fn new(output: ConsoleOutput) -> Self {
        Self {
            line: Vec::with_capacity(LINE_BYTES_MAX),
            tail: VecDeque::with_capacity(TAIL_LINES),
            output,
            words: LastWords::default(),
        }
    }

    fn emit(&mut self) {
        let text = printable(&self.line);
        self.line.clear();
        if let ConsoleOutput::Lines(sink) = &self.output {
            sink(&text);
        }
        self.listen(&text);
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(text);
    }

    /// Notes what kernels say (Linux, kernel/panic.c and kernel/reboot.c). It explains an end that
    /// comes anyway: a guest that prints these words ends nothing.
    fn listen(&mut self, line: &str) {
        const PANIC: &str = "Kernel panic - not syncing: ";
        const RESTARTING: &str = "reboot: Restarting system";
        const HALTING: &str = "reboot: System halted";
        if let Some((_, message)) = line.split_once(PANIC)
            && self.words.panic.is_none()
        {
            self.words.panic = Some(message.to_owned());
        }
        self.words.restarting |= line.contains(RESTARTING);
        self.words.halting |= line.contains(HALTING);
    }
}

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if let ConsoleOutput::Raw(sink) = &self.output {
                sink(*byte);
            }
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

/// Returns `bytes`, which come from a guest, as text that is safe to show on a terminal: control
/// characters and invalid UTF-8 are replaced by U+FFFD, and tabs by spaces.
pub fn printable(bytes: &[u8]) -> String {
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
        let sink: LineSink = Arc::new(move |line| sink.lock().push(line.to_owned()));
        (Console::new(sink.into(), None), lines)
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
        assert_eq!(*lines.lock(), ["one", "two", ""]);
        assert_eq!(console.finish(), ["one", "two", "", "three"]);
        assert_eq!(lines.lock().last().unwrap(), "three");
    }

    #[test]
    fn input_is_bounded_and_read_by_the_guest() {
        let (console, _) = console();
        let patience = Duration::from_millis(1);
        assert_eq!(console.input(&[b'a'; 100], patience), 64);
        assert_eq!(console.input(b"more", patience), 0, "nobody reads");
        for _ in 0..64 {
            let mut byte = [0];
            assert_eq!(console.read(0, &mut byte), Response::ok("data"));
            assert_eq!(byte, *b"a");
        }
        assert_eq!(console.input(b"more", patience), 4);
    }

    /// What Linux does when it opens the port, with an interrupt handler on another processor that
    /// reads the identity before it does.
    #[test]
    fn a_port_that_is_opened_keeps_its_interrupt_for_two_readers() {
        let (console, _) = console();
        let write = |register, value| {
            let _ = console.write(register, &[value]);
        };
        let has_interrupt = || {
            let mut identity = [0];
            let _ = console.read(u64::from(INTERRUPT_IDENTITY), &mut identity);
            identity[0] & 0b111 == TRANSMITTER_EMPTY
        };
        for _ in 0..2 {
            write(1, TRANSMITTER_EMPTY_ENABLED);
            assert!(has_interrupt(), "the handler");
            assert!(has_interrupt(), "the driver");
            write(1, 0);
        }
        assert!(!has_interrupt(), "none is enabled");
        write(1, TRANSMITTER_EMPTY_ENABLED);
        assert_eq!([(); 4].map(|()| has_interrupt()), [true, true, true, false]);
        // Input, errors and output: what a port in use has.
        write(1, 0b111);
        assert_eq!([(); 2].map(|()| has_interrupt()), [true, false]);
    }

    #[test]
    fn bytes_reach_a_raw_terminal_as_they_are_and_the_tail_all_the_same() {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&bytes);
        let sink: ByteSink = Arc::new(move |byte| seen.lock().push(byte));
        let console = Console::new(ConsoleOutput::Raw(sink), None);
        print(&console, b"\x1b[1mlogin\r\n");
        assert_eq!(*bytes.lock(), b"\x1b[1mlogin\r\n");
        assert_eq!(console.finish(), ["\u{fffd}[1mlogin"]);
    }

    #[test]
    fn a_kernels_last_words_are_noted() {
        let (console, _) = console();
        assert_eq!(console.last_words(), LastWords::default());
        print(&console, b"[    1.2] Kernel panic - not syncing: no init\n");
        print(&console, b"[    1.3] Kernel panic - not syncing: again\n");
        print(&console, b"[    1.3] reboot: Restarting system\n");
        let words = LastWords {
            panic: Some("no init".to_owned()),
            restarting: true,
            halting: false,
        };
        assert_eq!(console.last_words(), words);
        print(&console, b"[    1.4] reboot: System halted\n");
        assert!(console.last_words().halting);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (console, lines) = console();
        print(&console, &vec![b'x'; LINE_BYTES_MAX * 2 + 1]);
        assert_eq!(lines.lock().len(), 2);
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
