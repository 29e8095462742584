//! The calls of stream capture.

use std::sync::Arc;

use crate::boundary::{In, Out};
use crate::capture::{GLOBAL, MODE, RELAXED};
use crate::driver::{Driver, call, call_in_context};
use crate::error::{Answer, Code};
use crate::graph::{self, Graph};
use crate::stream::{self, Stream};
use crate::structures::EdgeData;

/// `CUstreamCaptureStatus`
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

fn begin(
    stream: usize,
    mode: u32,
    place: impl FnOnce(&'static Driver) -> Answer<(Arc<Graph>, Vec<usize>)>,
) -> u32 {
    call_in_context(|driver, context| {
        if mode > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        let stream = stream::find(driver, context, stream)?;
        driver.captures.begin(&stream, mode, place(driver)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture(stream: usize) -> u32 {
    cuStreamBeginCapture_v2(stream, GLOBAL)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: usize, mode: u32) -> u32 {
    begin(stream, mode, |_| Ok((Graph::of_capture(), Vec::new())))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCaptureToGraph(
    stream: usize,
    graph: usize,
    dependencies: In<usize>,
    edges: In<EdgeData>,
    count: usize,
    mode: u32,
) -> u32 {
    begin(stream, mode, |driver| {
        let graph = graph::find(driver, graph)?;
        let dependencies = graph.chosen(dependencies, count)?;
        graph::check_edges(edges, count)?;
        Ok((graph, dependencies))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: usize, graph: Out<usize>) -> u32 {
    call_in_context(|driver, context| {
        let stream = stream::find(driver, context, stream)?;
        graph.set_if_wanted(0);
        let (made, result) = driver.captures.end(&stream)?;
        if let Err(code) = result {
            if !made.is_given() {
                graph::forget(driver, &made);
            }
            return Err(code);
        }
        graph::adopt(driver, &made);
        graph.set_if_wanted(made.handle);
        Ok(())
    })
}

/// Refuses a question about the legacy default stream while it cannot be answered, as documented.
fn check_answerable(driver: &Driver, stream: &Stream) -> Answer {
    match stream.is_default && driver.captures.would_block(stream.context) {
        true => Err(Code::STREAM_CAPTURE_IMPLICIT),
        false => Ok(()),
    }
}

fn status(is_valid: bool) -> u32 {
    if is_valid { ACTIVE } else { INVALIDATED }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: usize, into: Out<u32>) -> u32 {
    call_in_context(|driver, context| {
        let stream = stream::find(driver, context, stream)?;
        check_answerable(driver, &stream)?;
        if !stream.is_capturing() {
            return into.set(NONE);
        }
        let membership = stream.membership.lock();
        into.set(match &*membership {
            None => NONE,
            Some(membership) => status(membership.capture.is_valid()),
        })
    })
}

/// Where the answers go of those who ask for all of a capture.
struct Wanted {
    id: Out<u64>,
    graph: Out<usize>,
    dependencies: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
}

fn info(stream: usize, into: Out<u32>, wanted: Wanted) -> u32 {
    call_in_context(|driver, context| {
        if into.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let stream = stream::find(driver, context, stream)?;
        check_answerable(driver, &stream)?;
        let mut membership = stream.membership.lock();
        let Some(membership) = &mut *membership else {
            return into.set(NONE);
        };
        let capture = Arc::clone(&membership.capture);
        into.set(status(capture.is_valid()))?;
        wanted.id.set_if_wanted(capture.id);
        if !capture.is_valid() {
            return Ok(());
        }
        if !wanted.graph.is_null() {
            // The caller may work on the graph meanwhile.
            graph::adopt(driver, &capture.graph);
            wanted.graph.set(capture.graph.handle)?;
        }
        let count = membership.dependencies.len();
        membership.edges = vec![EdgeData::default(); count];
        let nodes = membership.dependencies.as_ptr() as usize;
        wanted.dependencies.set_if_wanted(nodes);
        let edges = membership.edges.as_ptr() as usize;
        wanted.edges.set_if_wanted(edges);
        wanted.count.set_if_wanted(count);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo(stream: usize, into: Out<u32>, id: Out<u64>) -> u32 {
    let nowhere = Out::at(0);
    cuStreamGetCaptureInfo_v2(stream, into, id, nowhere, nowhere, nowhere)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: usize,
    into: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    dependencies: Out<usize>,
    count: Out<usize>,
) -> u32 {
    cuStreamGetCaptureInfo_v3(stream, into, id, graph, dependencies, Out::at(0), count)
}

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
    let wanted = Wanted {
        id,
        graph,
        dependencies,
        edges,
        count,
    };
    info(stream, into, wanted)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamUpdateCaptureDependencies(
    stream: usize,
    dependencies: In<usize>,
    count: usize,
    flags: u32,
) -> u32 {
    cuStreamUpdateCaptureDependencies_v2(stream, dependencies, In::at(0), count, flags)
}

/// Adds dependencies (0) or sets them (1).
#[unsafe(no_mangle)]
extern "C" fn cuStreamUpdateCaptureDependencies_v2(
    stream: usize,
    dependencies: In<usize>,
    edges: In<EdgeData>,
    count: usize,
    flags: u32,
) -> u32 {
    call_in_context(|driver, context| {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let stream = stream::find(driver, context, stream)?;
        let graph = {
            let membership = stream.membership.lock();
            let membership = membership.as_ref().ok_or(Code::ILLEGAL_STATE)?;
            Arc::clone(&membership.capture.graph)
        };
        let dependencies = graph.chosen(dependencies, count)?;
        graph::check_edges(edges, count)?;
        if flags == 1
            && let Some(membership) = &mut *stream.membership.lock()
        {
            membership.dependencies.clear();
        }
        stream.depend(&dependencies)
    })
}

/// Sets the calling thread's mode, and returns the one before in the same place.
#[unsafe(no_mangle)]
extern "C" fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) -> u32 {
    call(|_| {
        let wanted = mode.get()?;
        if wanted > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        mode.set(MODE.replace(wanted))
    })
}
