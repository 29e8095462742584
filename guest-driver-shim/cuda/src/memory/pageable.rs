//! Copies from and to memory of the process that the GPU does not reach, through staging memory.
//!
//! Such memory is copied at the call (CUDA driver API, "API synchronization behavior"): a copy from
//! it returns when it has been read, a copy to it when it has been written.
//!
//! The device copies pieces while the processor copies others. One processor copies more slowly
//! than the device, so that large copies have several threads, where there are processors for them.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::Place;
use super::segments::{Segment, Shape, groups};
use super::staging::{GROUP_BYTES, Lane, Stage};
use super::transfer::{GROUP_COPIES, submit, work};
use crate::boundary;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::ring::Number;
use crate::stream::Stream;
use crate::work::Work;

/// Copies of at least so many bytes have several threads, and go past the processor's caches, which
/// they would only empty.
const LARGE_BYTES: u64 = 8 << 20;
/// Copies are made in this many pieces, so that the device and the processor both work...
const PIECES: u64 = 4;
/// ... unless pieces would be smaller than this.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// Returns the size of the pieces in which `bytes` bytes are copied.
fn piece_bytes(bytes: u64) -> u64 {
    let share = bytes.div_ceil(PIECES).next_multiple_of(4096);
    share.clamp(PIECE_BYTES_MIN, GROUP_BYTES)
}

