//! What the two guests tell each other. Each subject has a box of its own.

use crate::Required;
use crate::platform::{NoMail, fetch, post};
use causeway_shim::ExportToken;

/// How long to wait for the other guest, in milliseconds.
const WAIT_MS: u32 = 60_000;

/// Subjects, by box.
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
    /// The exporter has revoked.
    Revoked = 5,
    /// The importer is about to lose its device.
    Faulting = 6,
    /// The importer has lost its device, reset it, and verified that it works.
    Recovered = 7,
}

/// Tells the other guest.
pub fn tell(subject: Subject) {
    post(subject as u32, &[0; 64]);
}

/// Waits for the other guest.
#[track_caller]
pub fn hear(subject: Subject) {
    fetch(subject as u32, WAIT_MS).required("a word from the other guest");
}

/// Whether the other guest has said so already.
///
/// # Panics
/// If the other guest will not say it any more.
#[track_caller]
pub fn heard(subject: Subject) -> bool {
    match fetch(subject as u32, 0) {
        Ok(_) => true,
        Err(NoMail::NotYet) => false,
        Err(hopeless) => panic!("a word from the other guest: {hopeless}"),
    }
}

/// Hands a token over.
pub fn hand_over(subject: Subject, token: ExportToken) {
    let mut data = [0; 64];
    data[..32].copy_from_slice(&token.0);
    post(subject as u32, &data);
}

/// Takes a token.
pub fn take(subject: Subject) -> ExportToken {
    let data = fetch(subject as u32, WAIT_MS).required("a token from the other guest");
    let mut token = [0; 32];
    token.copy_from_slice(&data[..32]);
    ExportToken(token)
}
