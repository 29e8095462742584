//! Stream capture (CUDA driver API, "Stream Management"): work of streams becomes a graph instead.
//!
//! What is captured is executed in the order in which it was captured, which every order of its
//! dependencies allows.

use std::sync::{Arc, Mutex};

use crate::boundary::Out;
use crate::driver::{call_in_context, lock};
use crate::error::{Answer, Code};
use crate::graph::Graph;
use crate::handles;
use crate::stream::{self, Stream};
use crate::work::Work;

/// A capture under way.
pub(crate) struct Capture {
    pub(crate) id: usize,
    device: usize,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    work: Vec<Work>,
    joined: Vec<Arc<Stream>>,
    invalid: bool,
}

impl Capture {
    /// Notes work.
    pub(crate) fn add(&self, work: Work) -> Answer {
        let mut content = lock(&self.content);
        if content.invalid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        content.work.push(work);
        Ok(())
    }

    /// Makes a stream that waits for an event of this capture part of it.
    pub(crate) fn join(self: &Arc<Self>, stream: &Arc<Stream>) -> Answer {
        match stream.capture() {
            Some(other) if Arc::ptr_eq(&other, self) => Ok(()),
            Some(other) => {
                other.invalidate();
                self.invalidate();
                Err(Code::STREAM_CAPTURE_MERGE)
            }
            None => {
                stream.set_capture(Some(Arc::clone(self)));
                lock(&self.content).joined.push(Arc::clone(stream));
                Ok(())
            }
        }
    }

    /// Ends what this can become; the stream still has to end it.
    pub(crate) fn invalidate(&self) {
        lock(&self.content).invalid = true;
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: usize, mode: u32) -> u32 {
    call_in_context(|driver, context| {
        if mode > 2 {
            return Err(Code::INVALID_VALUE);
        }
        let stream = stream::find(driver, context, stream)?;
        // The legacy default stream cannot be captured, nor a stream twice.
        if stream.is_default {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if stream.capture().is_some() {
            return Err(Code::INVALID_VALUE);
        }
        let capture = Capture {
            id: handles::fresh(),
            device: stream.device,
            content: Mutex::new(Content {
                joined: vec![Arc::clone(&stream)],
                ..Content::default()
            }),
        };
        stream.set_capture(Some(Arc::new(capture)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: usize, graph: Out<usize>) -> u32 {
    call_in_context(|driver, context| {
        let stream = stream::find(driver, context, stream)?;
        let capture = stream.capture().ok_or(Code::INVALID_VALUE)?;
        let mut content = std::mem::take(&mut *lock(&capture.content));
        let is_origin = content
            .joined
            .first()
            .is_some_and(|first| Arc::ptr_eq(first, &stream));
        if !is_origin {
            content.invalid = true;
            *lock(&capture.content) = content;
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        for joined in &content.joined {
            joined.set_capture(None);
        }
        if content.invalid {
            graph.set_if_wanted(0);
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        let mut made = Graph::new(capture.device);
        for work in content.work {
            made.add(work);
        }
        graph.set(driver.state().graphs.insert(Arc::new(Mutex::new(made))))
    })
}

/// 0 no capture, 1 active, 2 invalidated.
fn status(stream: &Stream) -> (u32, u64) {
    match stream.capture() {
        None => (0, 0),
        Some(capture) if lock(&capture.content).invalid => (2, capture.id as u64),
        Some(capture) => (1, capture.id as u64),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: usize, into: Out<u32>) -> u32 {
    call_in_context(|driver, context| {
        let stream = stream::find(driver, context, stream)?;
        into.set(status(&stream).0)
    })
}

/// Status and number of the capture. Its graph and dependencies are not shown while it goes on.
#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: usize,
    into: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    dependencies: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> u32 {
    call_in_context(|driver, context| {
        let stream = stream::find(driver, context, stream)?;
        let shown = [
            graph.is_null(),
            dependencies.is_null(),
            edges.is_null(),
            count.is_null(),
        ];
        if shown != [true; 4] {
            return Err(Code::NOT_SUPPORTED);
        }
        let (state, number) = status(&stream);
        into.set(state)?;
        id.set_if_wanted(number);
        Ok(())
    })
}
