//! How copies are done, once their shape is known.
//!
//! Pageable memory is copied at the call (CUDA driver API, "API synchronization behavior"): a copy
//! from it returns when it has been read, a copy to it when it has been written.

use std::collections::VecDeque;

use super::Place;
use super::segments::{Segment, Shape, groups};
use super::staging::{GROUP_BYTES, Stage};
use crate::boundary;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::ring::Number;
use crate::stream::Stream;
use crate::work::Work;

/// Most copies that are submitted as one piece of work.
const GROUP_COPIES: usize = 1024;
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
        (Place::Gpu { .. }, Place::Gpu { .. }) => {
            direct(driver, stream, shape)?;
            match waits {
                true => driver.wait_for(stream.last()),
                false => Ok(()),
            }
        }
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

fn work(segment: &Segment) -> Work {
    Work::Copy {
        destination: segment.to,
        source: segment.from,
        bytes: segment.bytes,
    }
}

fn submit(driver: &Driver, stream: &Stream, mut parts: Vec<Work>) -> Answer {
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

/// Copies from pageable memory.
fn upload(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    let mut staging = driver.memory.staging(driver)?;
    let staging = staging.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
    for group in groups(shape.rows(), GROUP_BYTES, GROUP_COPIES) {
        let bytes = group.iter().map(|part| part.bytes).sum();
        let stage = staging.place(driver, bytes)?;
        let mut offset = 0;
        let mut parts = Vec::with_capacity(group.len());
        for part in &group {
            boundary::copy_bytes(stage.host + offset, part.from, part.bytes as usize);
            split(driver, part.to, part.bytes, |gpu, inside, bytes| {
                parts.push(work(&Segment {
                    to: gpu,
                    from: stage.gpu + offset + inside,
                    bytes,
                }));
            })?;
            offset += part.bytes;
        }
        submit(driver, stream, parts)?;
        staging.note(stage, stream.last());
    }
    Ok(())
}

/// Calls `part` with the GPU's address, offset and size of each part of a range that lies in one
/// mapping.
fn split(driver: &Driver, address: u64, bytes: u64, mut part: impl FnMut(u64, u64, u64)) -> Answer {
    let mut inside = 0;
    while inside < bytes {
        let rest = bytes - inside;
        let Place::Gpu { gpu, room, .. } = driver.memory.place(address + inside, rest)? else {
            return Err(Code::INVALID_VALUE);
        };
        part(gpu, inside, rest.min(room));
        inside += rest.min(room);
    }
    Ok(())
}

/// Copies that the device makes into staging memory, to be read when they are done.
struct Arriving {
    number: Number,
    stage: Stage,
    group: Vec<Segment>,
}

impl Arriving {
    fn finish(self, driver: &Driver) -> Answer {
        driver.wait_for(self.number)?;
        let mut offset = 0;
        for part in self.group {
            boundary::copy_bytes(part.to, self.stage.host + offset, part.bytes as usize);
            offset += part.bytes;
        }
        Ok(())
    }
}

/// Copies to pageable memory.
fn download(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    let mut staging = driver.memory.staging(driver)?;
    let staging = staging.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
    let mut arriving: VecDeque<Arriving> = VecDeque::new();
    for (index, group) in (0..).zip(groups(shape.rows(), GROUP_BYTES, GROUP_COPIES)) {
        if arriving.len() == 2
            && let Some(oldest) = arriving.pop_front()
        {
            oldest.finish(driver)?;
        }
        let stage = staging.half(index);
        let mut offset = 0;
        let mut parts = Vec::with_capacity(group.len());
        for part in &group {
            split(driver, part.from, part.bytes, |gpu, inside, bytes| {
                parts.push(work(&Segment {
                    to: stage.gpu + offset + inside,
                    from: gpu,
                    bytes,
                }));
            })?;
            offset += part.bytes;
        }
        submit(driver, stream, parts)?;
        arriving.push_back(Arriving {
            number: stream.last(),
            stage,
            group,
        });
    }
    arriving
        .into_iter()
        .try_for_each(|group| group.finish(driver))
}
