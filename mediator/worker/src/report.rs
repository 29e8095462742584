//! A session's report on its way between processes: names become opcodes, and names again.

use causeway_mediator::SessionReport;
use causeway_mediator::backend::Fault;
use causeway_protocol::message::Status;
use causeway_protocol::{message, packet};
use zerocopy::FromZeros;

use crate::wire::{OPCODES_MAX, Reported, TEXT_BYTES_MAX};

/// The report, and the text of the fault.
pub(crate) fn to_wire(report: &SessionReport, fault: Option<&Fault>) -> (Reported, String) {
    let mut wire = Reported::new_zeroed();
    wire.batches = report.batches;
    wire.failed_messages = report.failed_messages;
    wire.launches = report.launches;
    wire.sleeps = report.sleeps;
    wire.doorbell_wakeups = report.doorbell_wakeups;
    wire.faults = report.faults;
    wire.interrupts = report.interrupts;
    wire.memory_used_bytes = report.memory_used_bytes;
    wire.memory_peak_bytes = report.memory_peak_bytes;
    for opcode in message::OPCODES {
        wire.messages[*opcode as usize] = count(&report.messages, opcode.name());
    }
    for opcode in packet::OPCODES {
        wire.packets[*opcode as usize] = count(&report.packets, opcode.name());
    }
    let mut text = String::new();
    if let Some(fault) = fault {
        wire.fault_status = fault.status as u32;
        text.clone_from(&fault.text);
    }
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    wire.fault_bytes = text.len() as u32;
    (wire, text)
}

/// The report of a session called `name`, the fault, and what the binary added. None if it makes no sense.
pub(crate) fn from_wire(
    wire: &Reported,
    rest: &[u8],
    session: u64,
    name: &str,
) -> Option<(SessionReport, Option<Fault>, Vec<u8>)> {
    let (text, supplement) = rest.split_at_checked(wire.fault_bytes as usize)?;
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let fault = match wire.fault_status {
        0 => None,
        status => Some(Fault {
            status: Status::from_wire(status)?,
            text: printable(text),
        }),
    };
    let counted = |counts: &[u64; OPCODES_MAX], opcode: usize, name| {
        let count = counts.get(opcode).copied().unwrap_or(0);
        (count != 0).then_some((name, count))
    };
    let messages = message::OPCODES.iter();
    let packets = packet::OPCODES.iter();
    let report = SessionReport {
        session,
        name: name.to_owned(),
        batches: wire.batches,
        messages: messages
            .filter_map(|o| counted(&wire.messages, *o as usize, o.name()))
            .collect(),
        failed_messages: wire.failed_messages,
        packets: packets
            .filter_map(|o| counted(&wire.packets, *o as usize, o.name()))
            .collect(),
        launches: wire.launches,
        sleeps: wire.sleeps,
        doorbell_wakeups: wire.doorbell_wakeups,
        faults: wire.faults,
        interrupts: wire.interrupts,
        memory_used_bytes: wire.memory_used_bytes,
        memory_peak_bytes: wire.memory_peak_bytes,
        fault: fault.as_ref().map(ToString::to_string),
        worker: None,
    };
    Some((report, fault, supplement.to_vec()))
}

/// Adds what an earlier session of the same guest has counted.
pub(crate) fn add(total: &mut SessionReport, earlier: &SessionReport) {
    total.batches = total.batches.saturating_add(earlier.batches);
    total.failed_messages = total
        .failed_messages
        .saturating_add(earlier.failed_messages);
    total.launches = total.launches.saturating_add(earlier.launches);
    total.sleeps = total.sleeps.saturating_add(earlier.sleeps);
    total.doorbell_wakeups = total
        .doorbell_wakeups
        .saturating_add(earlier.doorbell_wakeups);
    total.faults = total.faults.saturating_add(earlier.faults);
    total.interrupts = total.interrupts.saturating_add(earlier.interrupts);
    total.memory_peak_bytes = total.memory_peak_bytes.max(earlier.memory_peak_bytes);
    for (mine, theirs) in [
        (&mut total.messages, &earlier.messages),
        (&mut total.packets, &earlier.packets),
    ] {
        for (name, count) in theirs {
            match mine.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(*count),
                None => mine.push((name, *count)),
            }
        }
    }
}

fn count(counts: &[(&'static str, u64)], name: &str) -> u64 {
    let found = counts.iter().find(|(known, _)| *known == name);
    found.map_or(0, |(_, count)| *count)
}

/// Text of a worker, fit for a terminal.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
