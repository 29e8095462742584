//! Buses: they pass a guest's access to a port or to device memory on to the device that owns the
//! address. A load that no device answers returns all-ones.
//!
//! Lock order: a bus looks its device up under its own lock and has let go of it before the device
//! is called. So a device may take any lock of its own, and may insert, move or remove ranges of
//! any bus, during an access. A device must not hold a lock of its own that its `read` or `write`
//! takes while it calls into a bus's *access* functions.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use parking_lot::RwLock;

mod stray;

use stray::Direction;
pub use stray::{StrayCounters, StrayCounts};

/// An address on a bus: an I/O port or a guest-physical address.
pub trait Address: Copy + Send + Sync + 'static {
    /// One more than the highest address of the bus. `u64::MAX` for a bus with 64-bit addresses,
    /// whose last address no device can have.
    const LIMIT: u64;
    /// Returns the address as a number.
    fn number(self) -> u64;
}

/// The number of an x86 I/O port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// A guest-physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestAddress(pub u64);

impl Address for Port {
    const LIMIT: u64 = 1 << 16;
    fn number(self) -> u64 {
        self.0.into()
    }
}

impl Address for GuestAddress {
    const LIMIT: u64 = u64::MAX;
    fn number(self) -> u64 {
        self.0
    }
}

/// Why a bus or a device refused a guest's access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// No device has this address.
    #[error("the guest accessed an address that belongs to no device of its VM")]
    Unclaimed,
    /// The access begins in the address range of a device and ends outside it.
    #[error("the guest's access begins within a device's addresses, but ends outside them")]
    CrossesEdge,
    /// The device has no register at this address.
    #[error("the guest accessed a device at an offset where it has no register")]
    NoRegister,
    /// The register cannot be accessed with this width.
    #[error("the device's register at this address cannot be accessed with this width")]
    BadSize,
    /// The register cannot be accessed at this alignment.
    #[error("the guest's access to a device's register is misaligned")]
    Misaligned,
    /// The register cannot be stored to.
    #[error("the guest wrote to a read-only register of a device")]
    ReadOnly,
    /// No allocation is mapped at this address of the aperture.
    #[error("the guest accessed the aperture (BAR 2) where no memory is mapped")]
    Hole,
    /// The mapping at this address of the aperture is read-only.
    #[error("the guest wrote to memory in the aperture (BAR 2) that is mapped read-only")]
    WriteForbidden,
    /// The doorbell is bound to no command buffer or queue.
    #[error("the guest rang a doorbell that belongs to no command buffer or queue")]
    UnboundDoorbell,
    /// The host's device, or the host's kernel, refused the access.
    #[error("the host refused the guest's access to a passed-through device")]
    Device,
}

/// What a guest's store does besides changing the device: nothing, stop its virtual CPU, or end its
/// VM. The thread of the virtual CPU carries this out after the device has returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the virtual CPU continues.
    #[default]
    None,
    /// The virtual CPU stops for good.
    Park,
    /// The VM ends with this exit code: zero for success, anything else for failure.
    End(u32),
    /// The guest turns its machine off, or resets it.
    Power(PowerEvent),
}

/// A guest's request to turn its machine off or to reset it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerEvent {
    /// The guest turns its machine off.
    Off,
    /// The guest resets its machine.
    Reset,
}

/// A device's response to a guest's access: the register that was accessed, whether the device
/// carried the access out, and what the access does besides.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Short name of the register, under which exits are counted; [`STRAY`] if the access was
    /// refused.
    pub register: &'static str,
    /// `Ok` if the device carried the access out, else the reason why it did not.
    pub result: Result<(), Refusal>,
    /// What the access does to the virtual CPU or its VM, besides the access itself.
    pub effect: Effect,
}

impl Response {
    /// Returns the response to an access to `register` that was carried out.
    pub const fn ok(register: &'static str) -> Self {
        Self {
            register,
            result: Ok(()),
            effect: Effect::None,
        }
    }

