//! Mail between owner and user, if they are different VMs.

use causeway_bare::{fetch, post};
use causeway_guests::Required;
use causeway_shim::ExportToken;

/// Longest time to wait for the other VM, in milliseconds.
const WAIT_MS: u32 = 60_000;
/// Most looks at a mailbox that has the mail of an earlier round.
const LOOKS: u32 = 100_000_000;

/// Tokens from the owner to the user.
#[derive(Clone, Copy)]
pub enum Token {
    Own,
    ReadOnly,
    ReadWrite,
    /// For a kernel that must not use the memory.
    Touched,
    Last,
    /// Of a round, from 1.
    Round(u32),
}

/// Words without content.
#[derive(Clone, Copy)]
pub enum Word {
    Read,
    Written,
    Touched,
    Faulted,
    Counting(u32),
    TakenBack(u32),
}

/// Who has a GPU, and the mailbox with its number.
#[derive(Clone, Copy)]
pub enum Who {
    Owner = 14,
    User = 15,
}

impl Token {
    /// Returns mailbox and round.
    const fn place(self) -> (u32, u32) {
        match self {
            Self::Own => (0, 1),
            Self::ReadOnly => (1, 1),
            Self::ReadWrite => (2, 1),
            Self::Last => (3, 1),
            Self::Round(round) => (4, round),
            Self::Touched => (5, 1),
        }
    }
}

impl Word {
    const fn place(self) -> (u32, u32) {
        match self {
            Self::Read => (8, 1),
            Self::Written => (9, 1),
            Self::Faulted => (10, 1),
            Self::Counting(round) => (11, round),
            Self::TakenBack(round) => (12, round),
            Self::Touched => (13, 1),
        }
    }
}

/// Sends a token to the user.
pub fn send(token: Token, value: ExportToken) {
    deliver(token.place(), &value.0);
}

/// Waits for a token of the owner.
pub fn take(token: Token) -> ExportToken {
    ExportToken(collect(token.place()))
}

/// Sends a word to the other VM.
pub fn tell(word: Word) {
    deliver(word.place(), &[0; 32]);
}

/// Waits for a word of the other VM.
pub fn hear(word: Word) {
    collect(word.place());
}

/// Sends the number of one's GPU to the other VM.
pub fn tell_number(own: Who, gpu: u32) {
    let mut content = [0; 32];
    content[..4].copy_from_slice(&gpu.to_le_bytes());
    deliver((own as u32, 1), &content);
}

/// Waits for the number of the other VM's GPU.
pub fn number_of(other: Who) -> u32 {
    let [a, b, c, d, ..] = collect((other as u32, 1));
    u32::from_le_bytes([a, b, c, d])
}

fn deliver((mailbox, round): (u32, u32), content: &[u8; 32]) {
    let mut mail = [0; 64];
    mail[..32].copy_from_slice(content);
    mail[32..36].copy_from_slice(&round.to_le_bytes());
    post(mailbox, &mail);
}

/// Mail stays in its box until other mail replaces it.
fn collect((mailbox, round): (u32, u32)) -> [u8; 32] {
    for _ in 0..LOOKS {
        let mail = fetch(mailbox, WAIT_MS).required("word of the other VM");
        if mail[32..36] == round.to_le_bytes() {
            let mut content = [0; 32];
            content.copy_from_slice(&mail[..32]);
            return content;
        }
    }
    panic!("no word of the other VM in round {round}, in mailbox {mailbox}");
}
