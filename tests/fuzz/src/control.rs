//! Control batches: whatever a guest writes, the session answers, stays within its quota, and
//! leaves nothing.

use std::sync::Arc;

use causeway_mediator::{Client, GuestSession, Mediator, Quota, Session};
use causeway_mediator_testing::{FakeBackend, FakeHost, Live};
use causeway_protocol::message::{Header, OPCODES, Opcode, Status, message_bytes};
use causeway_protocol::packet::{self, Fence, UNIT_BYTES};
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};
use zerocopy::IntoBytes;

/// What the session may have: little, so that the limits are met.
pub const QUOTA: Quota = Quota {
    memory_bytes: 4 << 20,
    module_bytes: 64 << 10,
    allocations: 32,
    command_buffers: 2,
    objects: 64,
    ..Quota::DEFAULT
};
const RAM_BYTES: u64 = 1 << 20;
/// Guest-physical address of [`PACKETS_BYTES`] bytes of packets that can be recorded.
pub const PACKETS: u64 = 64 << 10;
/// Bytes there.
pub const PACKETS_BYTES: u64 = 64 << 10;
/// Clients that have agreed on a version.
pub const CLIENTS: usize = 3;
const APERTURE_BYTES: u64 = 16 << 20;
const HEADER_BYTES: usize = size_of::<Header>();

/// A session that takes one batch after the other.
pub struct Control {
    backend: Arc<FakeBackend>,
    session: Arc<Session>,
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

impl Control {
    /// A session that has agreed on a version, and whose waits return at once.
    pub fn new() -> Self {
        let backend = FakeBackend::new();
        backend.define("k", 16, |_| Ok(()));
        let host = FakeHost::new(RAM_BYTES, APERTURE_BYTES).expect("memory for a guest");
        host.ram_mapping()
            .write(0, b"kernel k\nvariable k 8")
            .expect("RAM for a module");
        for at in (0..PACKETS_BYTES).step_by(UNIT_BYTES) {
            let written = host.ram_mapping().write(PACKETS + at, release().as_bytes());
            written.expect("RAM for packets");
        }
        let mediator = Mediator::new(Arc::clone(&backend) as _);
        let session = mediator.open(host, QUOTA, "fuzz");
        session.interrupt();
        let control = Self { backend, session };
        let mut hello = message(Opcode::Hello);
        hello[HEADER_BYTES..HEADER_BYTES + 2].copy_from_slice(&VERSION_MAJOR.to_le_bytes());
        hello[HEADER_BYTES + 2..HEADER_BYTES + 4].copy_from_slice(&VERSION_MINOR.to_le_bytes());
        for client in Client::all().take(CLIENTS) {
            let taken = control.session.execute(client, &mut hello.clone());
            assert_eq!(taken, Status::Ok);
        }
        control
    }

    /// Executes a batch of any bytes. Returns whether it was taken.
    pub fn execute(&self, batch: &mut [u8]) -> bool {
        self.execute_as(0, batch)
    }

    /// Executes a batch of any bytes for one of [`CLIENTS`] clients. Returns whether it was taken.
    pub fn execute_as(&self, client: u32, batch: &mut [u8]) -> bool {
        let client = Client::new(client % CLIENTS as u32).expect("a page that exists");
        let before = batch.to_vec();
        let is_taken = self.session.execute(client, batch) == Status::Ok;
        if !is_taken {
            assert_eq!(batch, before, "a batch that was not taken was changed");
        }
        let live = self.backend.live();
        assert!(live.bytes <= QUOTA.memory_bytes, "{} bytes", live.bytes);
        is_taken
    }

    /// Ends what a client owns; a session that was lost begins anew once all have come to that.
    pub fn reset(&self, client: u32) {
        let client = Client::new(client % CLIENTS as u32).expect("a page that exists");
        self.session.reset_client(client);
        assert_eq!(self.session.owners() & client.bit(), 0);
    }

    /// Ends the session, and sees to it that everything is gone.
    pub fn finish(self) {
        self.session.close();
        assert!(self.backend.peak_bytes() <= QUOTA.memory_bytes);
        assert_eq!(self.backend.live(), Live::default());
    }
}

/// A packet that is right whatever the session has.
fn release() -> Fence {
    let header = packet::Header {
        opcode: packet::Opcode::FenceRelease as u16,
        reserved: 0,
        units: 1,
    };
    Fence {
        header,
        ..Fence::default()
    }
}

/// A message of the right length, with nothing in its body.
pub fn message(opcode: Opcode) -> Vec<u8> {
    let mut bytes = vec![0; message_bytes(opcode)];
    write_head(&mut bytes, opcode);
    bytes
}

fn write_head(bytes: &mut [u8], opcode: Opcode) {
    bytes[..HEADER_BYTES].fill(0);
    bytes[..2].copy_from_slice(&(opcode as u16).to_le_bytes());
    bytes[4..8].copy_from_slice(&(message_bytes(opcode) as u32).to_le_bytes());
}

/// Gives every message in `bytes` a right head, as its first byte chooses, and cuts off what is
/// left: a fuzzer then spends its time behind the framing.
pub fn frame(bytes: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(first) = bytes.get(at) {
        let opcode = OPCODES[usize::from(*first) % OPCODES.len()];
        let end = at + message_bytes(opcode);
        if end > bytes.len() {
            break;
        }
        write_head(&mut bytes[at..end], opcode);
        at = end;
    }
    bytes.truncate(at);
}
