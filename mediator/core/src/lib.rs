//! The mediator: sessions of guests on a GPU, without knowing KVM or any particular GPU.
//!
//! A VMM opens a [`Session`] for each guest and passes it the guest's control batches. The session
//! validates them and drives a [`backend::Backend`]. It asks the [`host::Host`] to place memory in
//! the guest's physical address space and to remove it. One consumer thread for each command buffer
//! reads its packets, without the VMM.
//!
//! The processes of one guest share its session as [`Client`]s: each owns the objects that it
//! created, and sees no others.
//!
//! # Locks
//!
//! Locks are taken in this order, and never two of the same kind: a session's `State`; the
//! exchange of exports; the fences that a [`Session`]'s notifier watches; then leaves, which are
//! the sessions of a mediator, its arbiter, a session's lease, its pulse, and its clock of busy
//! times, the rings of a session, doorbells, the `HandleMap`s of an address space, `Generation`,
//! the fence signal, and the locks inside a back end or a host.
//!
//! A revocation reaches into other sessions: the exchange collects them, releases its lock, and
//! then they lock one `State` at a time. No lock is held while work executes, while a guest sleeps
//! in `Wait`, or while a thread is joined. A host that calls a session holds no lock that its
//! [`host::Host`] methods take.

mod arbiter;
pub mod backend;
mod batch;
mod bell;
mod busy;
mod charged;
mod client;
mod client_session;
mod command_buffer;
mod decode;
mod fence;
mod generation;
pub mod gpus;
mod guest_session;
mod handles;
pub mod host;
mod imported;
mod imports;
mod lease;
pub mod linked;
mod loads;
mod mediator;
mod notify;
mod object;
mod operations;
mod owners;
mod pace;
mod peers;
mod quota;
mod refusal;
mod report;
mod reset;
pub mod rights;
mod session;
mod session_inner;
pub mod share;
mod shared;
mod shared_space;
mod state;
pub mod statistics;
pub mod va;
mod watchdog;

pub use arbiter::Compute;
pub use busy::Bursts;
pub use client::Client;
pub use gpus::{GpuSet, Gpus, Link};
pub use guest_session::{GivesUp, GuestSession, InForce, OpenError, SessionSource};
pub use lease::{LeaseOrder, LeaseReport, Lender};
pub use mediator::Mediator;
pub use peers::Peers;
pub use quota::{LimitChange, LimitError, LiveLimits, Quota};
pub use report::{SessionReport, WorkerReport};
pub use rights::Rights;
pub use session::Session;
pub use session_inner::SESSION_FEATURES;
pub use statistics::{Activity, Statistics};
