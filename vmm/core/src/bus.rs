//! Buses: which device a port or an MMIO access goes to, and what an access that goes nowhere
//! reads.
//!
//! Lock order: a bus looks its device up under its own lock and has let go of it before the device
//! is called. So a device may take any lock of its own, and may insert, move or remove ranges of
//! any bus, during an access. A device must not hold a lock of its own that its `read` or `write`
//! takes while it calls into a bus's *access* functions.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use parking_lot::RwLock;
mod stray;

pub use stray::{StrayCounters, StrayCounts};

/// An address on some bus.
pub trait Address: Copy + Send + Sync + 'static {
    /// One past the highest address there is, or the highest of a bus that has all 64 bits.
    const LIMIT: u64;
    /// Returns the plain number.
    fn number(self) -> u64;
}

/// An I/O port.
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

/// Why an access did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No device has this address.
    Unclaimed,
    /// The access begins in one range and ends outside it.
    CrossesEdge,
    /// The device has no register there.
    NoRegister,
    /// The register cannot be accessed with this width.
    BadSize,
    /// The register cannot be accessed at this alignment.
    Misaligned,
    /// The register cannot be stored to.
    ReadOnly,
    /// Nothing is placed at this address of the aperture.
    Hole,
    /// The placement at this address of the aperture may not be written.
    WriteForbidden,
    /// Nothing listens to this doorbell.
    UnboundDoorbell,
    /// The host's device, or its kernel, did not carry it out.
    Device,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unclaimed => "no device has this address",
            Self::CrossesEdge => "the access ends outside the device",
            Self::NoRegister => "the device has no register there",
            Self::BadSize => "the register cannot be accessed in this width",
            Self::Misaligned => "the register cannot be accessed at this alignment",
            Self::ReadOnly => "the register is read-only",
            Self::Hole => "nothing is mapped there",
            Self::WriteForbidden => "the mapping there is read-only",
            Self::UnboundDoorbell => "no command buffer listens to this doorbell",
            Self::Device => "the host's device does not carry it out",
        })
    }
}

/// What a store asks of the virtual CPU that made it, or of its VM. The exit handler passes it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the virtual CPU runs on.
    #[default]
    None,
    /// The virtual CPU stops for good.
    Park,
    /// The VM ends with this code: zero is pass, anything else is fail.
    End(u32),
    /// The guest turns its machine off, or resets it.
    Power(PowerEvent),
}

/// What a guest does to the power of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerEvent {
    /// It turns its machine off.
    Off,
    /// It resets its machine.
    Reset,
}

/// A device's response to an access: which of its registers was meant, and whether it took the
/// access.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Short name for counters.
    pub register: &'static str,
    /// Whether the device took the access.
    pub result: Result<(), Refusal>,
    /// What the access asks of the virtual CPU or its VM.
    pub effect: Effect,
}

impl Response {
    /// Returns the response to an access that was carried out.
    pub const fn ok(register: &'static str) -> Self {
        Self {
            register,
            result: Ok(()),
            effect: Effect::None,
        }
    }

    /// Adds what the access asks of the virtual CPU or its VM.
    pub const fn with(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// Returns the response to an access that did nothing.
    pub const fn refused(refusal: Refusal) -> Self {
        Self {
            register: STRAY,
            result: Err(refusal),
            effect: Effect::None,
        }
    }
}

/// Register name under which refused accesses are counted.
pub const STRAY: &str = "stray";

/// A device on a bus. Accesses come from several vCPU threads at once.
pub trait BusDevice: Send + Sync {
    /// Short name for counters.
    fn name(&self) -> &'static str;

    /// Loads from `offset`, counted from the start of the device's range. `into` is zeroed; its
    /// length is the access width.
    fn read(&self, offset: u64, into: &mut [u8]) -> Response;

    /// Stores at `offset`, counted from the start of the device's range.
    fn write(&self, offset: u64, from: &[u8]) -> Response;
}

/// The device and register of an access, for the exit counters.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Name of the device, or "unclaimed".
    pub device: &'static str,
    /// Name of the register, or [`STRAY`].
    pub register: &'static str,
    /// Why it did nothing, if so. The data of a refused load is all-ones.
    pub result: Result<(), Refusal>,
    /// What the access asks of the virtual CPU or its VM.
    pub effect: Effect,
}

