//! BAR 4: MSI-X structures, and doorbells that are not bound.

use std::sync::Arc;

use causeway_protocol::registers::CLIENTS;
use causeway_protocol::registers::doorbells::{COUNT, FIRST, MSIX_PENDING, MSIX_TABLE, STRIDE};

use super::Doorbells;
use crate::bus::{BusDevice, Refusal, Response};
use crate::pci::MsixTable;

/// Number of MSI-X interrupt vectors of the Causeway function: one for each client.
pub const VECTORS: u16 = CLIENTS as u16;

/// BAR 4 of the Causeway function as a device on the MMIO bus: its MSI-X table, pending bits and
/// doorbells. A store to a bound doorbell is handled by KVM without an exit and does not come here.
pub struct DoorbellBar {
    table: Arc<MsixTable>,
    doorbells: Arc<Doorbells>,
}

/// The part of the BAR at an offset, and the offset in the part.
enum Part {
    Table(u64),
    Pending(u64),
    Doorbell(u32, u64),
    Nothing,
}

debug_by_name!(DoorbellBar);

impl DoorbellBar {
    /// Returns BAR 4 of the Causeway function, which contains the MSI-X table `table` and the
    /// doorbells `doorbells`.
    pub fn new(table: Arc<MsixTable>, doorbells: Arc<Doorbells>) -> Self {
        Self { table, doorbells }
    }
}

impl Part {
    fn at(offset: u64) -> Self {
        const { assert!(MSIX_TABLE < MSIX_PENDING && MSIX_PENDING < FIRST) };
        if offset < MSIX_PENDING {
            return Self::Table(offset - MSIX_TABLE);
        }
        let Some(from_first) = offset.checked_sub(FIRST) else {
            return Self::Pending(offset - MSIX_PENDING);
        };
        match u32::try_from(from_first / STRIDE) {
            Ok(index) if index < COUNT => Self::Doorbell(index, from_first % STRIDE),
            _ => Self::Nothing,
        }
    }
}

impl BusDevice for DoorbellBar {
    fn name(&self) -> &'static str {
        "doorbells"
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        match Part::at(offset) {
            Part::Table(offset) => self.table.read(offset, into).into(),
            Part::Pending(offset) => self.table.read_pending(offset, into).into(),
            // Doorbells are for storing to; a load would be an exit that means nothing.
            Part::Doorbell(..) | Part::Nothing => Response::refused(Refusal::NoRegister),
        }
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        match Part::at(offset) {
            Part::Table(offset) => self.table.write(offset, from).into(),
            Part::Pending(_) => Response::refused(Refusal::ReadOnly),
            Part::Nothing => Response::refused(Refusal::NoRegister),
            Part::Doorbell(_, 1..) => Response::refused(Refusal::NoRegister),
            Part::Doorbell(..) if from.len() != 4 => Response::refused(Refusal::BadSize),
            Part::Doorbell(index, 0) if self.doorbells.ring(index) => Response::ok("doorbell"),
            Part::Doorbell(..) => Response::refused(Refusal::UnboundDoorbell),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::fake::Fake;
    use vmm_sys_util::eventfd::EventFd;

    fn bar() -> DoorbellBar {
        let doorbells = Doorbells::new(Arc::new(Fake::default()));
        DoorbellBar::new(Arc::new(MsixTable::silent(VECTORS)), Arc::new(doorbells))
    }

    #[test]
    fn each_part_is_where_the_protocol_has_it() {
        let bar = bar();
        let mut word = [0; 4];
        assert_eq!(bar.read(MSIX_TABLE + 12, &mut word).register, "msix_table");
        assert_eq!(word, [1, 0, 0, 0], "masked");
        assert_eq!(bar.read(MSIX_PENDING, &mut word).register, "msix_pending");
        assert_eq!(
            bar.write(MSIX_PENDING, &word).result,
            Err(Refusal::ReadOnly)
        );
        let behind = FIRST + u64::from(COUNT) * STRIDE;
        for offset in [FIRST, FIRST + 4, behind] {
            assert_eq!(bar.read(offset, &mut word).result, Err(Refusal::NoRegister));
        }
        assert_eq!(bar.write(behind, &word).result, Err(Refusal::NoRegister));
    }

    #[test]
    fn only_the_first_word_of_a_bound_doorbell_rings() {
        let bar = bar();
        let event = EventFd::new(libc::EFD_NONBLOCK).unwrap();
        bar.doorbells.bind(2, &event).unwrap();
        let at = FIRST + 2 * STRIDE;
        assert_eq!(bar.write(at, &[0; 4]).result, Ok(()));
        assert_eq!(event.read().unwrap(), 1);
        for (offset, bytes, refusal) in [
            (at, 8, Refusal::BadSize),
            (at, 1, Refusal::BadSize),
            (at + 4, 4, Refusal::NoRegister),
            (at + STRIDE, 4, Refusal::UnboundDoorbell),
        ] {
            let refused = bar.write(offset, &vec![0; bytes]).result;
            assert_eq!(refused, Err(refusal), "{offset:#x}");
        }
        event.read().unwrap_err();
    }
}
