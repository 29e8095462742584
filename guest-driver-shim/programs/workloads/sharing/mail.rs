//! Mail between the two guests. Each subject has its own mailbox.

use crate::Required;
use crate::platform::{NoMail, fetch, post};
use causeway_shim::ExportToken;

/// Longest time to wait for the other guest, in milliseconds.
const WAIT_MS: u32 = 60_000;

/// What a mail is about. The value is the number of the mailbox.
#[derive(Clone, Copy)]
pub enum Subject {
    /// Token of the read-only export.
    ReadOnly = 0,
    /// Token of the read-write export.
    ReadWrite = 1,
    /// Token of the export that will be revoked.
    Revocable = 2,
    /// The importer has written its answer.
    Answered = 3,
    /// The importer has mapped the revocable import.
    Mapped = 4,
    /// The exporter has revoked the revocable export.
    Revoked = 5,
    /// The importer is about to lose its device.
    Faulting = 6,
    /// The importer has lost its device, reset it, and verified that it works.
    Recovered = 7,
}

/// Sends mail without content to the other guest.
pub fn tell(subject: Subject) {
    post(subject as u32, &[0; 64]);
}

/// Waits for mail with this subject from the other guest.
#[track_caller]
pub fn hear(subject: Subject) {
    fetch(subject as u32, WAIT_MS).required("a word from the other guest");
}

/// Returns whether the other guest has sent mail with this subject.
///
/// # Panics
/// If the other guest has ended without sending the mail.
#[track_caller]
pub fn heard(subject: Subject) -> bool {
    match fetch(subject as u32, 0) {
        Ok(_) => true,
        Err(NoMail::NotYet) => false,
        Err(hopeless) => panic!("a word from the other guest: {hopeless}"),
    }
}

/// Sends a token to the other guest.
pub fn hand_over(subject: Subject, token: ExportToken) {
    let mut data = [0; 64];
    data[..32].copy_from_slice(&token.0);
    post(subject as u32, &data);
}

/// Waits for a token of the other guest.
pub fn take(subject: Subject) -> ExportToken {
    let data = fetch(subject as u32, WAIT_MS).required("a token from the other guest");
    let mut token = [0; 32];
    token.copy_from_slice(&data[..32]);
    ExportToken(token)
}