    /// Returns this response with `effect`: what the access does to the virtual CPU or its VM,
    /// besides the access itself.
    pub const fn with(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// Returns the response to an access that the device refused because of `refusal`.
    pub const fn refused(refusal: Refusal) -> Self {
        Self {
            register: STRAY,
            result: Err(refusal),
            effect: Effect::None,
        }
    }
}

/// The result of an access to a register whose accesses never stop the virtual CPU or end the VM:
/// the register's name, or why the access was refused.
pub type AccessResult = Result<&'static str, Refusal>;

impl From<AccessResult> for Response {
    fn from(access: AccessResult) -> Self {
        access.map_or_else(Self::refused, Self::ok)
    }
}

/// Name that takes the place of a register's name when exits by refused accesses are counted.
pub const STRAY: &str = "stray";

/// A device on a bus. The threads of several virtual CPUs may call it at the same time.
pub trait BusDevice: Send + Sync {
    /// Returns the device's short name, under which exits are counted.
    fn name(&self) -> &'static str;

    /// Carries out a load of `into.len()` bytes at `offset` from the start of the device's range,
    /// and stores the result in `into`, which the bus has filled with zeros.
    fn read(&self, offset: u64, into: &mut [u8]) -> Response;

    /// Carries out a store of `from` at `offset` from the start of the device's range.
    fn write(&self, offset: u64, from: &[u8]) -> Response;
}

/// The result of a guest's access: the device and the register that were accessed, and whether the
/// access was carried out. Exits are counted under these names.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Name of the device, or "unclaimed" if no device has the address.
    pub device: &'static str,
    /// Name of the register, or [`STRAY`] if the access was refused.
    pub register: &'static str,
    /// `Ok` if the access was carried out, else why it was refused. A refused load gives the guest
    /// all-ones.
    pub result: Result<(), Refusal>,
    /// What the access does to the virtual CPU or its VM, besides the access itself.
    pub effect: Effect,
}

/// Why a range of addresses cannot be added to a bus or removed from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// The range is empty, or ends beyond the highest address of the bus.
    #[error(
        "invalid address range of a device, {bytes:#x} bytes at address {base:#x}: it is empty, or \
         ends beyond the last address"
    )]
    Invalid {
        /// First address of the range.
        base: u64,
        /// Size of the range in bytes.
        bytes: u64,
    },
    /// Another device has part of the range.
    #[error(
        "cannot add `{device}` to the VM: its {bytes:#x} bytes at address {base:#x} overlap those \
         of `{other}`"
    )]
    Overlap {
        /// First address of the range.
        base: u64,
        /// Size of the range in bytes.
        bytes: u64,
        /// Name of the device that is to be added.
        device: &'static str,
        /// Name of the device that has part of the range already.
        other: &'static str,
    },
    /// No range begins at this address.
    #[error(
        "cannot remove a device from address {base:#x} of the VM: no device's addresses begin \
         there"
    )]
    Absent {
        /// The address at which no range begins.
        base: u64,
    },
}

/// The owner of a range.
#[derive(Clone)]
enum Claim {
    Device(Arc<dyn BusDevice>),
    /// Kept free of devices: guest RAM.
    Reserved(&'static str),
}

impl Claim {
    fn name(&self) -> &'static str {
        match self {
            Self::Device(device) => device.name(),
            Self::Reserved(name) => name,
        }
    }
}

/// A device, and an offset in its range.
type Found = (Arc<dyn BusDevice>, u64);

struct Entry {
    bytes: u64,
    claim: Claim,
}

/// A bus of a VM. It passes each access on to the device that has the address. The address ranges
/// of the devices do not overlap.
pub struct Bus<A> {
    ranges: RwLock<BTreeMap<u64, Entry>>,
    strays: Arc<StrayCounters>,
    address: PhantomData<fn(A)>,
}

/// The bus of a VM's x86 I/O ports.
pub type PortBus = Bus<Port>;
/// The bus of a VM's guest-physical addresses, for accesses that do not go to RAM.
pub type MmioBus = Bus<GuestAddress>;

debug_by_name!(PortBus, MmioBus);

impl<A: Address> Bus<A> {
    /// Returns a bus without devices. The bus counts refused accesses in `strays`.
    pub fn new(strays: Arc<StrayCounters>) -> Self {
        Self {
            ranges: RwLock::default(),
            strays,
            address: PhantomData,
        }
    }

    /// Adds `device` to the bus: accesses to `[base, base + bytes)` go to it from now on.
    ///
    /// # Errors
    /// [`BusError::Invalid`] if the range is empty or ends beyond the highest address of the bus,
    /// [`BusError::Overlap`] if part of it is taken. The bus is unchanged then.
    pub fn insert(&self, base: A, bytes: u64, device: Arc<dyn BusDevice>) -> Result<(), BusError> {
        self.claim(base, bytes, Claim::Device(device))
    }

