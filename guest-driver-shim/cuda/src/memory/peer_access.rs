//! Access to memory of other devices: each chunk of a device's pool is mapped at its own
//! address into the address spaces of the devices that have access to it.

use std::sync::atomic::Ordering;

use causeway_shim_linux::shim::{Access, ChunkPlace, Device, ExportToken};

use super::peers::{Mapped, Peers};
use super::regions::Backing;
use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Answer, Code};

impl Driver {
    /// Returns whether kernels of this device can reach memory of `other`.
    pub(crate) fn can_reach(&self, other: &Self) -> bool {
        let is_peer = self.gpus.peers >> other.gpus.gpu & 1 == 1;
        let all = &self.attributes;
        let end = all.va_base.saturating_add(all.va_bytes);
        let fits = |window: &std::ops::Range<u64>| all.va_base <= window.start && window.end <= end;
        self.ordinal != other.ordinal && is_peer && other.window.as_ref().is_some_and(fits)
    }

    /// Gives a context of this device access to memory of another context's device.
    pub(crate) fn enable_peer(&'static self, own: &Context, peer: &Context) -> Answer {
        self.enable(peer.driver, (own.handle, peer.handle))
    }

    /// Gives this device access to memory of `owner`, for `pair`.
    fn enable(&'static self, owner: &'static Self, pair: (usize, usize)) -> Answer {
        if !self.can_reach(owner) {
            return Err(Code::PEER_ACCESS_UNSUPPORTED);
        }
        let _none_borrows = self.memory.borrowing.lock();
        let mut peers = self.memory.peers.lock();
        if peers.enabled.contains(&pair) {
            return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
        }
        peers.enabled.push(pair);
        // Before the look: what is allocated from here on is mapped by who allocates it.
        let bit = 1 << self.ordinal;
        owner.memory.reached_by.fetch_or(bit, Ordering::SeqCst);
        let mut pieces = owner.memory.pieces().into_iter();
        let mapped = pieces.try_for_each(|address| peers.map(self, owner, address));
        if mapped.is_err() {
            // A program that goes on without access can ask once more.
            peers.take(self, |known| *known == pair);
        }
        mapped
    }

    /// Takes the access to another context's device from a context.
    pub(crate) fn disable_peer(&'static self, own: &Context, peer: &Context) -> Answer {
        self.disable((own.handle, peer.handle))
    }

    fn disable(&'static self, pair: (usize, usize)) -> Answer {
        if !self.memory.peers.lock().enabled.contains(&pair) {
            return Err(Code::PEER_ACCESS_NOT_ENABLED);
        }
        // Work that was submitted may use the access.
        let drained = self.rings.drain(self);
        let _none_borrows = self.memory.borrowing.lock();
        self.memory.peers.lock().take(self, |known| *known == pair);
        drained
    }

    /// Gives this device access to memory of a pool of `owner`, or takes it. The pool's memory lies
    /// among that of others in chunks, which are mapped as wholes: so kernels that reach for memory
    /// of other pools do not fault either.
    pub(super) fn open_pool(
        &'static self,
        owner: &'static Self,
        pool: usize,
        opens: bool,
    ) -> Answer {
        let changed = match opens {
            true => self.enable(owner, (pool, pool)),
            false => self.disable((pool, pool)),
        };
        match changed {
            Err(Code::PEER_ACCESS_ALREADY_ENABLED | Code::PEER_ACCESS_NOT_ENABLED) => Ok(()),
            changed => changed,
        }
    }

    /// Returns whether this device has access to memory of a pool of another device.
    pub(super) fn reaches_pool(&self, pool: usize) -> bool {
        self.memory.peers.lock().enabled.contains(&(pool, pool))
    }

    /// Ends all access of and to a context, whose work has ended.
    pub(crate) fn end_peers_of(&self, context: usize) {
        for driver in Driver::all() {
            let _none_borrows = driver.memory.borrowing.lock();
            let mut peers = driver.memory.peers.lock();
            let ends = |(own, peer): &(usize, usize)| *own == context || *peer == context;
            if peers.enabled.iter().any(ends) {
                peers.take(driver, ends);
            }
        }
    }

    /// Maps a fresh piece of this device's memory for the devices that have access to it.
    pub(super) fn show_to_peers(&self, address: u64) {
        let reached_by = self.memory.reached_by.load(Ordering::SeqCst);
        if reached_by != 0 {
            self.show_to(reached_by, address);
        }
    }

    #[cold]
    fn show_to(&self, reached_by: u64, address: u64) {
        let others = Driver::all().iter();
        for other in others.filter(|other| reached_by >> other.ordinal & 1 == 1) {
            let _none_borrows = other.memory.borrowing.lock();
            let mapped = other.memory.peers.lock().map(other, self, address);
            if mapped.is_err() {
                log::warn!(
                    "device {} does not reach memory at {address:#x} of device {}",
                    other.ordinal,
                    self.ordinal
                );
            }
        }
    }

    /// Ends the mappings of memory that this device's pool has given back.
    pub(super) fn hide_from_peers(&self) {
        let reached_by = self.memory.reached_by.load(Ordering::SeqCst);
        let others = Driver::all().iter();
        for other in others.filter(|other| reached_by >> other.ordinal & 1 == 1) {
            other.memory.peers.lock().forget_gone(self);
        }
    }

