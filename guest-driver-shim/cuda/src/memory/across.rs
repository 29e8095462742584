//! Copies that the device of their stream cannot make, because it does not reach memory of another:
//! by a device that reaches both sides, or else through memory of the host.
//!
//! They are done when the call returns. The work before them in the stream is done before, and so
//! they have the place in its order that an asynchronous copy has.

use super::Place;
use super::segments::{Shape, Side};
use super::staging::GROUP_BYTES;
use super::transfer::{self, Direction, GROUP_COPIES, Sides};
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::stream::Stream;

/// Most bytes that are copied as one.
const PART_BYTES: u64 = 16 * GROUP_BYTES;
/// Fewest bytes for which memory of the other device is mapped for the time of a copy. That takes
/// some requests, in which a copy through memory of the host moves a few MiB.
const BORROWED_BYTES_MIN: u64 = 8 << 20;

/// Copies in the order of `stream`, which is one of `driver`'s device. `places` say what the
/// destination and the source are for that device. If `waits` holds, this waits for
/// earlier work of the other devices, too.
pub(super) fn copy(
    driver: &Driver,
    stream: &Stream,
    shape: Shape,
    (to, from): (Place, Place),
    waits: bool,
) -> Answer {
    if stream.is_capturing() {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    stream.check_implicit(driver)?;
    driver.wait_for(stream.end(driver))?;
    for place in [to, from] {
        if let Place::Elsewhere(owner) = place
            && waits
        {
            owner.rings.drain(owner)?;
        }
    }
    let mut others = [to, from].into_iter().filter_map(|place| match place {
        Place::Elsewhere(owner) => Some(owner),
        _ => None,
    });
    if let Some(other) = others.find(|other| reaches_all(other, &shape)) {
        other.check_sticky()?;
        let stream = Stream::default_of(0, false);
        transfer::copy(other, &stream, shape, Direction::DeviceToDevice, false)?;
        return other.wait_for(stream.last());
    }
    if shape.bytes() >= BORROWED_BYTES_MIN
        && let Some(done) = copy_borrowed(driver.lasting()?, stream, &shape, (to, from))
    {
        return done;
    }
    let (to, from) = (End::of(driver, stream, to)?, End::of(driver, stream, from)?);
    let mut staged = vec![0_u8; shape.bytes().min(PART_BYTES) as usize];
    let start = staged.as_mut_ptr() as u64;
    for part in shape.parts(PART_BYTES, GROUP_COPIES) {
        let between = Side::dense(start, &part);
        from.copy(Shape {
            to: between,
            ..part
        })?;
        to.copy(Shape {
            from: between,
            ..part
        })?;
    }
    Ok(())
}

/// Copies between memory of the device and a chunk of another one that it may reach, but does not.
/// Maps the chunk for the time of the copy. Returns `None` if the chunk cannot be mapped.
fn copy_borrowed(
    driver: &'static Driver,
    stream: &Stream,
    shape: &Shape,
    places: (Place, Place),
) -> Option<Answer> {
    let [to, from] = shape.spans();
    let (owner, range, sides) = match places {
        (Place::Elsewhere(owner), Place::Gpu { host: None, .. }) => {
            (owner, to, Sides::to_gpu(driver))
        }
        (Place::Gpu { host: None, .. }, Place::Elsewhere(owner)) => {
            (owner, from, Sides::from_gpu(driver))
        }
        _ => return None,
    };
    owner.check_sticky().ok()?;
    driver.with_borrowed(owner, range, || {
        transfer::direct(sides, stream, *shape)?;
        driver.wait_for(stream.last())
    })
}

/// Returns whether a device reaches both sides of a copy.
fn reaches_all(driver: &Driver, shape: &Shape) -> bool {
    shape.spans().into_iter().all(|(start, bytes)| {
        let place = driver.memory.place_rows(start, bytes);
        matches!(place, Ok(Place::Gpu { .. }))
    })
}

/// One side of such a copy: the device that reaches it, and a stream there.
struct End<'a> {
    driver: &'a Driver,
    stream: &'a Stream,
    /// What is used for a device that is not that of the copy's stream.
    other: Option<Stream>,
}

impl<'a> End<'a> {
    fn of(driver: &'a Driver, stream: &'a Stream, place: Place) -> Answer<Self> {
        Ok(match place {
            Place::Elsewhere(owner) => {
                owner.check_sticky()?;
                Self {
                    driver: owner,
                    stream,
                    other: Some(Stream::default_of(0, false)),
                }
            }
            _ => Self {
                driver,
                stream,
                other: None,
            },
        })
    }

    /// Copies between memory of this side and memory of the host, and waits for that.
    fn copy(&self, shape: Shape) -> Answer {
        let stream = self.other.as_ref().unwrap_or(self.stream);
        transfer::copy(self.driver, stream, shape, Direction::Any, false)?;
        self.driver.wait_for(stream.last())
    }
}
