//! Fills (`cuMemset…`).

use causeway_protocol::packet::{FillShape, ROWS_MAX};
use causeway_protocol::registers::features;

use super::Place;
use crate::driver::{Driver, call_with_current_stream};
use crate::error::{Answer, Code};
use crate::stream;
use crate::structures::FillNode;
use crate::work::Work;

/// Most rows that are submitted as one piece of work.
const ROWS: u64 = 1024;
/// Most rows of a fill that is a node of a graph.
const NODE_ROWS_MAX: u64 = 1 << 16;

/// What to fill with.
#[derive(Clone, Copy)]
struct Element {
    pattern: u32,
    /// 1, 2 or 4.
    bytes: u32,
}

/// What to fill: rows of `width` elements, `pitch` bytes apart.
#[derive(Clone, Copy)]
struct Area {
    start: u64,
    pitch: u64,
    width: u64,
    height: u64,
}

impl Area {
    const fn linear(start: u64, count: usize) -> Self {
        Self {
            start,
            pitch: 0,
            width: count as u64,
            height: 1,
        }
    }

    /// Returns the area in parts of at most `rows_max` rows.
    fn parts(self, rows_max: u64) -> impl Iterator<Item = Self> {
        (0..self.height.div_ceil(rows_max)).map(move |index| Self {
            start: self.start + index * rows_max * self.pitch,
            height: rows_max.min(self.height - index * rows_max),
            ..self
        })
    }
}

fn fill(area: Area, element: Element, stream: usize, waits: bool) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        let stream = stream::find(driver, context, stream)?;
        if area.width == 0 || area.height == 0 {
            return Ok(());
        }
        let on_host = check(driver, area, element)?;
        for part in area.parts(ROWS_MAX) {
            if let Some(work) = rectangle(driver, part, element) {
                stream.submit(driver, work)?;
                continue;
            }
            for group in part.parts(ROWS) {
                stream.submit(driver, rows(driver, group, element)?)?;
            }
        }
        // Fills of device memory do not wait for the device (CUDA driver API, "API synchronization
        // behavior").
        match waits {
            true if on_host => driver.rings.wait(driver, stream.last()),
            true => driver.rings.lead(driver, stream.last()),
            false => Ok(()),
        }
    })
}

/// Returns the work of a fill for a node of a graph.
pub(crate) fn fill_work(driver: &Driver, given: &FillNode) -> Answer<Work> {
    let area = Area {
        start: given.destination,
        pitch: given.pitch,
        width: given.width,
        height: given.height,
    };
    let is_fine = matches!(given.element_bytes, 1 | 2 | 4)
        && area.width != 0
        && (1..=NODE_ROWS_MAX).contains(&area.height);
    if !is_fine {
        return Err(Code::INVALID_VALUE);
    }
    let element = Element {
        pattern: given.value & (u32::MAX >> (32 - 8 * given.element_bytes)),
        bytes: given.element_bytes,
    };
    check(driver, area, element)?;
    match rectangle(driver, area, element) {
        Some(work) => Ok(Work::Sequence(vec![work])),
        None => rows(driver, area, element),
    }
}

/// Returns one packet that fills all rows; `None` if there is only one, if the host does not know
/// such packets, or if a packet cannot have this shape.
fn rectangle(driver: &Driver, area: Area, element: Element) -> Option<Work> {
    if area.height == 1 || !driver.has(features::RECTANGLES) {
        return None;
    }
    let mut shape = FillShape {
        destination: area.start,
        pitch: u32::try_from(area.pitch).ok()?,
        height: u32::try_from(area.height).ok()?,
        width: area.width * u64::from(element.bytes),
        pattern: element.pattern,
        element: element.bytes,
    };
    let extent = shape.extent()?;
    match driver.memory.place(area.start, extent).ok()? {
        // Of memory of modules that CUDA was not told of, nobody knows where it ends.
        Place::Gpu { gpu, room, .. } if room >= extent && room != u64::MAX => {
            shape.destination = gpu;
            Some(Work::FillRect(shape))
        }
        _ => None,
    }
}

