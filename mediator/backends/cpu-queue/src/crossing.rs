//! Copies from one device to another: at once where a device reaches memory of the other, else
//! piece by piece through a buffer.

use std::time::Instant;

use causeway_mediator::backend::{Crossed, Fault, Moved, Place, Way};
use causeway_protocol::message::Status;

/// `CUDA_ERROR_ILLEGAL_ADDRESS` of `cuda.h`.
const ILLEGAL_ADDRESS: u32 = 700;
/// Size of the buffer.
const BUFFER_BYTES: usize = 256 << 10;

/// What a queue knows of its copies from one device to another.
#[derive(Debug, Default)]
pub(crate) struct Crossing {
    /// Whether the queue replays a recording, whose copies have to be direct and are not counted.
    pub is_replay: bool,
    crossed: Crossed,
    /// Empty until it is first used.
    buffer: Vec<u8>,
}

impl Crossing {
    /// Calls `copy`, which copies `bytes` bytes between memory at the places `from` and `to`: with
    /// a buffer, if it has to go through one.
    ///
    /// # Errors
    /// `MemoryFault` if the queue may not copy between these places; `copy` is not called then.
    pub fn pass(
        &mut self,
        (from, to): (Place, Place),
        bytes: u64,
        copy: impl FnOnce(Option<&mut [u8]>),
    ) -> Result<(), Fault> {
        let way = match Way::between(from, to) {
            Ok(None) => {
                copy(None);
                return Ok(());
            }
            Ok(Some(Way::Staged)) if self.is_replay => {
                return Err(refused(
                    "a recording copies",
                    "submit a copy packet that is not recorded",
                ));
            }
            Ok(Some(way)) => way,
            Err(_) => {
                return Err(refused(
                    "a copy goes",
                    "the other side must be memory of the session's own GPU",
                ));
            }
        };
        let begun = Instant::now();
        match way {
            Way::Direct => copy(None),
            Way::Staged => {
                self.buffer.resize(BUFFER_BYTES, 0);
                copy(Some(&mut self.buffer));
            }
        }
        if !self.is_replay {
            let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.crossed.add(way, Moved { bytes, ns });
        }
        Ok(())
    }

    /// Returns what was copied since the last call.
    pub fn take(&mut self) -> Crossed {
        std::mem::take(&mut self.crossed)
    }
}

fn refused(does: &str, way_out: &str) -> Fault {
    let text =
        format!("{does} from or to memory of a GPU that cannot be a peer of this one: {way_out}");
    Fault::new(Status::MemoryFault, text).with_cuda_result(ILLEGAL_ADDRESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const APART: Place = Place::Apart { gpu: 1 };

    #[test]
    fn a_copy_goes_through_the_buffer_only_where_it_has_to() {
        let mut crossing = Crossing::default();
        for (from, to, is_staged) in [
            (Place::Own, Place::Own, false),
            (Place::Host, Place::Own, false),
            (Place::Peer, Place::Own, false),
            (APART, Place::Own, true),
            (Place::Own, APART, true),
        ] {
            let mut seen = None;
            let passed = crossing.pass((from, to), 8, |buffer| seen = Some(buffer.is_some()));
            assert_eq!((passed, seen), (Ok(()), Some(is_staged)), "{from:?} {to:?}");
        }
        let crossed = crossing.take();
        assert_eq!((crossed.direct.bytes, crossed.staged.bytes), (8, 16));
        assert_eq!(crossing.take(), Crossed::default());
    }

    #[test]
    fn what_has_no_way_is_refused_and_not_copied() {
        let mut crossing = Crossing::default();
        let refused = |crossing: &mut Crossing, from, to| {
            let passed = crossing.pass((from, to), 8, |_| panic!("it is copied"));
            assert_eq!(passed.unwrap_err().status, Status::MemoryFault);
        };
        refused(&mut crossing, APART, Place::Host);
        refused(&mut crossing, Place::Peer, APART);
        refused(&mut crossing, APART, APART);
        crossing.is_replay = true;
        refused(&mut crossing, APART, Place::Own);
        crossing.pass((Place::Peer, Place::Own), 8, |_| {}).unwrap();
        assert_eq!(crossing.take(), Crossed::default());
    }
}