/// The pieces of a copy, of which each thread takes one when it is ready for it.
type Pieces<'a> = Mutex<&'a mut (dyn Iterator<Item = Vec<Segment>> + Send + 'a)>;

/// Copies from pageable memory.
pub(super) fn upload(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    let mut staging = driver.memory.staging(driver)?;
    let staging = staging.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
    if shape.bytes() >= LARGE_BYTES {
        let lanes = staging.lanes(driver);
        if lanes.len() > 1 {
            return in_lanes(&lanes, shape, |pieces, lane| {
                send(driver, stream, pieces, lane)
            });
        }
    }
    for group in groups(shape.rows(), GROUP_BYTES, GROUP_COPIES) {
        let stage = staging.place(driver, bytes_of(&group))?;
        fill(&group, stage);
        submit(driver, stream, parts(driver, &group, stage, Way::ToDevice)?)?;
        staging.note(stage, stream.last());
    }
    Ok(())
}

/// Copies to pageable memory.
pub(super) fn download(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    let mut staging = driver.memory.staging(driver)?;
    let staging = staging.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
    let bytes = shape.bytes();
    if bytes >= LARGE_BYTES {
        let lanes = staging.lanes(driver);
        return in_lanes(&lanes, shape, |pieces, lane| {
            bring(driver, stream, pieces, lane, boundary::stream_bytes)
        });
    }
    let mut pieces = groups(shape.rows(), piece_bytes(bytes), GROUP_COPIES);
    let (pieces, lane) = (Mutex::new(&mut pieces as _), staging.first_lane());
    bring(driver, stream, &pieces, lane, boundary::copy_bytes)
}

/// Copies with a thread for each lane, the calling one among them. A thread that cannot be started
/// leaves its pieces to the others.
fn in_lanes(
    lanes: &[Lane],
    shape: Shape,
    copy: impl Fn(&Pieces<'_>, Lane) -> Answer + Sync,
) -> Answer {
    let mut pieces = groups(shape.rows(), GROUP_BYTES, GROUP_COPIES);
    let pieces: Pieces<'_> = Mutex::new(&mut pieces);
    let (pieces, copy) = (&pieces, &copy);
    std::thread::scope(|scope| {
        let start = |lane: &Lane| {
            let lane = *lane;
            let thread = std::thread::Builder::new().name("cuda-copy".to_owned());
            thread.spawn_scoped(scope, move || copy(pieces, lane)).ok()
        };
        let others: Vec<_> = lanes[1..].iter().filter_map(start).collect();
        let own = copy(pieces, lanes[0]);
        others.into_iter().fold(own, |answer, other| {
            answer.and(other.join().unwrap_or(Err(Code::UNKNOWN)))
        })
    })
}

/// Copies pieces to the device until none is left, and waits until the device has read them.
fn send(driver: &Driver, stream: &Stream, pieces: &Pieces<'_>, lane: Lane) -> Answer {
    let mut reads = [0; 2];
    for (stage, read) in lane.iter().zip(0..2).cycle() {
        let Some(group) = pieces.lock().next() else {
            break;
        };
        driver.wait_for(reads[read])?;
        fill(&group, *stage);
        let work = Work::Sequence(parts(driver, &group, *stage, Way::ToDevice)?);
        reads[read] = stream.submit_awaited(driver, &work)?;
    }
    reads.into_iter().try_for_each(|read| driver.wait_for(read))
}

/// Copies pieces from the device until none is left, with `copy` out of staging memory.
fn bring(
    driver: &Driver,
    stream: &Stream,
    pieces: &Pieces<'_>,
    lane: Lane,
    copy: fn(u64, u64, usize),
) -> Answer {
    let mut arriving: VecDeque<Arriving> = VecDeque::with_capacity(2);
    for stage in lane.into_iter().cycle() {
        if arriving.len() == 2
            && let Some(oldest) = arriving.pop_front()
        {
            oldest.finish(driver, copy)?;
        }
        let Some(group) = pieces.lock().next() else {
            break;
        };
        let work = Work::Sequence(parts(driver, &group, stage, Way::FromDevice)?);
        arriving.push_back(Arriving {
            number: stream.submit_awaited(driver, &work)?,
            stage,
            group,
        });
    }
    let mut rest = arriving.into_iter();
    rest.try_for_each(|piece| piece.finish(driver, copy))
}

/// A piece that the device copies into staging memory, to be read when that is done.
struct Arriving {
    number: Number,
    stage: Stage,
    group: Vec<Segment>,
}

impl Arriving {
    fn finish(self, driver: &Driver, copy: fn(u64, u64, usize)) -> Answer {
        driver.wait_for(self.number)?;
        let mut offset = 0;
        for part in self.group {
            copy(part.to, self.stage.host + offset, part.bytes as usize);
            offset += part.bytes;
        }
        Ok(())
    }
}

fn bytes_of(group: &[Segment]) -> u64 {
    group.iter().map(|part| part.bytes).sum()
}

/// Copies a piece into staging memory.
fn fill(group: &[Segment], stage: Stage) {
    let mut offset = 0;
    for part in group {
        boundary::copy_bytes(stage.host + offset, part.from, part.bytes as usize);
        offset += part.bytes;
    }
}

/// Which way a piece goes.
#[derive(Clone, Copy)]
enum Way {
    ToDevice,
    FromDevice,
}

/// Returns the device's copies of a piece.
fn parts(driver: &Driver, group: &[Segment], stage: Stage, way: Way) -> Answer<Vec<Work>> {
    let mut offset = 0;
    let mut parts = Vec::with_capacity(group.len());
    for part in group {
        let start = match way {
            Way::ToDevice => part.to,
            Way::FromDevice => part.from,
        };
        split(driver, start, part.bytes, |gpu, inside, bytes| {
            let staged = stage.gpu + offset + inside;
            let (to, from) = match way {
                Way::ToDevice => (gpu, staged),
                Way::FromDevice => (staged, gpu),
            };
            parts.push(work(&Segment { to, from, bytes }));
        })?;
        offset += part.bytes;
    }
    Ok(parts)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_shares_of_a_copy_within_bounds() {
        for (bytes, wanted) in [
            (1, PIECE_BYTES_MIN),
            (PIECE_BYTES_MIN, PIECE_BYTES_MIN),
            (1 << 20, 256 << 10),
            ((1 << 20) + 1, (256 << 10) + 4096),
            (4 << 20, GROUP_BYTES),
            (1 << 40, GROUP_BYTES),
        ] {
            assert_eq!(piece_bytes(bytes), wanted, "{bytes}");
        }
    }

    #[test]
    fn lanes_take_every_piece_once() {
        let stage = Stage::at(0, 0);
        let shape = Shape::linear(0, 0, 10 * GROUP_BYTES + 5);
        let taken = Mutex::new(Vec::new());
        let copied = in_lanes(&[[stage; 2]; 3], shape, |pieces, _| {
            while let Some(group) = pieces.lock().next() {
                taken.lock().push((group[0].to, bytes_of(&group)));
            }
            Ok(())
        });
        assert_eq!(copied, Ok(()));
        let mut taken = taken.into_inner();
        taken.sort_unstable();
        let mut wanted: Vec<_> = (0..10).map(|i| (i * GROUP_BYTES, GROUP_BYTES)).collect();
        wanted.push((10 * GROUP_BYTES, 5));
        assert_eq!(taken, wanted);
    }

    #[test]
    fn one_lane_that_fails_fails_the_copy() {
        let lanes = [[Stage::at(0, 0); 2], [Stage::at(1, 1); 2]];
        let shape = Shape::linear(0, 0, GROUP_BYTES);
        for failing in [0, 1] {
            let copied = in_lanes(&lanes, shape, |_, lane| match lane[0].host == failing {
                true => Err(Code::ILLEGAL_ADDRESS),
                false => Ok(()),
            });
            assert_eq!(copied, Err(Code::ILLEGAL_ADDRESS), "{failing}");
        }
    }
}
