//! A back end that keeps what it is told, and answers by the protocol, or as a test wants it to.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use vhost::vhost_user::message::FrontendReq;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use super::*;
use crate::virtio::driver::wait_for;

/// The feature that says that a back end has features of the protocol.
pub const PROTOCOL: u64 = 1 << 30;
pub const MQ: u64 = 1 << 0;
pub const REPLY_ACK: u64 = 1 << 3;
pub const CONFIG: u64 = 1 << 9;

const HEADER_BYTES: usize = 12;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// A message of the front end.
#[derive(Debug)]
pub struct Message {
    pub request: FrontendReq,
    pub body: Vec<u8>,
    pub file: Option<File>,
    needs_reply: bool,
}

impl Message {
    /// Returns the 32-bit number at `offset` of the body.
    pub fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.body[offset..offset + 4].try_into().unwrap())
    }

    /// Returns the 64-bit number at `offset` of the body.
    pub fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.body[offset..offset + 8].try_into().unwrap())
    }
}

/// What a back end does when it has a message.
pub enum Answer {
    /// What the protocol says.
    Proper,
    /// A reply with these bytes.
    Reply(Vec<u8>),
    /// Bytes that need be no reply.
    Raw(Vec<u8>),
    /// It answers neither this message nor a later one, and keeps the connection.
    NeverAgain,
    /// It closes the connection.
    Leave,
}

/// What a back end says of itself.
#[derive(Clone, Copy)]
pub struct Offer {
    pub features: u64,
    pub protocol: u64,
    pub queues: u64,
}

pub const USUAL: Offer = Offer {
    features: VERSION_1 | FEATURE | PROTOCOL,
    protocol: MQ | REPLY_ACK,
    queues: 8,
};

/// The back end; it ends when the test drops it.
pub struct Scripted {
    messages: Arc<Mutex<Vec<Message>>>,
    stream: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Returns a back end that answers each message as `answer` says, and the connection to it.
    pub fn start(
        offer: Offer,
        answer: impl FnMut(&Message) -> Answer + Send + 'static,
    ) -> (Self, UnixStream) {
        let (stream, front_end) = UnixStream::pair().unwrap();
        let messages = Arc::default();
        let (at_thread, kept) = (stream.try_clone().unwrap(), Arc::clone(&messages));
        let thread = std::thread::spawn(move || serve(&at_thread, offer, answer, &kept));
        let back_end = Self {
            messages,
            stream,
            thread: Some(thread),
        };
        (back_end, front_end)
    }

    /// Returns a back end that keeps to the protocol, and a machine with a device of so many queues
    /// that it serves.
    pub fn with_machine(offer: Offer, queues: u16) -> (Self, Machine) {
        let (back_end, stream) = Self::start(offer, |_| Answer::Proper);
        let process = DeviceProcess::connect(stream, description(queues, PATIENCE), Box::new(()));
        (back_end, machine(process.unwrap()))
    }

    /// Returns the messages since the last call.
    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut self.messages.lock())
    }

    /// Waits until the front end has sent a message of this kind.
    pub fn wait_for(&self, request: FrontendReq) {
        wait_for("a message", || {
            let messages = self.messages.lock();
            messages.iter().any(|message| message.request == request)
        });
    }

    /// Waits until the front end ends the connection.
    pub fn wait_for_end(mut self) {
        let thread = self.thread.take().unwrap();
        wait_for("the end of the connection", || thread.is_finished());
        thread.join().unwrap();
    }

    /// Sends bytes that nobody has asked for.
    pub fn send(&self, bytes: &[u8]) {
        (&self.stream).write_all(bytes).unwrap();
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(
    stream: &UnixStream,
    offer: Offer,
    mut answer: impl FnMut(&Message) -> Answer,
    messages: &Mutex<Vec<Message>>,
) {
    let mut is_mute = false;
    while let Some(message) = receive(stream) {
        let what = match is_mute {
            true => Answer::NeverAgain,
            false => answer(&message),
        };
        let bytes = match what {
            Answer::Proper => proper(offer, &message).map(|body| reply(message.request, &body)),
            Answer::Reply(body) => Some(reply(message.request, &body)),
            Answer::Raw(bytes) => Some(bytes),
            Answer::NeverAgain => {
                is_mute = true;
                None
            }
            Answer::Leave => return drop(stream.shutdown(Shutdown::Both)),
        };
        // A test finds the message when it is answered, and not before.
        let mut messages = messages.lock();
        if let Some(bytes) = bytes {
            // Fails if the front end has given the back end up.
            let _ = { stream }.write_all(&bytes);
        }
        messages.push(message);
    }
}

/// Returns the next message; `None` at the end of the connection.
fn receive(mut stream: &UnixStream) -> Option<Message> {
    let mut header = [0; HEADER_BYTES];
    // The descriptor comes with the first bytes.
    let (received, file) = stream.recv_with_fd(&mut header).ok()?;
    stream.read_exact(&mut header[received..]).ok()?;
    let word = |at: usize| u32::from_le_bytes(header[4 * at..4 * at + 4].try_into().unwrap());
    let mut body = vec![0; word(2) as usize];
    stream.read_exact(&mut body).ok()?;
    Some(Message {
        request: FrontendReq::try_from(word(0)).unwrap(),
        body,
        file,
        needs_reply: word(1) & NEED_REPLY != 0,
    })
}

/// Returns the body of the reply that the protocol wants, if it wants one.
fn proper(offer: Offer, message: &Message) -> Option<Vec<u8>> {
    let number = |value: u64| Some(value.to_le_bytes().to_vec());
    match message.request {
        FrontendReq::GET_FEATURES => number(offer.features),
        FrontendReq::GET_PROTOCOL_FEATURES => number(offer.protocol),
        FrontendReq::GET_QUEUE_NUM => number(offer.queues),
        FrontendReq::GET_VRING_BASE => Some(message.body.clone()),
        _ if message.needs_reply => number(0),
        _ => None,
    }
}

/// Returns a reply to `request` as it is sent.
pub fn reply(request: FrontendReq, body: &[u8]) -> Vec<u8> {
    let header = [request as u32, VERSION | REPLY, body.len() as u32];
    let header = header.map(u32::to_le_bytes).concat();
    [&header, body].concat()
}
