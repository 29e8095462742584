//! How copies are done, once their shape is known.

use causeway_protocol::packet::ROWS_MAX;
use causeway_protocol::registers::features;

use super::pageable::{download, upload};
use super::segments::{Segment, Shape};
use super::{Place, across, staged};
use crate::boundary;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::stream::Stream;
use crate::work::Work;

/// Most copies that are submitted as one piece of work.
pub(super) const GROUP_COPIES: u64 = 1024;
/// Most rows of a copy that is a node of a graph.
pub(super) const NODE_ROWS_MAX: u64 = 1 << 16;
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
        let reached = |place| matches!(place, Place::Gpu { .. } | Place::Elsewhere(_));
        let is_fine = match self {
            Self::Any => true,
            Self::DeviceToDevice => reached(to) && reached(from),
            Self::HostToDevice => reached(to),
            Self::DeviceToHost => reached(from),
        };
        is_fine.then_some(()).ok_or(Code::INVALID_VALUE)
    }
}

/// Copies in the order of `stream`. If `waits` holds, that is a default stream, all work that is
/// submitted afterwards begins after the copy, and this waits for the copy if the CPU reaches both
/// sides or reads what is copied.
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
    if matches!(to, Place::Elsewhere(_)) || matches!(from, Place::Elsewhere(_)) {
        return across::copy(driver, stream, shape, (to, from), waits);
    }
    let is_direct = matches!((to, from), (Place::Gpu { .. }, Place::Gpu { .. }));
    if stream.is_capturing() && waits {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    if stream.is_capturing() && !is_direct {
        return shape.parts(u64::MAX, NODE_ROWS_MAX).try_for_each(|part| {
            let work = work_between(driver.lasting()?, part, (to, from))?;
            stream.note_copy(&part.given(), work)
        });
    }
    match (to, from) {
        (Place::Gpu { host: None, .. }, Place::Gpu { host: None, .. }) => {
            direct(Sides::known(driver), stream, shape)?;
        }
        (Place::Gpu { .. }, Place::Gpu { .. }) if waits => direct_awaited(driver, stream, shape)?,
        (Place::Gpu { .. }, Place::Gpu { .. }) => direct(Sides::known(driver), stream, shape)?,
        (Place::Gpu { .. }, Place::Cpu(_)) => upload(driver, stream, shape)?,
        (Place::Cpu(_), Place::Gpu { .. }) => download(driver, stream, shape)?,
        (Place::Cpu(_), Place::Cpu(_)) => {
            driver.wait_for(stream.end(driver))?;
            for row in shape.rows() {
                boundary::copy_bytes(row.to, row.from, row.bytes as usize);
            }
        }
        // Handled above.
        (Place::Elsewhere(_), _) | (_, Place::Elsewhere(_)) => return Err(Code::INVALID_VALUE),
    }
    match waits {
        true => driver.rings.lead(driver, stream.last()),
        false => Ok(()),
    }
}

/// Returns the work of a copy for a node of a graph. Memory of another device is not supported
/// there.
pub(super) fn work_of(driver: &'static Driver, shape: Shape, direction: Direction) -> Answer<Work> {
    let shape = shape.checked().ok_or(Code::INVALID_VALUE)?;
    let [to, from] = shape.spans();
    let place = |(start, bytes)| driver.memory.place_rows(start, bytes);
    let (to, from) = (place(to)?, place(from)?);
    direction.check(to, from)?;
    work_between(driver, shape, (to, from))
}

fn work_between(driver: &'static Driver, shape: Shape, places: (Place, Place)) -> Answer<Work> {
    match places {
        (Place::Gpu { .. }, Place::Gpu { .. }) => Sides::known(driver).work(shape),
        (Place::Gpu { .. }, Place::Cpu(_)) => staged::to_device(driver, shape),
        (Place::Cpu(_), Place::Gpu { .. }) => staged::from_device(driver, shape),
        (Place::Cpu(_), Place::Cpu(_)) => staged::on_host(driver, shape),
        (Place::Elsewhere(_), _) | (_, Place::Elsewhere(_)) => Err(Code::NOT_SUPPORTED),
    }
}

/// How the GPU reaches one side of a copy.
#[derive(Clone, Copy)]
enum Reach {
    /// As CUDA knows: addresses are those of the process.
    Known,
    /// Addresses are those of the GPU.
    ByGpu,
}

/// How the GPU reaches both sides of a copy.
#[derive(Clone, Copy)]
pub(super) struct Sides<'d> {
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

    /// The source is given by the GPU's addresses: staging memory, or that of another device.
    pub(super) const fn from_gpu(driver: &'d Driver) -> Self {
        Self {
            from: Reach::ByGpu,
            ..Self::known(driver)
        }
    }

    /// The destination is given by the GPU's addresses.
    pub(super) const fn to_gpu(driver: &'d Driver) -> Self {
        Self {
            to: Reach::ByGpu,
            ..Self::known(driver)
        }
    }

    /// Returns the GPU's address of a range, and how many bytes from there have the same mapping.
    fn reach(&self, side: Reach, address: u64, bytes: u64) -> Answer<(u64, u64)> {
        match side {
            Reach::ByGpu => Ok((address, bytes)),
            Reach::Known => match self.driver.memory.place(address, bytes)? {
                Place::Gpu { gpu, room, .. } => Ok((gpu, room)),
                Place::Cpu(_) | Place::Elsewhere(_) => Err(Code::INVALID_VALUE),
            },
        }
    }

    /// Returns the packets that copy all rows, as one piece of work.
    pub(super) fn work(&self, shape: Shape) -> Answer<Work> {
        if let Some(work) = self.rectangle(&shape) {
            return Ok(Work::Sequence(vec![work]));
        }
        self.copies(shape).map(Work::Sequence)
    }

    /// Returns the packets that copy all rows, each row by its own.
    fn copies(&self, shape: Shape) -> Answer<Vec<Work>> {
        let mut copies = Vec::with_capacity(1);
        for row in shape.rows() {
            self.plan_row(row, &mut copies)?;
        }
        Ok(copies)
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

/// Returns the work of a copy at addresses of the GPU.
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

/// Copies between memory that the GPU reaches.
pub(super) fn direct(sides: Sides<'_>, stream: &Stream, shape: Shape) -> Answer {
    let driver = sides.driver;
    for part in shape.parts(u64::MAX, ROWS_MAX) {
        if let Some(work) = sides.rectangle(&part) {
            stream.submit(driver, work)?;
            continue;
        }
        for group in part.parts(u64::MAX, GROUP_COPIES) {
            submit(driver, stream, sides.copies(group)?)?;
        }
    }
    Ok(())
}

/// Copies, and waits until that is done. The stream is not being captured.
fn direct_awaited(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    let sides = Sides::known(driver);
    let work = match sides.rectangle(&shape) {
        None if shape.height == 1 => Some(sides.work(shape)?),
        rectangle => rectangle,
    };
    let submission = match work {
        Some(work) => stream.submit_awaited(driver, &work)?,
        None => {
            direct(Sides::known(driver), stream, shape)?;
            stream.last()
        }
    };
    driver.wait_for(submission)
}