/// Why a range cannot be claimed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// Empty, or past the end of the address space.
    #[error("bus range {base:#x}+{bytes:#x} is empty or ends beyond the address space")]
    Invalid {
        /// First address.
        base: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Something is there.
    #[error("bus range {base:#x}+{bytes:#x} for {device} overlaps that of {other}")]
    Overlap {
        /// First address.
        base: u64,
        /// Bytes.
        bytes: u64,
        /// The device that claims the range.
        device: &'static str,
        /// The device that has it already.
        other: &'static str,
    },
    /// No range begins there.
    #[error("no bus range begins at {base:#x}")]
    Absent {
        /// First address.
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

struct Entry {
    bytes: u64,
    claim: Claim,
}

/// Devices by address. Ranges do not overlap.
pub struct Bus<A> {
    ranges: RwLock<BTreeMap<u64, Entry>>,
    strays: Arc<StrayCounters>,
    address: PhantomData<fn(A)>,
}

/// The I/O ports.
pub type PortBus = Bus<Port>;
/// The guest-physical addresses that are not RAM.
pub type MmioBus = Bus<GuestAddress>;

impl<A> fmt::Debug for Bus<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").finish_non_exhaustive()
    }
}

impl<A: Address> Bus<A> {
    /// Returns an empty bus, which counts refused accesses in `strays`.
    pub fn new(strays: Arc<StrayCounters>) -> Self {
        Self {
            ranges: RwLock::default(),
            strays,
            address: PhantomData,
        }
    }

    /// Gives `[base, base + bytes)` to a device.
    ///
    /// # Errors
    /// [`BusError::Invalid`] and [`BusError::Overlap`]; then nothing changed.
    pub fn insert(&self, base: A, bytes: u64, device: Arc<dyn BusDevice>) -> Result<(), BusError> {
        self.claim(base, bytes, Claim::Device(device))
    }

    /// Keeps devices away from `[base, base + bytes)`, which is guest RAM and never reaches the
    /// bus.
    ///
    /// # Errors
    /// [`BusError::Invalid`] and [`BusError::Overlap`]; then nothing changed.
    pub fn reserve(&self, base: A, bytes: u64, name: &'static str) -> Result<(), BusError> {
        self.claim(base, bytes, Claim::Reserved(name))
    }

    /// Removes the range that begins at `base`. An access that has found the device already may
    /// still be running when this returns.
    ///
    /// # Errors
    /// [`BusError::Absent`] if no range begins at `base`.
    pub fn remove(&self, base: A) -> Result<(), BusError> {
        let base = base.number();
        let mut ranges = self.ranges.write();
        let removed = ranges.remove(&base);
        removed.map(drop).ok_or(BusError::Absent { base })
    }

    /// Loads from `address`. `into` gets the device's data, or all-ones if no device answers.
    pub fn read(&self, address: A, into: &mut [u8]) -> Hit {
        into.fill(0);
        let hit = match self.find(address.number(), into.len()) {
            Ok((device, offset)) => Self::hit(&*device, device.read(offset, into)),
            Err(hit) => hit,
        };
        if let Err(refusal) = hit.result {
            into.fill(0xff);
            self.strays
                .read(address.number(), into.len(), hit.device, refusal);
        }
        hit
    }

    /// Stores `from` at `address`. If no device takes it, nothing happens.
    pub fn write(&self, address: A, from: &[u8]) -> Hit {
        let hit = match self.find(address.number(), from.len()) {
            Ok((device, offset)) => Self::hit(&*device, device.write(offset, from)),
            Err(hit) => hit,
        };
        if let Err(refusal) = hit.result {
            self.strays
                .write(address.number(), from.len(), hit.device, refusal);
        }
        hit
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

    /// Returns the device that has all of an access, and the offset in its range.
    fn find(&self, address: u64, bytes: usize) -> Result<(Arc<dyn BusDevice>, u64), Hit> {
        let ranges = self.ranges.read();
        let refused = |device, refusal| Hit {
            device,
            register: STRAY,
            result: Err(refusal),
            effect: Effect::None,
        };
        let unclaimed = refused("unclaimed", Refusal::Unclaimed);
        let (start, entry) = ranges.range(..=address).next_back().ok_or(unclaimed)?;
        let offset = address - start;
        if offset >= entry.bytes {
            return Err(unclaimed);
        }
        let Claim::Device(device) = &entry.claim else {
            return Err(unclaimed);
        };
        if bytes as u64 > entry.bytes - offset {
            return Err(refused(device.name(), Refusal::CrossesEdge));
        }
        Ok((Arc::clone(device), offset))
    }

    fn hit(device: &dyn BusDevice, response: Response) -> Hit {
        Hit {
            device: device.name(),
            register: response.register,
            result: response.result,
            effect: response.effect,
        }
    }
}

#[cfg(test)]
mod tests;