    /// Maps memory of `owner` for one copy of this device, which does not reach it: the chunk with
    /// these bytes. `copy` makes the copy. Returns `None` if it cannot be mapped.
    pub(super) fn with_borrowed(
        &'static self,
        owner: &'static Self,
        (start, bytes): (u64, u64),
        copy: impl FnOnce() -> Answer,
    ) -> Option<Answer> {
        if !self.can_reach(owner) {
            return None;
        }
        // What is mapped for another copy is none of this one's, and ends with that.
        let _alone = self.memory.borrowing.lock();
        let place = owner.memory.device.lock().chunk_at(start)?;
        if place.address + place.bytes - start < bytes {
            return None;
        }
        // A context may have got access since somebody looked.
        let is_mapped = self.memory.peers.lock().has(owner, start);
        let _borrowed = match is_mapped {
            true => None,
            false => Some(import(self, owner, place).ok()?),
        };
        Some(copy())
    }

    /// Returns whether this device reaches an address of another one's pool.
    pub(super) fn reaches(&self, owner: &Self, address: u64) -> bool {
        self.memory.peers.lock().has(owner, address)
            || owner.memory.is_mapped_for(self.ordinal, address)
    }
}

impl Peers {
    /// Maps the chunk of `owner` that contains an address for `driver`'s device, unless it is.
    fn map(&mut self, driver: &'static Driver, owner: &Driver, address: u64) -> Answer {
        let Some(place) = owner.memory.device.lock().chunk_at(address) else {
            return Ok(());
        };
        if self.mapped.contains_key(&(owner.ordinal, place.number)) {
            return Ok(());
        }
        // Another chunk may have been there.
        self.forget_gone(owner);
        let mapped = import(driver, owner, place)?;
        self.mapped.insert((owner.ordinal, place.number), mapped);
        Ok(())
    }

    fn forget_gone(&mut self, owner: &Driver) {
        let pool = owner.memory.device.lock();
        self.mapped.retain(|(device, number), mapped| {
            let is_there = |found: ChunkPlace| found.number == *number;
            *device != owner.ordinal || pool.chunk_at(mapped.place.address).is_some_and(is_there)
        });
    }

    /// Takes pairs of contexts out, and ends the mappings that no pair needs any more.
    fn take(&mut self, driver: &Driver, ends: impl Fn(&(usize, usize)) -> bool) {
        self.enabled.retain(|pair| !ends(pair));
        let bit = 1_u64 << driver.ordinal;
        for owner in Driver::all() {
            if !self.enabled.iter().any(|(_, peer)| owner.owns(*peer)) {
                owner.memory.reached_by.fetch_and(!bit, Ordering::SeqCst);
                self.mapped
                    .retain(|(device, _), _| *device != owner.ordinal);
            }
        }
    }

    fn has(&self, owner: &Driver, address: u64) -> bool {
        let of_owner = (owner.ordinal, 0)..(owner.ordinal + 1, 0);
        let mut mapped = self.mapped.range(of_owner).map(|(_, mapped)| mapped.place);
        mapped.any(|place| (place.address..place.address + place.bytes).contains(&address))
    }
}

/// Exports a chunk of `owner` to the device of `driver`, and maps it there at its own address. The
/// caller holds `borrowing`, so that no copy has the chunk mapped meanwhile.
fn import(driver: &'static Driver, owner: &Driver, place: ChunkPlace) -> Answer<Mapped> {
    let pool = &owner.memory.device;
    let token = pool.lock().export_to(place.address, driver.gpus.gpu);
    let token = token.ok_or(Code::OUT_OF_MEMORY)?;
    let refused = |error: &dyn std::fmt::Display| {
        log::warn!("cannot map memory of device {}: {error}", owner.ordinal);
        // No work can use it.
        let _ = owner.device.revoke(&token);
        Code::OUT_OF_MEMORY
    };
    let access = Access::ReadWrite;
    let memory = driver.device.import(&token, access);
    let memory = memory.map_err(|error| refused(&error))?;
    let mapping = driver
        .space
        .map_at(&memory, 0, place.bytes, access, place.address);
    mapping.map_err(|error| refused(&error))?;
    let exporter = owner.device;
    let end = move || end_export(driver, (exporter, token));
    Ok(Mapped::new(place, memory, end))
}

/// Ends an export to the device of `driver` whose mapping has ended. Work that was submitted may
/// still use the memory, and the owner would not wait long for that: so later, if there is some.
fn end_export(driver: &'static Driver, (owner, token): (&'static Device<'static>, ExportToken)) {
    let marks = driver.rings.marks();
    driver.rings.ask(driver, &marks);
    let end = move || {
        let is_over = driver.rings.are_reached(&marks);
        if is_over {
            // It has ended with the chunk, if that is gone.
            let _ = owner.revoke(&token);
        }
        is_over
    };
    let mut ended = driver.memory.ended_exports.lock();
    ended.push(Box::new(end));
    ended.retain_mut(|end| !end());
}

impl super::Memory {
    /// Returns whether the program has given another device rights to a mapping of this one's
    /// memory.
    fn is_mapped_for(&self, ordinal: usize, address: u64) -> bool {
        let regions = self.regions.lock();
        match regions.find(address).map(|(_, region)| &region.backing) {
            Some(Backing::Mapped(mapped)) => mapped.is_reached_by(ordinal),
            _ => false,
        }
    }

    /// Returns the addresses of all pieces of the device's pool.
    fn pieces(&self) -> Vec<u64> {
        let regions = self.regions.lock();
        let pieces = regions.all().filter_map(|region| match &region.backing {
            Backing::Piece { piece, .. } => Some(piece.address()),
            _ => None,
        });
        pieces.collect()
    }
}
