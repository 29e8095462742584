//! Copies between memory and arrays, and between arrays.
//!
//! | the other side is | is copied by |
//! |---|---|
//! | memory that the GPU reaches | packets of the device |
//! | other memory of the process | the same from or to staging memory |
//! | an array | the same out of one and into the other, through staging memory |
//! | memory of another device, or in several mappings | a copy to or from memory of the process |
//!
//! The side of a [`Shape`] that is an array begins at the offset that the first byte would have if
//! the rows of the array followed each other. So parts of a copy are found as those of memory are.

mod ends;

use std::sync::Arc;

use causeway_protocol::packet::{ArrayBox, ROWS_MAX, RectSide};
use causeway_shim_linux::shim::ArrayDirection;

use super::pageable::{download_by, upload_by};
use super::segments::{Shape, Side};
use super::staging::GROUP_BYTES;
use super::transfer::{self, Direction, GROUP_COPIES};
use super::{Place, staged};
use crate::array::{Array, Elements};
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::stream::Stream;
use crate::structures::Copy3d;
use crate::work::Work;
use ends::Ends;
pub(super) use ends::has_array;

/// Most bytes that are copied as one from or to memory of another device.
const PART_BYTES: u64 = 16 * GROUP_BYTES;

/// Copies in the order of `stream`, as [`transfer::copy`] does. One side at least is an array.
pub(super) fn copy(
    driver: &'static Driver,
    stream: &Stream,
    given: &Copy3d,
    waits: bool,
) -> Answer {
    let ends = Ends::of(driver, given)?;
    if stream.is_capturing() {
        return match waits {
            true => Err(Code::STREAM_CAPTURE_UNSUPPORTED),
            false => stream.note_copy(given, ends.work(driver)?),
        };
    }
    match ends {
        Ends::Memory(copy, place) => copy.submit(driver, stream, place, waits)?,
        Ends::Arrays(copy) => copy.submit(driver, stream)?,
    }
    match waits {
        true => driver.rings.lead(driver, stream.last()),
        false => Ok(()),
    }
}

/// Returns the work of a copy for a node of a graph.
pub(super) fn work_of(driver: &'static Driver, given: &Copy3d) -> Answer<Work> {
    Ends::of(driver, given)?.work(driver)
}

impl Ends {
    fn work(&self, driver: &'static Driver) -> Answer<Work> {
        match self {
            Self::Memory(copy, place) => copy.work(driver, *place),
            Self::Arrays(copy) => copy.work(driver),
        }
    }
}

/// A copy between an array and memory.
struct MemoryCopy {
    array: Arc<Array>,
    direction: ArrayDirection,
    shape: Shape,
}

/// A copy between arrays.
struct ArraysCopy {
    to: Arc<Array>,
    from: Arc<Array>,
    shape: Shape,
}

impl MemoryCopy {
    /// Returns the side that is memory.
    const fn memory(&self) -> Side {
        match self.direction {
            ArrayDirection::Into => self.shape.from,
            ArrayDirection::OutOf => self.shape.to,
        }
    }

    /// Returns the same copy, or a part of it, with another memory.
    const fn with(&self, part: Shape, memory: Side) -> Shape {
        match self.direction {
            ArrayDirection::Into => Shape {
                from: memory,
                ..part
            },
            ArrayDirection::OutOf => Shape { to: memory, ..part },
        }
    }

    /// Returns the packet of a part, whose memory has addresses of the GPU.
    fn packet(&self, part: &Shape) -> Option<Work> {
        let (array, memory) = match self.direction {
            ArrayDirection::Into => (part.to, part.from),
            ArrayDirection::OutOf => (part.from, part.to),
        };
        packet(&self.array, self.direction, (array, memory), part)
    }

    /// Returns the packets of a copy whose memory has addresses of the GPU.
    fn packets(&self, shape: Shape) -> impl Iterator<Item = Answer<Work>> {
        // A part of one row always has a packet. Others are not larger than the first.
        let whole = [ROWS_MAX, shape.height.min(ROWS_MAX)].into_iter();
        let mut whole = whole.filter(|rows_max| {
            let first = shape.parts(u64::MAX, *rows_max).next();
            first.is_some_and(|part| self.packet(&part).is_some())
        });
        let parts = shape.parts(u64::MAX, whole.next().unwrap_or(1));
        parts.map(|part| self.packet(&part).ok_or(Code::INVALID_VALUE))
    }

