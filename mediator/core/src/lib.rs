//! The mediator: sessions of guests on a GPU, without knowing KVM or any particular GPU.
//!
//! A VMM opens a [`Session`] per guest and hands it the control batches that the guest rings for. The
//! session validates them and drives a [`backend::Backend`]; what has to appear in, or vanish from, the
//! guest's physical address space it asks of the [`host::Host`]. Packets in command buffers are read by
//! a consumer thread per command buffer, without the VMM.
//!
//! The processes of one guest share its session as [`Client`]s: each owns what it made, and sees nothing else.
//!
//! # Locks
//!
//! In this order, and never two of the same kind: a session's `State`, the exchange of exports, the fences that are
//! watched, then leaves (the list of a mediator's sessions, that of a session's rings, doorbells, function tables, `Generation`, the fence signal,
//! whatever a back end or a host has inside). Revocation reaches into other sessions: the exchange collects them, lets its lock go, and then
//! has them locked one `State` at a time. No lock is held while work executes, while a guest sleeps in `Wait`,
//! or while a thread is joined. A host calls into a session with no lock held that its [`host::Host`]
//! methods take.

pub mod backend;
mod batch;
mod bell;
mod charged;
mod client;
mod client_session;
mod command_buffer;
mod decode;
mod fence;
mod generation;
mod guest_session;
mod handles;
pub mod host;
mod mediator;
mod notify;
mod object;
mod operations;
mod owners;
mod quota;
mod refusal;
mod report;
mod reset;
mod session;
mod session_inner;
pub mod share;
mod shared_space;
mod state;
pub mod statistics;
pub mod va;

pub use client::Client;
pub use guest_session::{GuestSession, OpenError, SessionSource};
pub use mediator::Mediator;
pub use quota::Quota;
pub use report::{SessionReport, WorkerReport};
pub use session::Session;
pub use session_inner::SESSION_FEATURES;
pub use statistics::{Activity, Statistics};
