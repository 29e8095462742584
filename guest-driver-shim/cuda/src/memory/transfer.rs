//! How copies are done, once their shape is known.
//!
//! Pageable memory is copied at the call (CUDA driver API, "API synchronization behavior"): a copy
//! from it returns when it has been read, a copy to it when it has been written.

use std::collections::VecDeque;

use causeway_protocol::packet::ROWS_MAX;
use causeway_protocol::registers::features;

use super::Place;
use super::segments::{Segment, Shape, Side};
use super::staging::{GROUP_BYTES, Stage};
use crate::boundary;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::ring::Number;
use crate::stream::Stream;
use crate::work::Work;

/// Most copies that are submitted as one piece of work.
const GROUP_COPIES: u64 = 1024;
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
    let [first, last] = shape.ends();
    let place = |at, bytes| driver.memory.place(at, bytes);
    let (to, from) = (
        place(first.to, first.bytes)?,
        place(first.from, first.bytes)?,
    );
    direction.check(to, from)?;
    place(last.to, last.bytes)?;
    place(last.from, last.bytes)?;
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
    let [first, last] = shape.ends();
    for end in [first, last] {
        let to = driver.memory.place(end.to, end.bytes)?;
        let from = driver.memory.place(end.from, end.bytes)?;
        direction.check(to, from)?;
        if !matches!((to, from), (Place::Gpu { .. }, Place::Gpu { .. })) {
            return Err(Code::NOT_SUPPORTED);
        }
    }
    let mut parts = Vec::new();
    Sides::known(driver).plan(shape, &mut parts)?;
    Ok(Work::Sequence(parts))
}

/// How the GPU reaches one side of a copy.
#[derive(Clone, Copy)]
enum Reach {
    /// As CUDA knows: addresses are those of the process.
    Known,
    /// Staging memory: addresses are those of the GPU.
    Staging,
}

/// How the GPU reaches both sides of a copy.
#[derive(Clone, Copy)]
struct Sides<'d> {
    driver: &'d Driver,
    to: Reach,
    from: Reach,
}

impl<'d> Sides<'d> {
    const fn known(driver: &'d Driver) -> Self {
        Self {
            driver,
            to: Reach::Known,
            from: Reach::Known,
        }
    }

    /// Returns the GPU's address of a range, and how many bytes from there have the same mapping.
    fn reach(&self, side: Reach, address: u64, bytes: u64) -> Answer<(u64, u64)> {
        match side {
            Reach::Staging => Ok((address, bytes)),
            Reach::Known => match self.driver.memory.place(address, bytes)? {
                Place::Gpu { gpu, room, .. } => Ok((gpu, room)),
                Place::Cpu(_) => Err(Code::INVALID_VALUE),
            },
        }
    }

    /// Adds the packets that copy all rows.
    fn plan(&self, shape: Shape, into: &mut Vec<Work>) -> Answer {
        match self.rectangle(&shape) {
            Some(work) => into.push(work),
            None => shape.rows().try_for_each(|row| self.plan_row(row, into))?,
        }
        Ok(())
    }

    /// Submits the packets that copy all rows as one piece of work.
    fn submit(&self, stream: &Stream, shape: Shape) -> Answer {
        let mut parts = Vec::new();
        self.plan(shape, &mut parts)?;
        submit(self.driver, stream, parts)
    }

    /// Returns one packet that copies all rows; `None` if there is only one, if the host does not
    /// know such packets, or if a packet cannot have this shape.
    fn rectangle(&self, shape: &Shape) -> Option<Work> {
        if shape.height == 1 || !self.driver.has(features::RECTANGLES) {
            return None;
        }
        let mut packet = shape.packet()?;
        let [to_bytes, from_bytes] = packet.extents()?;
        let within = |side, address, bytes| {
            let (gpu, room) = self.reach(side, address, bytes).ok()?;
            // Of memory of modules that CUDA was not told of, nobody knows where it ends.
            (room >= bytes && room != u64::MAX).then_some(gpu)
        };
        packet.destination.address = within(self.to, packet.destination.address, to_bytes)?;
        packet.source.address = within(self.from, packet.source.address, from_bytes)?;
        packet.extents().map(|_| Work::CopyRect(packet))
    }

    /// Adds the packets that copy one row.
    fn plan_row(&self, mut row: Segment, into: &mut Vec<Work>) -> Answer {
        while row.bytes != 0 {
            let (to, room) = self.reach(self.to, row.to, row.bytes)?;
            let (from, other) = self.reach(self.from, row.from, row.bytes)?;
            // One packet stays within one mapping.
            let bytes = row.bytes.min(room).min(other);
            let whole = Segment { to, from, bytes };
            let parts = whole.without_overlap(OVERLAP_PARTS_MAX);
            into.extend(parts.ok_or(Code::INVALID_VALUE)?.iter().map(work));
            row = Segment {
                to: row.to + bytes,
                from: row.from + bytes,
                bytes: row.bytes - bytes,
            };
        }
        Ok(())
    }
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
    let sides = Sides::known(driver);
    for part in shape.parts(u64::MAX, ROWS_MAX) {
        if let Some(work) = sides.rectangle(&part) {
            stream.submit(driver, work)?;
            continue;
        }
        for group in part.parts(u64::MAX, GROUP_COPIES) {
            let mut copies = Vec::new();
            for row in group.rows() {
                sides.plan_row(row, &mut copies)?;
            }
            submit(driver, stream, copies)?;
        }
    }
    Ok(())
}

/// Copies from pageable memory.
fn upload(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    let mut staging = driver.memory.staging(driver)?;
    let staging = staging.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
    for part in shape.parts(GROUP_BYTES, GROUP_COPIES) {
        let stage = staging.place(driver, part.bytes())?;
        let mut offset = 0;
        for row in part.rows() {
            boundary::copy_bytes(stage.host + offset, row.from, row.bytes as usize);
            offset += row.bytes;
        }
        let from = Side::dense(stage.gpu, &part);
        let sides = Sides {
            from: Reach::Staging,
            ..Sides::known(driver)
        };
        sides.submit(stream, Shape { from, ..part })?;
        staging.note(stage, stream.last());
    }
    Ok(())
}

/// A copy that the device makes into staging memory, to be read when it is done.
struct Arriving {
    number: Number,
    stage: Stage,
    part: Shape,
}

impl Arriving {
    fn finish(self, driver: &Driver) -> Answer {
        driver.wait_for(self.number)?;
        let mut offset = 0;
        for row in self.part.rows() {
            boundary::copy_bytes(row.to, self.stage.host + offset, row.bytes as usize);
            offset += row.bytes;
        }
        Ok(())
    }
}

/// Copies to pageable memory.
fn download(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    let mut staging = driver.memory.staging(driver)?;
    let staging = staging.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
    let mut arriving: VecDeque<Arriving> = VecDeque::new();
    for (index, part) in (0..).zip(shape.parts(GROUP_BYTES, GROUP_COPIES)) {
        if arriving.len() == 2
            && let Some(oldest) = arriving.pop_front()
        {
            oldest.finish(driver)?;
        }
        let stage = staging.half(index);
        let to = Side::dense(stage.gpu, &part);
        let sides = Sides {
            to: Reach::Staging,
            ..Sides::known(driver)
        };
        sides.submit(stream, Shape { to, ..part })?;
        arriving.push_back(Arriving {
            number: stream.last(),
            stage,
            part,
        });
    }
    arriving
        .into_iter()
        .try_for_each(|part| part.finish(driver))
}