/// Returns the fills of all rows.
fn rows(driver: &Driver, area: Area, element: Element) -> Answer<Work> {
    let mut parts = Vec::new();
    for row in 0..area.height {
        plan(driver, area, row, element, &mut parts)?;
    }
    Ok(Work::Sequence(parts))
}

/// Refuses areas that the GPU does not reach. Returns whether the CPU reaches the area too.
fn check(driver: &Driver, area: Area, element: Element) -> Answer<bool> {
    let wrong = Code::INVALID_VALUE;
    let element_bytes = u64::from(element.bytes);
    let row_bytes = area.width.checked_mul(element_bytes).ok_or(wrong)?;
    let rows = area.pitch.checked_mul(area.height - 1).ok_or(wrong)?;
    let bytes = rows.checked_add(row_bytes).ok_or(wrong)?;
    // One row has no next one.
    let pitch = if area.height > 1 {
        area.pitch
    } else {
        row_bytes
    };
    let is_aligned = (area.start | pitch).is_multiple_of(element_bytes);
    let overlaps = pitch < row_bytes;
    if !is_aligned || overlaps {
        return Err(wrong);
    }
    match driver.memory.place(area.start, bytes)? {
        Place::Gpu { host, .. } => Ok(host.is_some()),
        Place::Cpu(_) | Place::Elsewhere(_) => Err(wrong),
    }
}

/// Adds the fills that one row needs. One packet stays within one mapping.
fn plan(driver: &Driver, area: Area, row: u64, element: Element, into: &mut Vec<Work>) -> Answer {
    let mut at = area.start + row * area.pitch;
    let mut rest = area.width * u64::from(element.bytes);
    while rest != 0 {
        let Place::Gpu { gpu, room, .. } = driver.memory.place(at, rest)? else {
            return Err(Code::INVALID_VALUE);
        };
        let bytes = rest.min(room);
        into.push(Work::Fill {
            destination: gpu,
            bytes,
            pattern: element.pattern,
            width: element.bytes,
        });
        (at, rest) = (at + bytes, rest - bytes);
    }
    Ok(())
}

macro_rules! fills {
    ($($name:ident, $name_async:ident, $name_2d:ident, $name_2d_async:ident: $type:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(destination: u64, value: $type, count: usize) -> u32 {
                let element = Element { pattern: u32::from(value), bytes: <$type>::BITS / 8 };
                fill(Area::linear(destination, count), element, 0, true)
            }

            #[unsafe(no_mangle)]
            extern "C" fn $name_async(
                destination: u64,
                value: $type,
                count: usize,
                stream: usize,
            ) -> u32 {
                let element = Element { pattern: u32::from(value), bytes: <$type>::BITS / 8 };
                fill(Area::linear(destination, count), element, stream, false)
            }

            #[unsafe(no_mangle)]
            extern "C" fn $name_2d(
                start: u64,
                pitch: u64,
                value: $type,
                width: u64,
                height: u64,
            ) -> u32 {
                let element = Element { pattern: u32::from(value), bytes: <$type>::BITS / 8 };
                fill(Area { start, pitch, width, height }, element, 0, true)
            }

            #[unsafe(no_mangle)]
            extern "C" fn $name_2d_async(
                start: u64,
                pitch: u64,
                value: $type,
                width: u64,
                height: u64,
                stream: usize,
            ) -> u32 {
                let element = Element { pattern: u32::from(value), bytes: <$type>::BITS / 8 };
                fill(Area { start, pitch, width, height }, element, stream, false)
            }
        )*
    };
}

fills! {
    cuMemsetD8_v2, cuMemsetD8Async, cuMemsetD2D8_v2, cuMemsetD2D8Async: u8;
    cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD2D16_v2, cuMemsetD2D16Async: u16;
    cuMemsetD32_v2, cuMemsetD32Async, cuMemsetD2D32_v2, cuMemsetD2D32Async: u32;
}
