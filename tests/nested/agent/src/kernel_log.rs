//! What the kernel has logged.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

use causeway_nested_agent::frame::BODY_BYTES_MAX;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Longest record of the kernel's (`PRINTKRB_RECORD_MAX`, and room for its prefix).
const RECORD_BYTES_MAX: usize = 8192;

/// All messages that are still there, a line for each.
pub fn read() -> io::Result<Vec<u8>> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let mut records = options
        .read(true)
        .custom_flags(nonblocking)
        .open("/dev/kmsg")?;
    let mut text = Vec::new();
    let mut record = [0; RECORD_BYTES_MAX];
    while let Some(bytes) = next(&mut records, &mut record)? {
        text.extend_from_slice(message(&record[..bytes]));
        text.push(b'\n');
        if text.len() + RECORD_BYTES_MAX > BODY_BYTES_MAX {
            break;
        }
    }
    Ok(text)
}

/// Length of the next record; none behind the last.
fn next(records: &mut File, record: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match records.read(record) {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            // Records that were overwritten before they could be read.
            Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The text of a record: behind numbers and a semicolon, before lines of properties
/// (Documentation/ABI/testing/dev-kmsg).
fn message(record: &[u8]) -> &[u8] {
    let begin = record
        .iter()
        .position(|byte| *byte == b';')
        .map_or(0, |at| at + 1);
    let text = &record[begin..];
    let end = text.iter().position(|byte| *byte == b'\n');
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_stands_between_numbers_and_properties() {
        let record = b"4,612,1234567,-;DMAR: a fault; and more\n SUBSYSTEM=pci\n";
        assert_eq!(message(record), b"DMAR: a fault; and more");
        assert_eq!(message(b"odd"), b"odd");
    }
}
