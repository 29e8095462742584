//! Reports and samples of a session, as they cross a socket.

use causeway_mediator::backend::Fault;
use causeway_mediator::{Activity, SessionReport, Statistics};
use causeway_protocol::message::Status;

use crate::wire::{Reported, Sampled, TEXT_BYTES_MAX};

/// Returns the report as a message, and the text of the fault that follows it.
pub(crate) fn to_wire(report: &SessionReport, fault: Option<&Fault>) -> (Reported, String) {
    let mut text = fault.map(|fault| fault.text.clone()).unwrap_or_default();
    truncate(&mut text);
    let wire = Reported {
        statistics: report.statistics.values().map(|value| *value),
        messages: report.messages,
        packets: report.packets,
        fault_status: fault.map_or(0, |fault| fault.status as u32),
        fault_bytes: text.len() as u32,
    };
    (wire, text)
}

/// A report that a worker has sent: the session's, its fault, and what the worker's program added.
pub(crate) type ReceivedReport = (SessionReport, Option<Fault>, Vec<u8>);

/// Returns the report of the session `name`, its fault, and what the binary added. None if the
/// message is malformed.
pub(crate) fn from_wire(
    wire: &Reported,
    rest: &[u8],
    session: u64,
    name: &str,
) -> Option<ReceivedReport> {
    let (text, supplement) = rest.split_at_checked(wire.fault_bytes as usize)?;
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let fault = match wire.fault_status {
        0 => None,
        status => Some(Fault::new(Status::from_wire(status)?, printable(text))),
    };
    let report = SessionReport {
        session,
        name: name.to_owned(),
        statistics: Statistics::from_values(wire.statistics),
        messages: wire.messages,
        packets: wire.packets,
        fault: fault.as_ref().map(ToString::to_string),
        ..SessionReport::default()
    };
    Some((report, fault, supplement.to_vec()))
}

impl From<Activity> for Sampled {
    fn from(activity: Activity) -> Self {
        Self {
            statistics: activity.statistics.values().map(|value| *value),
            lost: activity.lost.into(),
        }
    }
}

impl From<Sampled> for Activity {
    fn from(sampled: Sampled) -> Self {
        Self {
            statistics: Statistics::from_values(sampled.statistics),
            lost: sampled.lost != 0,
        }
    }
}

/// Cuts a text to what fits a datagram.
pub(crate) fn truncate(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
}

/// Returns a text of a worker without control characters, so that it can be printed.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
