//! Stream capture (CUDA driver API, "Stream Management"): work of streams becomes a graph instead.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

use parking_lot::Mutex;

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::graph::Graph;
use crate::graph::node::Kind;
use crate::stream::Stream;
use crate::structures::EdgeData;

/// `CUstreamCaptureMode`
pub(crate) const GLOBAL: u32 = 0;
pub(crate) const RELAXED: u32 = 2;

thread_local! {
    /// How strict the calling thread is about calls that captures of others forbid.
    pub(crate) static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// A capture under way.
pub(crate) struct Capture {
    pub(crate) id: u64,
    context: usize,
    mode: u32,
    thread: ThreadId,
    origin: Weak<Stream>,
    pub(crate) graph: Arc<Graph>,
    is_valid: AtomicBool,
    is_over: AtomicBool,
    /// Whether the legacy default stream would wait for one of its streams.
    has_blocking: AtomicBool,
    members: Mutex<Vec<Weak<Stream>>>,
}

/// The part of a stream in a capture.
pub(crate) struct Membership {
    pub(crate) capture: Arc<Capture>,
    /// Nodes on which the next node of the stream depends. Callers are shown this memory.
    pub(crate) dependencies: Vec<usize>,
    /// Data of the edges to them, for callers who ask.
    pub(crate) edges: Vec<EdgeData>,
}

/// What an event has noted of a stream that was being captured.
#[derive(Clone)]
pub(crate) struct Captured {
    capture: Arc<Capture>,
    dependencies: Vec<usize>,
}

/// All captures under way.
#[derive(Default)]
pub(crate) struct Captures {
    /// How many there are, for those who only want to know whether there is one.
    count: AtomicUsize,
    active: Mutex<Vec<Arc<Capture>>>,
}

impl Captures {
    /// Begins the capture of a stream into a graph, behind some of its nodes.
    pub(crate) fn begin(
        &self,
        stream: &Arc<Stream>,
        mode: u32,
        (graph, dependencies): (Arc<Graph>, Vec<usize>),
    ) -> Answer {
        // The legacy default stream cannot be captured, nor a stream twice.
        if stream.is_default {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if stream.is_capturing() {
            return Err(Code::ILLEGAL_STATE);
        }
        let capture = Arc::new(Capture {
            id: crate::handles::fresh() as u64,
            context: stream.context,
            mode,
            thread: std::thread::current().id(),
            origin: Arc::downgrade(stream),
            graph,
            is_valid: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            has_blocking: AtomicBool::new(false),
            members: Mutex::default(),
        });
        capture.add_member(stream, dependencies);
        self.active.lock().push(capture);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the capture that began in `stream`. Returns its graph, and whether it may be used.
    pub(crate) fn end(&self, stream: &Arc<Stream>) -> Answer<(Arc<Graph>, Answer)> {
        let captured = stream.captured().map_err(|_| Code::ILLEGAL_STATE)?;
        let capture = captured.capture;
        if !std::ptr::eq(capture.origin.as_ptr(), Arc::as_ptr(stream)) {
            capture.invalidate();
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let is_joined = capture.is_joined(&captured.dependencies);
        self.close(&capture);
        let result = match (capture.is_valid(), is_joined) {
            (false, _) => Err(Code::STREAM_CAPTURE_INVALIDATED),
            (true, false) => Err(Code::STREAM_CAPTURE_UNJOINED),
            (true, true) => Ok(()),
        };
        Ok((Arc::clone(&capture.graph), result))
    }

    /// Lets all streams of a capture go.
    fn close(&self, capture: &Arc<Capture>) {
        capture.is_over.store(true, Ordering::Relaxed);
        let members = std::mem::take(&mut *capture.members.lock());
        for member in members.iter().filter_map(Weak::upgrade) {
            member.set_membership(None);
        }
        let mut active = self.active.lock();
        let before = active.len();
        active.retain(|other| !Arc::ptr_eq(other, capture));
        self.count
            .fetch_sub(before - active.len(), Ordering::Relaxed);
    }

    /// Returns whether a stream is being captured.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Ends the captures of a context.
    pub(crate) fn end_of_context(&self, context: usize) {
        for capture in self.chosen(|capture| capture.context == context) {
            capture.invalidate();
            self.close(&capture);
        }
    }

    fn chosen(&self, is_chosen: impl Fn(&Capture) -> bool) -> Vec<Arc<Capture>> {
        if !self.are_any() {
            return Vec::new();
        }
        let active = self.active.lock();
        active.iter().filter(|c| is_chosen(c)).cloned().collect()
    }

    /// Refuses with `code` if there is a capture for which `is_chosen` holds, and makes it fail.
    #[inline]
    fn refuse(&self, code: Code, is_chosen: impl Fn(&Capture) -> bool) -> Answer {
        let chosen = self.chosen(is_chosen);
        chosen.iter().for_each(|capture| capture.invalidate());
        match chosen.is_empty() {
            true => Ok(()),
            false => Err(code),
        }
    }

    /// Refuses what a context cannot do while one of its streams is being captured.
    pub(crate) fn check_none_in(&self, context: usize) -> Answer {
        self.refuse(Code::STREAM_CAPTURE_UNSUPPORTED, |capture| {
            capture.context == context
        })
    }

    /// Refuses work of the legacy default stream that would wait for a captured stream.
    #[inline]
    pub(crate) fn check_implicit(&self, context: usize) -> Answer {
        self.refuse(Code::STREAM_CAPTURE_IMPLICIT, |capture| {
            capture.would_block(context)
        })
    }

    /// Returns whether work of the legacy default stream would wait for a captured stream.
    pub(crate) fn would_block(&self, context: usize) -> bool {
        !self
            .chosen(|capture| capture.would_block(context))
            .is_empty()
    }

    /// Refuses a call that CUDA calls potentially unsafe during a capture, such as an allocation
    /// (`cuThreadExchangeStreamCaptureMode`).
    #[inline]
    pub(crate) fn check_unsafe(&self) -> Answer {
        if !self.are_any() {
            return Ok(());
        }
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        self.refuse(Code::STREAM_CAPTURE_UNSUPPORTED, |capture| {
            capture.forbids(mode, thread)
        })
    }
}

impl Capture {
    /// Returns whether work goes into the graph still.
    pub(crate) fn is_valid(&self) -> bool {
        self.is_valid.load(Ordering::Relaxed)
    }

    /// Makes the capture fail; its origin still has to end it.
    pub(crate) fn invalidate(&self) {
        self.is_valid.store(false, Ordering::Relaxed);
    }

    fn would_block(&self, context: usize) -> bool {
        self.context == context && self.has_blocking.load(Ordering::Relaxed)
    }

    /// Returns whether the capture forbids unsafe calls of a thread with a mode.
    fn forbids(&self, mode: u32, thread: ThreadId) -> bool {
        let is_own = self.thread == thread;
        match (mode, self.mode) {
            (RELAXED, _) | (_, RELAXED) => false,
            (GLOBAL, GLOBAL) => true,
            _ => is_own,
        }
    }

    fn add_member(self: &Arc<Self>, stream: &Arc<Stream>, dependencies: Vec<usize>) {
        if stream.is_blocking() {
            self.has_blocking.store(true, Ordering::Relaxed);
        }
        self.members.lock().push(Arc::downgrade(stream));
        stream.set_membership(Some(Membership {
            capture: Arc::clone(self),
            dependencies,
            edges: Vec::new(),
        }));
    }

    /// Returns whether the work of a stream comes before that of the others.
    fn is_joined_by_others(&self, stream: &Arc<Stream>, own: &Captured) -> bool {
        let members = self.members.lock().clone();
        let members = members.iter().filter_map(Weak::upgrade);
        let others = members.filter(|member| !Arc::ptr_eq(member, stream));
        let ends = others.filter_map(|other| Some(other.captured().ok()?.dependencies));
        let ends: Vec<usize> = ends.flatten().collect();
        own.is_within(&self.graph.ancestors(&ends))
    }

    /// Returns whether the work of all streams comes before `ends`.
    fn is_joined(&self, ends: &[usize]) -> bool {
        let before = self.graph.ancestors(ends);
        let members = self.members.lock().clone();
        let members = members.iter().filter_map(Weak::upgrade);
        members
            .filter_map(|member| member.captured().ok())
            .all(|captured| captured.is_within(&before))
    }
}

impl Captured {
    fn is_within(&self, nodes: &BTreeSet<usize>) -> bool {
        self.dependencies.iter().all(|node| nodes.contains(node))
    }

    /// Makes later work of a stream depend on what this has noted.
    pub(crate) fn join(self, stream: &Arc<Stream>) -> Answer {
        let Self {
            capture,
            dependencies,
        } = self;
        if stream.is_default {
            capture.invalidate();
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
        let own = stream.captured().ok();
        if capture.is_over.load(Ordering::Relaxed) {
            return match own {
                None => Err(Code::CAPTURED_EVENT),
                Some(own) => {
                    own.capture.invalidate();
                    Err(Code::STREAM_CAPTURE_ISOLATION)
                }
            };
        }
        match own {
            Some(own) if !Arc::ptr_eq(&own.capture, &capture) => {
                own.capture.invalidate();
                capture.invalidate();
                Err(Code::STREAM_CAPTURE_MERGE)
            }
            Some(_) => stream.depend(&dependencies),
            None => {
                capture.add_member(stream, dependencies);
                Ok(())
            }
        }
    }
}

impl Stream {
    /// Returns the capture that the stream is part of, and how far it is.
    pub(crate) fn captured(&self) -> Answer<Captured> {
        let membership = self.membership.lock();
        let membership = membership
            .as_ref()
            .ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
        Ok(Captured {
            capture: Arc::clone(&membership.capture),
            dependencies: membership.dependencies.clone(),
        })
    }

    /// Makes the next node of the stream depend on further nodes.
    pub(crate) fn depend(&self, nodes: &[usize]) -> Answer {
        let mut membership = self.membership.lock();
        let membership = membership.as_mut().ok_or(Code::ILLEGAL_STATE)?;
        for node in nodes {
            if !membership.dependencies.contains(node) {
                membership.dependencies.push(*node);
            }
        }
        Ok(())
    }

    /// Makes a node of what the stream does next. Callers learn its handle later, if at all.
    pub(crate) fn note(&self, kind: Kind) -> Answer {
        let mut membership = self.membership.lock();
        let membership = membership.as_mut();
        let membership = membership.ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
        if !membership.capture.is_valid() {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        let graph = Arc::clone(&membership.capture.graph);
        // Nodes that were destroyed meanwhile are no dependencies.
        membership.dependencies.retain(|node| graph.has(*node));
        let node = graph.add(kind, &membership.dependencies)?;
        membership.dependencies = vec![node];
        Ok(())
    }
}

/// Ends what a capture has of a stream that is destroyed. A capture does not survive its origin,
/// nor a stream with work that no other waits for.
pub(crate) fn end_of_stream(driver: &Driver, stream: &Arc<Stream>) {
    let Ok(own) = stream.captured() else {
        return;
    };
    let capture = &own.capture;
    if std::ptr::eq(capture.origin.as_ptr(), Arc::as_ptr(stream)) {
        capture.invalidate();
        return driver.captures.close(capture);
    }
    if !capture.is_joined_by_others(stream, &own) {
        capture.invalidate();
    }
    stream.set_membership(None);
}

#[cfg(test)]
mod tests;