    /// Keeps the addresses `[base, base + bytes)` free of devices, because they belong to guest RAM
    /// or to the platform. `name` says what they belong to; the error for a device that overlaps
    /// them contains it.
    ///
    /// # Errors
    /// [`BusError::Invalid`] if the range is empty or ends beyond the highest address of the bus,
    /// [`BusError::Overlap`] if part of it is taken. The bus is unchanged then.
    pub fn reserve(&self, base: A, bytes: u64, name: &'static str) -> Result<(), BusError> {
        self.claim(base, bytes, Claim::Reserved(name))
    }

    /// Removes the device or the reservation whose range begins at `base`. When this returns,
    /// another thread may still be in the middle of an access to the device.
    ///
    /// # Errors
    /// [`BusError::Absent`] if no range begins at `base`.
    pub fn remove(&self, base: A) -> Result<(), BusError> {
        let base = base.number();
        let mut ranges = self.ranges.write();
        let removed = ranges.remove(&base);
        removed.map(drop).ok_or(BusError::Absent { base })
    }

    /// Carries out a guest's load from `address`: fills `into` with the bytes that the device
    /// returns, or with all-ones if the access is refused.
    pub fn read(&self, address: A, into: &mut [u8]) -> Hit {
        into.fill(0);
        let bytes = into.len();
        let load = |device: &dyn BusDevice, offset| device.read(offset, into);
        let hit = self.access(Direction::Load, address, bytes, load);
        if hit.result.is_err() {
            into.fill(0xff);
        }
        hit
    }

    /// Carries out a guest's store of `from` to `address`. A store that is refused changes nothing.
    pub fn write(&self, address: A, from: &[u8]) -> Hit {
        let store = |device: &dyn BusDevice, offset| device.write(offset, from);
        self.access(Direction::Store, address, from.len(), store)
    }

    /// Finds the device of an access, lets it carry the access out, and counts a refusal.
    fn access(
        &self,
        direction: Direction,
        address: A,
        bytes: usize,
        carry_out: impl FnOnce(&dyn BusDevice, u64) -> Response,
    ) -> Hit {
        let (address, strays) = (address.number(), &self.strays);
        let (device, response) = match self.find(address, bytes) {
            Ok((device, offset)) => (device.name(), carry_out(&*device, offset)),
            Err((name, refusal)) => (name, Response::refused(refusal)),
        };
        if let Err(refusal) = response.result {
            strays.count(direction, address, bytes, device, refusal);
        }
        Hit {
            device,
            register: response.register,
            result: response.result,
            effect: response.effect,
        }
    }

    fn claim(&self, base: A, bytes: u64, claim: Claim) -> Result<(), BusError> {
        let base = base.number();
        let end = base.checked_add(bytes).filter(|end| *end <= A::LIMIT);
        let Some(end) = end.filter(|_| bytes != 0) else {
            return Err(BusError::Invalid { base, bytes });
        };
        let mut ranges = self.ranges.write();
        // Ranges do not overlap, so the last one that begins below our end is the only one that can
        // reach into ours.
        if let Some((start, other)) = ranges.range(..end).next_back()
            && start + other.bytes > base
        {
            return Err(BusError::Overlap {
                base,
                bytes,
                device: claim.name(),
                other: other.claim.name(),
            });
        }
        ranges.insert(base, Entry { bytes, claim });
        Ok(())
    }

    /// Returns the device whose range contains the whole access, and the offset in that range; else
    /// the name of the device that the access hits, and why the access is refused.
    fn find(&self, address: u64, bytes: usize) -> Result<Found, (&'static str, Refusal)> {
        let ranges = self.ranges.read();
        let unclaimed = ("unclaimed", Refusal::Unclaimed);
        let (start, entry) = ranges.range(..=address).next_back().ok_or(unclaimed)?;
        let offset = address - start;
        if offset >= entry.bytes {
            return Err(unclaimed);
        }
        let Claim::Device(device) = &entry.claim else {
            return Err(unclaimed);
        };
        if bytes as u64 > entry.bytes - offset {
            return Err((device.name(), Refusal::CrossesEdge));
        }
        Ok((Arc::clone(device), offset))
    }
}

#[cfg(test)]
mod tests;
