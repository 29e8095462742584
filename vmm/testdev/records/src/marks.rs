//! The stores to ports by which a guest makes marks.

use crate::compose::Text;
use crate::{Mark, PORT_MARK, PORT_TEXT, PhasePath, TEXT_BYTES, Totals};

/// A 4-byte store to an I/O port of the test device. It is one exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStore {
    /// The port.
    pub port: u16,
    /// The value that is stored.
    pub value: u32,
}

impl From<Mark> for PortStore {
    fn from(mark: Mark) -> Self {
        Self {
            port: PORT_MARK,
            value: mark as u32,
        }
    }
}

/// Returns the stores that begin a phase, in their order; the last one is the mark. `path` says
/// what the phase exercises. A `name` longer than [`TEXT_BYTES`] is cut.
pub fn begin_phase(path: PhasePath, name: &str) -> impl Iterator<Item = PortStore> + use<> {
    let mark = match path {
        PhasePath::Setup => Mark::SetupBegin,
        PhasePath::Control => Mark::ControlBegin,
        PhasePath::Data => Mark::DataBegin,
    };
    let Text { room, used } = Text::<TEXT_BYTES>::new(name);
    with_text(room, used, mark)
}

/// Returns the store that ends the open phase. It comes before [`report_totals`], whose stores
/// would otherwise be exits of the phase.
#[must_use]
pub fn end_phase() -> PortStore {
    Mark::PhaseEnd.into()
}

/// Returns the stores that report the `totals` of the phase that ended last, in their order.
pub fn report_totals(totals: Totals) -> impl Iterator<Item = PortStore> {
    let numbers = [totals.operations, totals.bytes, totals.doorbells];
    let mut room = [0; TEXT_BYTES];
    for (place, number) in room.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    with_text(room, size_of_val(&numbers), Mark::Totals)
}

/// Returns the stores of a mark with the first `used` bytes of `room` as its text. The rest of
/// `room` is zero.
fn with_text(room: [u8; TEXT_BYTES], used: usize, mark: Mark) -> impl Iterator<Item = PortStore> {
    let words = (0..used.div_ceil(4)).map(move |word| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&room[4 * word..4 * word + 4]);
        PortStore {
            port: PORT_TEXT,
            value: u32::from_le_bytes(bytes),
        }
    });
    let forget = core::iter::once(Mark::Forget.into());
    forget.chain(words).chain(core::iter::once(mark.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn text(stores: &[PortStore]) -> Vec<u8> {
        let words = stores.iter().filter(|store| store.port == PORT_TEXT);
        words.flat_map(|store| store.value.to_le_bytes()).collect()
    }

    #[test]
    fn the_mark_comes_last_and_what_was_left_is_forgotten_first() {
        let stores: Vec<_> = begin_phase(PhasePath::Data, "loads").collect();
        assert_eq!(stores.len(), 4);
        assert_eq!(stores[0], Mark::Forget.into());
        assert_eq!(text(&stores), b"loads\0\0\0");
        assert_eq!(stores[3], Mark::DataBegin.into());
        assert_eq!(begin_phase(PhasePath::Setup, "").count(), 2);
    }

    #[test]
    fn a_long_name_is_cut_at_the_room_of_the_device() {
        let long = "ä".repeat(40);
        let stores: Vec<_> = begin_phase(PhasePath::Control, &long).collect();
        assert_eq!(text(&stores), "ä".repeat(24).as_bytes());
        assert_eq!(stores.last(), Some(&Mark::ControlBegin.into()));
    }

    #[test]
    fn totals_are_three_numbers() {
        let totals = Totals {
            operations: 1 << 40,
            bytes: 2,
            doorbells: 3,
        };
        let stores: Vec<_> = report_totals(totals).collect();
        let numbers: Vec<u8> = [1_u64 << 40, 2, 3]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        assert_eq!(text(&stores), numbers);
        assert_eq!(stores.last(), Some(&Mark::Totals.into()));
    }
}