    /// Returns the packets of a copy as one piece of work.
    fn sequence(&self, shape: Shape) -> Answer<Work> {
        let works: Vec<Work> = self
            .packets(shape)
            .take(GROUP_COPIES as usize + 1)
            .collect::<Answer<_>>()?;
        match works.len() as u64 {
            ..=GROUP_COPIES => Ok(Work::Sequence(works)),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    /// Returns the copy with the addresses of the GPU, if all of the memory has one mapping.
    fn mapped(&self, place: Place) -> Option<Shape> {
        match place {
            Place::Gpu { gpu, room, .. } if room >= span(&self.shape, self.memory()) => {
                let memory = Side {
                    start: gpu,
                    ..self.memory()
                };
                Some(self.with(self.shape, memory))
            }
            _ => None,
        }
    }

    fn submit(&self, driver: &Driver, stream: &Stream, place: Place, waits: bool) -> Answer {
        if let Some(mapped) = self.mapped(place) {
            for work in self.packets(mapped) {
                stream.submit(driver, work?)?;
            }
            let is_seen = matches!(place, Place::Gpu { host: Some(_), .. });
            return match waits && is_seen {
                true => driver.wait_for(stream.last()),
                false => Ok(()),
            };
        }
        match place {
            Place::Cpu(_) => self.pageable(driver, stream, self.shape),
            _ => self.bounced(driver, stream, waits),
        }
    }

    /// Copies from or to memory that the GPU does not reach.
    fn pageable(&self, driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
        let by_packet = |piece: Shape, stage: super::staging::Stage| {
            let staged = self.with(piece, Side::dense(stage.gpu, &piece));
            self.packet(&staged).ok_or(Code::INVALID_VALUE)
        };
        match self.direction {
            ArrayDirection::Into => upload_by(driver, stream, shape, &by_packet),
            ArrayDirection::OutOf => download_by(driver, stream, shape, &by_packet),
        }
    }

    /// Copies through memory of the process.
    fn bounced(&self, driver: &Driver, stream: &Stream, waits: bool) -> Answer {
        let mut memory = vec![0_u8; self.shape.bytes().min(PART_BYTES) as usize];
        let start = memory.as_mut_ptr() as u64;
        for part in self.shape.parts(PART_BYTES, GROUP_COPIES) {
            let between = Side::dense(start, &part);
            let of_array = self.with(part, between);
            let of_memory = match self.direction {
                ArrayDirection::Into => Shape {
                    to: between,
                    ..part
                },
                ArrayDirection::OutOf => Shape {
                    from: between,
                    ..part
                },
            };
            let copy_memory = || transfer::copy(driver, stream, of_memory, Direction::Any, waits);
            match self.direction {
                ArrayDirection::Into => {
                    copy_memory()?;
                    self.pageable(driver, stream, of_array)?;
                }
                ArrayDirection::OutOf => {
                    self.pageable(driver, stream, of_array)?;
                    copy_memory()?;
                }
            }
        }
        Ok(())
    }

    fn work(&self, driver: &'static Driver, place: Place) -> Answer<Work> {
        if let Some(mapped) = self.mapped(place) {
            return self.sequence(mapped);
        }
        let on_device = |staged| self.sequence(staged);
        match (place, self.direction) {
            (Place::Cpu(_), ArrayDirection::Into) => {
                staged::to_device_by(driver, self.shape, on_device)
            }
            (Place::Cpu(_), ArrayDirection::OutOf) => {
                staged::from_device_by(driver, self.shape, on_device)
            }
            _ => Err(Code::NOT_SUPPORTED),
        }
    }
}

impl ArraysCopy {
    /// Returns the packets of a part, through memory at an address of the GPU.
    fn packets(&self, part: &Shape, gpu: u64) -> Option<[Work; 2]> {
        let between = Side::dense(gpu, part);
        let (out, into) = (ArrayDirection::OutOf, ArrayDirection::Into);
        Some([
            packet(&self.from, out, (part.from, between), part)?,
            packet(&self.to, into, (part.to, between), part)?,
        ])
    }

    fn parts(&self) -> impl Iterator<Item = Shape> {
        self.shape.parts(GROUP_BYTES, ROWS_MAX)
    }

    fn submit(&self, driver: &Driver, stream: &Stream) -> Answer {
        let mut staging = driver.memory.staging(driver)?;
        let staging = staging.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
        for part in self.parts() {
            let stage = staging.place(driver, part.bytes())?;
            let packets = self.packets(&part, stage.gpu);
            let packets = packets.ok_or(Code::INVALID_VALUE)?;
            stream.submit(driver, Work::Sequence(packets.into()))?;
            staging.note(stage, stream.last());
        }
        Ok(())
    }

    /// Parts of one piece of work follow each other, so that they share memory.
    fn work(&self, driver: &'static Driver) -> Answer<Work> {
        if self.parts().nth(GROUP_COPIES as usize).is_some() {
            return Err(Code::NOT_SUPPORTED);
        }
        let bytes = self.shape.bytes().min(GROUP_BYTES);
        staged::through(driver, bytes, |gpu| {
            let packets = self.parts().map(|part| self.packets(&part, gpu));
            let packets: Option<Vec<_>> = packets.collect();
            let packets = packets.ok_or(Code::INVALID_VALUE)?;
            Ok(packets.into_iter().flatten().collect())
        })
    }
}

/// Returns the packet that copies `part` between an array and memory, whose sides these are;
/// `None` if no packet can have the distances of the rows of the memory.
fn packet(
    array: &Arc<Array>,
    direction: ArrayDirection,
    (of_array, memory): (Side, Side),
    part: &Shape,
) -> Option<Work> {
    let part = array_box(&array.elements, of_array, memory, part)?;
    Some(Work::CopyArray {
        array: Arc::clone(array),
        part,
        direction,
    })
}

/// Returns the box of a packet; `None` if no packet can have it.
fn array_box(elements: &Elements, of_array: Side, memory: Side, part: &Shape) -> Option<ArrayBox> {
    let (pitch, rows) = match (part.height, part.depth) {
        (1, 1) => (part.width, 1),
        // Slices of one row are as far apart as rows.
        (1, _) => (memory.slice, 1),
        (height, 1) => (memory.pitch, height),
        _ if memory.slice.is_multiple_of(memory.pitch) => {
            (memory.pitch, memory.slice / memory.pitch)
        }
        _ => return None,
    };
    let number = |number: u64| u32::try_from(number).ok();
    let [x, y, z] = elements.origin(of_array.start);
    let found = ArrayBox {
        memory: RectSide {
            address: memory.start,
            pitch: number(pitch)?,
            rows: number(rows)?,
        },
        origin: [number(x)?, number(y)?, number(z)?],
        width: number(part.width)?,
        height: number(part.height)?,
        depth: number(part.depth)?,
    };
    found.extent().map(|_| found)
}

/// Returns the bytes from the first to the end of the last row of a side that was checked.
const fn span(shape: &Shape, side: Side) -> u64 {
    (shape.height - 1) * side.pitch + (shape.depth - 1) * side.slice + shape.width
}

#[cfg(test)]
mod tests;
