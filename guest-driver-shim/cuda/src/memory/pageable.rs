//! Copies from and to memory of the process that the GPU does not reach, through staging memory.
//!
//! Such memory is copied at the call (CUDA driver API, "API synchronization behavior"): a copy from
//! it returns when it has been read, a copy to it when it has been written.
//!
//! The device copies pieces while the processor copies others. One processor copies more slowly
//! than the device, so that large copies have several threads, where there are processors for them.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::segments::{Shape, Side};
use super::staging::{GROUP_BYTES, Lane, Stage};
use super::transfer::{GROUP_COPIES, Sides};
use crate::boundary;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::rings::Submission;
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
type Pieces<'a> = Mutex<&'a mut (dyn Iterator<Item = Shape> + Send + 'a)>;

/// Returns the device's copy of a piece between its other side and staging memory.
pub(super) type OnDevice<'a> = &'a (dyn Fn(Shape, Stage) -> Answer<Work> + Sync);

/// Copies from pageable memory.
pub(super) fn upload(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    upload_by(driver, stream, shape, &|piece, stage| {
        to_device(driver, piece, stage)
    })
}

/// Copies from pageable memory to what `on_device` copies pieces to.
pub(super) fn upload_by(
    driver: &Driver,
    stream: &Stream,
    shape: Shape,
    on_device: OnDevice<'_>,
) -> Answer {
    let mut staging = driver.memory.staging(driver)?;
    let staging = staging.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
    if shape.bytes() >= LARGE_BYTES {
        let lanes = staging.lanes(driver);
        if lanes.len() > 1 {
            let sent = in_lanes(&lanes, shape, |pieces, lane| {
                send(driver, stream, pieces, lane, on_device)
            });
            return settled(driver, sent);
        }
    }
    for piece in shape.parts(GROUP_BYTES, GROUP_COPIES) {
        let stage = staging.place(driver, piece.bytes())?;
        fill(piece, stage);
        stream.submit(driver, on_device(piece, stage)?)?;
        staging.note(stage, stream.last());
    }
    Ok(())
}

/// Copies to pageable memory.
pub(super) fn download(driver: &Driver, stream: &Stream, shape: Shape) -> Answer {
    download_by(driver, stream, shape, &|piece, stage| {
        from_device(driver, piece, stage)
    })
}

/// Copies to pageable memory from what `on_device` copies pieces from.
pub(super) fn download_by(
    driver: &Driver,
    stream: &Stream,
    shape: Shape,
    on_device: OnDevice<'_>,
) -> Answer {
    let mut staging = driver.memory.staging(driver)?;
    let staging = staging.as_mut().ok_or(Code::OUT_OF_MEMORY)?;
    let bytes = shape.bytes();
    if bytes >= LARGE_BYTES {
        let lanes = staging.lanes(driver);
        let brought = in_lanes(&lanes, shape, |pieces, lane| {
            let copy = boundary::stream_bytes;
            bring((driver, stream), pieces, lane, on_device, copy)
        });
        return settled(driver, brought);
    }
    let mut pieces = shape.parts(piece_bytes(bytes), GROUP_COPIES);
    let (pieces, lane) = (Mutex::new(&mut pieces as _), staging.first_lane());
    let copy = boundary::copy_bytes;
    let brought = bring((driver, stream), &pieces, lane, on_device, copy);
    settled(driver, brought)
}

/// Returns `answer`. After an error, waits for the copies that are under way: the next call uses
/// the same staging memory.
fn settled(driver: &Driver, answer: Answer) -> Answer {
    answer.inspect_err(|_| {
        // Its error would only repeat the first.
        let _ = driver.rings.drain(driver);
    })
}

/// Copies with a thread for each lane, the calling one among them. A thread that cannot be started
/// leaves its pieces to the others.
fn in_lanes(
    lanes: &[Lane],
    shape: Shape,
    copy: impl Fn(&Pieces<'_>, Lane) -> Answer + Sync,
) -> Answer {
    let mut pieces = shape.parts(GROUP_BYTES, GROUP_COPIES);
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
fn send(
    driver: &Driver,
    stream: &Stream,
    pieces: &Pieces<'_>,
    lane: Lane,
    on_device: OnDevice<'_>,
) -> Answer {
    let mut reads = [Submission::default(); 2];
    for (stage, read) in lane.iter().zip(0..2).cycle() {
        let Some(piece) = pieces.lock().next() else {
            break;
        };
        driver.wait_for(reads[read])?;
        fill(piece, *stage);
        let work = on_device(piece, *stage)?;
        reads[read] = stream.submit_awaited(driver, &work)?;
    }
    reads.into_iter().try_for_each(|read| driver.wait_for(read))
}

/// Copies pieces from the device until none is left, with `copy` out of staging memory.
fn bring(
    (driver, stream): (&Driver, &Stream),
    pieces: &Pieces<'_>,
    lane: Lane,
    on_device: OnDevice<'_>,
    copy: fn(u64, u64, usize),
) -> Answer {
    let mut arriving: VecDeque<Arriving> = VecDeque::with_capacity(2);
    for stage in lane.into_iter().cycle() {
        if arriving.len() == 2
            && let Some(oldest) = arriving.pop_front()
        {
            oldest.finish(driver, copy)?;
        }
        let Some(piece) = pieces.lock().next() else {
            break;
        };
        let work = on_device(piece, stage)?;
        arriving.push_back(Arriving {
            submission: stream.submit_awaited(driver, &work)?,
            stage,
            piece,
        });
    }
    let mut rest = arriving.into_iter();
    rest.try_for_each(|piece| piece.finish(driver, copy))
}

/// A piece that the device copies into staging memory, to be read when that is done.
struct Arriving {
    submission: Submission,
    stage: Stage,
    piece: Shape,
}

impl Arriving {
    fn finish(self, driver: &Driver, copy: fn(u64, u64, usize)) -> Answer {
        driver.wait_for(self.submission)?;
        let mut offset = 0;
        for row in self.piece.rows() {
            copy(row.to, self.stage.host + offset, row.bytes as usize);
            offset += row.bytes;
        }
        Ok(())
    }
}

/// Copies a piece into staging memory.
fn fill(piece: Shape, stage: Stage) {
    let mut offset = 0;
    for row in piece.rows() {
        boundary::copy_bytes(stage.host + offset, row.from, row.bytes as usize);
        offset += row.bytes;
    }
}

/// Returns the device's copy of a piece out of staging memory.
fn to_device(driver: &Driver, piece: Shape, stage: Stage) -> Answer<Work> {
    let from = Side::dense(stage.gpu, &piece);
    Sides::from_gpu(driver).work(Shape { from, ..piece })
}

/// Returns the device's copy of a piece into staging memory.
fn from_device(driver: &Driver, piece: Shape, stage: Stage) -> Answer<Work> {
    let to = Side::dense(stage.gpu, &piece);
    Sides::to_gpu(driver).work(Shape { to, ..piece })
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
            while let Some(piece) = pieces.lock().next() {
                taken.lock().push((piece.to.start, piece.bytes()));
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
