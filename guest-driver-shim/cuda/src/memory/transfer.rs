//! How copies are done, once their shape is known.

use super::Place;
use super::pageable::{download, upload};
use super::segments::{Segment, Shape};
use crate::boundary;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::stream::Stream;
use crate::work::Work;

/// Most copies that are submitted as one piece of work.
pub(super) const GROUP_COPIES: usize = 1024;
/// Most parts into which a copy that overlaps itself is divided.
const OVERLAP_PARTS_MAX: u64 = 4096;

/// Which of the two sides must be memory that the GPU reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Unified addressing says.
    Any,
    DeviceToDevice,
    HostToDevice,
    DeviceToHost,
}

impl Direction {
    fn check(self, to: Place, from: Place) -> Answer {
        let reached = |place| matches!(place, Place::Gpu { .. });
        let is_fine = match self {
            Self::Any => true,
            Self::DeviceToDevice => reached(to) && reached(from),
            Self::HostToDevice => reached(to),
            Self::DeviceToHost => reached(from),
        };
        is_fine.then_some(()).ok_or(Code::INVALID_VALUE)
    }
}

/// Copies in the order of `stream`. If `waits` holds and the CPU reaches one side, waits until the
/// copy is done.
pub(super) fn copy(
    driver: &Driver,
    stream: &Stream,
    shape: Shape,
    direction: Direction,
    waits: bool,
) -> Answer {
    if shape.is_empty() {
        return Ok(());
    }
    let shape = shape.checked().ok_or(Code::INVALID_VALUE)?;
    let [to, from] = shape.spans();
    let place = |(start, bytes)| driver.memory.place_rows(start, bytes);
    let (to, from) = (place(to)?, place(from)?);
    direction.check(to, from)?;
    let is_direct = matches!((to, from), (Place::Gpu { .. }, Place::Gpu { .. }));
    if stream.is_capturing() && (waits || !is_direct) {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    match (to, from) {
        (Place::Gpu { host: None, .. }, Place::Gpu { host: None, .. }) => {
            direct(driver, stream, shape)
        }
        (Place::Gpu { .. }, Place::Gpu { .. }) if waits => direct_awaited(driver, stream, shape),
        (Place::Gpu { .. }, Place::Gpu { .. }) => direct(driver, stream, shape),
        (Place::Gpu { .. }, Place::Cpu(_)) => upload(driver, stream, shape),
        (Place::Cpu(_), Place::Gpu { .. }) => download(driver, stream, shape),
        (Place::Cpu(_), Place::Cpu(_)) => {
            driver.ring.drain(driver)?;
            for row in shape.rows() {
                boundary::copy_bytes(row.to, row.from, row.bytes as usize);
            }
            Ok(())
        }
    }
}

/// Returns the work of a copy between memory that the GPU reaches, for a node of a graph. Memory
/// that only the CPU reaches is not supported there.
pub(super) fn work_of(driver: &Driver, shape: Shape, direction: Direction) -> Answer<Work> {
    let shape = shape.checked().ok_or(Code::INVALID_VALUE)?;
    let [to, from] = shape.spans();
    let place = |(start, bytes)| driver.memory.place_rows(start, bytes);
    let (to, from) = (place(to)?, place(from)?);
    direction.check(to, from)?;
    if !matches!((to, from), (Place::Gpu { .. }, Place::Gpu { .. })) {
        return Err(Code::NOT_SUPPORTED);
    }
    let mut parts = Vec::new();
    for row in shape.rows() {
        plan(driver, row, &mut parts)?;
    }
    Ok(Work::Sequence(parts))
}

/// Adds the copies that a segment needs between memory which the GPU reaches.
fn plan(driver: &Driver, mut segment: Segment, into: &mut Vec<Work>) -> Answer {
    while segment.bytes != 0 {
        let to = driver.memory.place(segment.to, segment.bytes)?;
        let from = driver.memory.place(segment.from, segment.bytes)?;
        let (
            Place::Gpu { gpu: to, room, .. },
            Place::Gpu {
                gpu: from,
                room: other,
                ..
            },
        ) = (to, from)
        else {
            return Err(Code::INVALID_VALUE);
        };
        // One packet stays within one mapping.
        let bytes = segment.bytes.min(room).min(other);
        let whole = Segment { to, from, bytes };
        let parts = whole.without_overlap(OVERLAP_PARTS_MAX);
        into.extend(parts.ok_or(Code::INVALID_VALUE)?.iter().map(work));
        segment = Segment {
            to: segment.to + bytes,
            from: segment.from + bytes,
            bytes: segment.bytes - bytes,
        };
    }
    Ok(())
}

/// Returns the work of a copy at addresses of the GPU.
pub(super) fn work(segment: &Segment) -> Work {
    Work::Copy {
        destination: segment.to,
        source: segment.from,
        bytes: segment.bytes,
    }
}

pub(super) fn submit(driver: &Driver, stream: &Stream, mut parts: Vec<Work>) -> Answer {
    match parts.len() {
        0 => Ok(()),
        1 => stream.submit(driver, parts.remove(0)),
        _ => stream.submit(driver, Work::Sequence(parts)),
    }
}

fn direct(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    let mut rows = shape.rows().peekable();
    while rows.peek().is_some() {
        let mut parts = Vec::new();
        for row in rows.by_ref().take(GROUP_COPIES) {
            plan(driver, row, &mut parts)?;
        }
        submit(driver, stream, parts)?;
    }
    Ok(())
}

/// Copies, and waits until that is done. The stream is not being captured.
fn direct_awaited(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    if shape.height != 1 || shape.depth != 1 {
        direct(driver, stream, shape)?;
        return driver.wait_for(stream.last());
    }
    let mut parts = Vec::with_capacity(1);
    for row in shape.rows() {
        plan(driver, row, &mut parts)?;
    }
    let number = stream.submit_awaited(driver, &Work::Sequence(parts))?;
    driver.wait_for(number)
}
