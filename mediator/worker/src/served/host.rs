//! The guest, as a session in a worker reaches it: RAM by mappings of its own, the rest by calls.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_mediator::Client;
use causeway_mediator::host::{Host, PlaceError, RamError, RamRegion, RingPlace};
use causeway_memory::{Backing, Mapping, MemoryError, SharedMemory};
use causeway_protocol::Access;
use vmm_sys_util::eventfd::EventFd;
use zerocopy::IntoBytes;

use super::calls::CallChannel;
use crate::wire::{
    Answer, BindDoorbell, ForClient, Kind, Outcome, Place, Placed, Region, Remove, SetAccess,
    UnbindDoorbell, page_size, page_size_from_wire,
};

/// Guest RAM in this process.
struct Ram {
    region: RamRegion,
    mapping: Mapping,
}

/// Aperture, doorbells and RAM of the guest.
pub(super) struct RemoteHost {
    calls: Arc<CallChannel>,
    ram: Arc<[Ram]>,
}

impl RemoteHost {
    /// Returns the guest whose VMM is called over `calls`. Maps the guest's RAM, which consists of
    /// `regions`, into this process.
    pub fn new(
        calls: Arc<CallChannel>,
        regions: impl Iterator<Item = (Region, OwnedFd)>,
    ) -> Result<Self, MemoryError> {
        let ram = regions.map(|(region, file)| {
            let memory = SharedMemory::adopt(file, page_size_from_wire(region.pages))?;
            let mapping = memory.map(0, memory.bytes(), Access::ReadWrite)?;
            let memory = Arc::new(memory);
            let region = RamRegion {
                base: region.base,
                memory,
            };
            Ok(Ram { region, mapping })
        });
        Ok(Self {
            calls,
            ram: ram.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the same guest, with a VMM that is called over `calls`, another socket.
    pub fn over(&self, calls: Arc<CallChannel>) -> Self {
        let ram = Arc::clone(&self.ram);
        Self { calls, ram }
    }

    /// The region that has all of a range, and the offset in it.
    fn find(&self, address: u64, bytes: u64) -> Result<(&Ram, u64), RamError> {
        let within = |ram: &Ram| {
            let offset = address.checked_sub(ram.region.base)?;
            (offset.checked_add(bytes)? <= ram.mapping.bytes()).then_some(offset)
        };
        self.ram
            .iter()
            .find_map(|ram| Some((ram, within(ram)?)))
            .ok_or(RamError { address, bytes })
    }
}

impl Host for RemoteHost {
    fn place(
        &self,
        backing: &Backing,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, PlaceError> {
        let (kind, file, base, pages) = match backing {
            Backing::Host { memory, offset } => (
                Placed::Host,
                memory.file(),
                *offset,
                page_size(memory.pages()),
            ),
            Backing::Device(memory) => (Placed::Device, memory.file(), 0, 0),
        };
        let request = Place {
            offset: base.saturating_add(offset),
            bytes,
            memory_bytes: backing.bytes(),
            access: access.wire() as u16,
            kind: kind as u16,
            pages,
        };
        let (answer, _) = self.calls.call(Kind::Place, request.as_bytes(), &[file]);
        checked(&answer, 0, bytes).map(|()| answer.value)
    }

    fn set_access(&self, offset: u64, access: Access) -> Result<(), PlaceError> {
        let request = SetAccess {
            offset,
            access: access.wire(),
            reserved: 0,
        };
        let (answer, _) = self.calls.call(Kind::SetAccess, request.as_bytes(), &[]);
        checked(&answer, offset, 0)
    }

    fn remove(&self, offset: u64) -> Result<(), PlaceError> {
        let (answer, _) = self
            .calls
            .call(Kind::Remove, Remove { offset }.as_bytes(), &[]);
        checked(&answer, offset, 0)
    }

    fn ram_regions(&self) -> Vec<RamRegion> {
        self.ram.iter().map(|ram| ram.region.clone()).collect()
    }

    fn ram(&self, address: u64, bytes: u64) -> Result<(Arc<SharedMemory>, u64), RamError> {
        let (ram, offset) = self.find(address, bytes)?;
        Ok((Arc::clone(&ram.region.memory), offset))
    }

    fn read_ram(&self, address: u64, into: &mut [u8]) -> Result<(), RamError> {
        let bytes = into.len() as u64;
        let (ram, offset) = self.find(address, bytes)?;
        let copied = ram.mapping.read(offset, into);
        copied.map_err(|_| RamError { address, bytes })
    }

    fn write_ram(&self, address: u64, from: &[u8]) -> Result<(), RamError> {
        let bytes = from.len() as u64;
        let (ram, offset) = self.find(address, bytes)?;
        let copied = ram.mapping.write(offset, from);
        copied.map_err(|_| RamError { address, bytes })
    }

    fn bind_doorbell(&self, index: u32, event: &EventFd, ring: &RingPlace) -> io::Result<()> {
        let request = BindDoorbell {
            index,
            reserved: 0,
            ring_offset: ring.offset,
        };
        let files = [crate::event::descriptor(event), ring.memory.file()];
        let (answer, _) = self
            .calls
            .call(Kind::BindDoorbell, request.as_bytes(), &files);
        match answer.errno {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno.cast_signed())),
        }
    }

    fn unbind_doorbell(&self, index: u32, _: &EventFd) {
        let request = UnbindDoorbell { index, reserved: 0 };
        self.calls
            .call(Kind::UnbindDoorbell, request.as_bytes(), &[]);
    }

    fn raise(&self, client: Client) {
        let request = ForClient::new(client);
        self.calls.call(Kind::Raise, request.as_bytes(), &[]);
    }
}

/// What an answer says about a call at aperture offset `offset`.
fn checked(answer: &Answer, offset: u64, bytes: u64) -> Result<(), PlaceError> {
    let source = || io::Error::from_raw_os_error(answer.errno.cast_signed());
    match answer.outcome {
        outcome if outcome == Outcome::Done as u32 => Ok(()),
        outcome if outcome == Outcome::Full as u32 => Err(PlaceError::Full { bytes }),
        outcome if outcome == Outcome::Absent as u32 => Err(PlaceError::Absent { offset }),
        outcome if outcome == Outcome::Map as u32 => Err(PlaceError::Map {
            bytes,
            source: MemoryError::Map {
                bytes,
                source: source(),
            },
        }),
        _ => Err(PlaceError::Slot {
            offset,
            source: source(),
        }),
    }
}
