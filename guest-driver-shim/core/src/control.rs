//! Control messages: batches are written into the control area, executed by one register store (one
//! exit, however many messages), and their replies read back.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use causeway_protocol::message::{Header, Opcode, Operation, Status, message_bytes};
use causeway_protocol::registers::Register;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Refusal;
use crate::transport::{ControlArea, Transport};

/// The control area, and the ticket lock by which one CPU at a time uses it.
pub(crate) struct Control<'t> {
    transport: &'t dyn Transport,
    area: ControlArea,
    next: AtomicU32,
    serving: AtomicU32,
}

impl fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let area = &self.area;
        f.debug_struct("Control")
            .field("area", area)
            .finish_non_exhaustive()
    }
}

impl<'t> Control<'t> {
    pub(crate) fn new(transport: &'t dyn Transport) -> Self {
        let area = transport.control_area();
        Self {
            transport,
            area,
            next: AtomicU32::new(0),
            serving: AtomicU32::new(0),
        }
    }

    pub(crate) fn transport(&self) -> &'t dyn Transport {
        self.transport
    }

    /// Tells the device where the control area is.
    pub(crate) fn announce(&self) {
        let address = self.area.address;
        self.transport
            .write_register(Register::ControlBaseLow, address as u32);
        self.transport
            .write_register(Register::ControlBaseHigh, (address >> 32) as u32);
    }

    fn lock(&self) -> ControlLock<'_> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        while self.serving.load(Ordering::Acquire) != ticket {
            core::hint::spin_loop();
        }
        ControlLock(self)
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch {
            lock: self.lock(),
            bytes: 0,
            messages: 0,
            overflow: None,
        }
    }
}

/// The right to use the control area, until it is dropped.
#[derive(Debug)]
struct ControlLock<'c>(&'c Control<'c>);

impl Drop for ControlLock<'_> {
    fn drop(&mut self) {
        // Only the holder stores to it.
        let ticket = self.0.serving.load(Ordering::Relaxed);
        let next = ticket.wrapping_add(1);
        self.0.serving.store(next, Ordering::Release);
    }
}

/// Identifies a message of a batch. [`Replies::get`] and [`Replies::require`] return the reply to
/// the message.
#[derive(Clone, Copy, Debug)]
pub struct Ticket<O> {
    offset: usize,
    operation: PhantomData<fn() -> O>,
}

/// Control messages that are sent together, with one exit.
///
/// A message may contain [`PREVIOUS`](causeway_protocol::message::PREVIOUS) in place of a handle:
/// it stands for the object that the latest earlier message of the same batch created. No other CPU
/// can begin a batch before this batch, or the replies to it, are dropped.
#[derive(Debug)]
#[must_use = "a batch does nothing before `execute`"]
pub struct Batch<'c> {
    lock: ControlLock<'c>,
    bytes: usize,
    messages: u32,
    overflow: Option<Refusal>,
}

impl<'c> Batch<'c> {
    /// Adds a message to the batch, and returns the ticket for its reply. If the message does not
    /// fit the control area, [`Self::execute`] executes no message of the batch.
    pub fn push<O: Operation>(&mut self, request: &O::Request) -> Ticket<O> {
        let area = self.lock.0.area.window;
        let offset = self.bytes;
        let length = message_bytes(O::OPCODE);
        let header = Header {
            opcode: O::OPCODE as u16,
            length: length as u32,
            ..Header::default()
        };
        let body = offset + size_of::<Header>();
        let request = request.as_bytes();
        let tail = length - size_of::<Header>() - request.len();
        let written = area
            .write(offset, header.as_bytes())
            .and_then(|()| area.write(body, request))
            .and_then(|()| area.zero(body + request.len(), tail));
        match written {
            Ok(()) => {
                self.bytes += length;
                self.messages += 1;
            }
            Err(_) => {
                let (status, area_bytes) = (Status::BadLength as u32, area.bytes() as u32);
                self.overflow = Some(Refusal::from_wire(None, status, area_bytes));
            }
        }
        Ticket {
            offset,
            operation: PhantomData,
        }
    }

    /// Sends the batch to the device, which executes the messages in order up to the first that
    /// fails. One exit.
    pub fn execute(self) -> Replies<'c> {
        let mut replies = Replies {
            lock: self.lock,
            done_bytes: 0,
            refusal: self.overflow,
        };
        if replies.refusal.is_some() {
            return replies;
        }
        fence(Ordering::Release);
        let transport = replies.lock.0.transport;
        transport.write_register(Register::ControlDoorbell, self.bytes as u32);
        fence(Ordering::Acquire);
        for _ in 0..self.messages {
            let header: Header = replies.copy(replies.done_bytes);
            match Opcode::from_wire(header.opcode) {
                Some(opcode) if header.status == Status::Ok as u32 => {
                    replies.done_bytes += message_bytes(opcode);
                }
                opcode => {
                    let refusal = Refusal::from_wire(opcode, header.status, header.detail);
                    replies.refusal = Some(refusal);
                    break;
                }
            }
        }
        replies
    }
}

/// Replies to the messages of a batch. No other CPU can begin a batch before they are dropped.
#[derive(Debug)]
pub struct Replies<'c> {
    lock: ControlLock<'c>,
    /// Bytes of the messages that have been done.
    done_bytes: usize,
    refusal: Option<Refusal>,
}

impl Replies<'_> {
    /// Returns the refusal that ended the batch early, or `None` if all messages were executed. The
    /// messages before the refused message were executed, those after it were not.
    ///
    /// If the batch did not fit the control area, no message was executed: the refusal's status is
    /// `BadLength`, and its detail is the size of the area in bytes.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Returns the reply to a message of this batch, or `None` if the message was not executed or
    /// was refused.
    #[must_use]
    pub fn get<O: Operation>(&self, ticket: Ticket<O>) -> Option<O::Reply> {
        let body = ticket.offset + size_of::<Header>();
        (ticket.offset < self.done_bytes).then(|| self.copy(body))
    }

    /// Returns the reply to a message of this batch.
    ///
    /// # Errors
    /// The [`Refusal`] that ended the batch, if the device refused this message or an earlier one.
    pub fn require<O: Operation>(&self, ticket: Ticket<O>) -> Result<O::Reply, Refusal> {
        let not_run = Refusal::new(O::OPCODE, Status::NotRun, 0);
        self.get(ticket).ok_or(self.refusal.unwrap_or(not_run))
    }

    /// The reply body as it stands, whether or not the message has been done.
    pub(crate) fn body<O: Operation>(&self, ticket: Ticket<O>) -> O::Reply {
        self.copy(ticket.offset + size_of::<Header>())
    }

    fn copy<V: FromBytes + IntoBytes>(&self, offset: usize) -> V {
        let mut value = V::new_zeroed();
        // It lies inside: the message was written there. Were it not so, the reply would be zero.
        let _ = self.lock.0.area.window.read(offset, value.as_mut_bytes());
        value
    }
}
