//! A device without a device: regions are memory of the host, interrupts are what was asked for.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use causeway_protocol::Access;
use parking_lot::Mutex;
use rustix::fs::MemfdFlags;

use crate::Address;
use crate::container::{Container, Kind};
use crate::device::{Device, OpenError};
use crate::dma::Translation;
use crate::hardware::{Description, Hardware};
use crate::host::Host;
use crate::interrupts::{Action, InterruptInfo, InterruptKind};
use crate::region::{Area, Region, RegionIndex};
use crate::reset::{ResetError, ResetMethod, ResetReach};

/// Regions begin at multiples of this power of two (1 TiB) in the file.
const REGION_SHIFT: u32 = 40;

/// A fake PCI function for tests. A test can see what [`Device`] does to it, and can act as the
/// device: change registers and raise interrupts.
#[derive(Debug)]
pub struct FakeHardware {
    file: OwnedFd,
    description: Description,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Events by kind and vector.
    events: BTreeMap<(InterruptKind, u32), OwnedFd>,
    unmask: Option<OwnedFd>,
    masked: bool,
    resets: u32,
    refuse: bool,
}

impl FakeHardware {
    /// Returns a fake PCI function. It has 4 KiB of configuration space and the notification
    /// [`InterruptKind::Request`], but no other regions or interrupts.
    ///
    /// # Errors
    /// The kernel's error, if it cannot create the file that stands for the device.
    pub fn new() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("fake device", MemfdFlags::CLOEXEC)?;
        let fake = Self {
            file,
            description: Description::default(),
            state: Mutex::default(),
        };
        let config = fake.with_region(RegionIndex::Config, 4096)?;
        Ok(config.with_interrupts(InterruptKind::Request, 1))
    }

    /// Adds the region `index` with `bytes` bytes, all zero. If it is a BAR, it can be mapped.
    ///
    /// # Errors
    /// The kernel's error, if it cannot enlarge the file that stands for the device.
    pub fn with_region(mut self, index: RegionIndex, bytes: u64) -> io::Result<Self> {
        let file_offset = u64::from(index.number()) << REGION_SHIFT;
        let mappable = matches!(index, RegionIndex::Bar(_)).then_some(Area { offset: 0, bytes });
        let end = rustix::fs::fstat(&self.file)?.st_size.cast_unsigned();
        rustix::fs::ftruncate(&self.file, end.max(file_offset + bytes))?;
        self.description.regions.push(Region {
            index,
            bytes,
            readable: true,
            writable: index != RegionIndex::Rom,
            mappable: mappable.into_iter().collect(),
            msix_mappable: false,
            file_offset,
        });
        Ok(self)
    }

    /// Calls `change` with the description of the region `index`, so that a test can modify it, for
    /// example make the region read-only. Does nothing if the fake has no such region.
    #[must_use]
    pub fn with_change(mut self, index: RegionIndex, change: impl FnOnce(&mut Region)) -> Self {
        let mut regions = self.description.regions.iter_mut();
        if let Some(region) = regions.find(|region| region.index == index) {
            change(region);
        }
        self
    }

    /// Adds `count` interrupts of kind `kind`, with the properties that VFIO reports for that kind.
    #[must_use]
    pub fn with_interrupts(mut self, kind: InterruptKind, count: u32) -> Self {
        self.description.interrupts.push(InterruptInfo {
            kind,
            count,
            eventfd: true,
        });
        self
    }

    /// Makes the file `path` stand for the file `reset` of the device in sysfs: a
    /// [`Watch`](crate::Watch) reports each write to it as a reset of the device.
    #[must_use]
    pub fn with_reset_attribute(mut self, path: impl Into<PathBuf>) -> Self {
        self.description.reset_attribute = Some(path.into());
        self
    }

    /// Opens this fake as a device with address `address`.
    ///
    /// # Errors
    /// Never fails, because the description of a fake can always be read.
    pub fn device(self: &Arc<Self>, address: Address) -> Result<Device, OpenError> {
        Device::over(address, Vec::new(), Arc::clone(self) as Arc<dyn Hardware>)
    }

    /// Stores `bytes` at `offset` of the region `index`, as the device itself would do. Read-only
    /// regions can be written too.
    ///
    /// # Errors
    /// The kernel's error, if it cannot write to the file that stands for the device.
    pub fn poke(&self, index: RegionIndex, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = (u64::from(index.number()) << REGION_SHIFT) + offset;
        rustix::io::pwrite(&self.file, bytes, at)?;
        Ok(())
    }

    /// Reads `bytes.len()` bytes at `offset` of the region `index` into `bytes`, as the device
    /// itself would.
    ///
    /// # Errors
    /// The kernel's error, if it cannot read the file that stands for the device.
    pub fn peek(&self, index: RegionIndex, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let at = (u64::from(index.number()) << REGION_SHIFT) + offset;
        rustix::io::pread(&self.file, bytes, at)?;
        Ok(())
    }

    /// Raises the interrupt `vector` of kind `kind`, as the device would do. Returns true if an
    /// event was signalled, false if the vector is not connected to an event or is masked. Only the
    /// interrupt pin (INTx) can be masked: each of its interrupts masks it.
    pub fn fire(&self, kind: InterruptKind, vector: u32) -> bool {
        let mut state = self.state.lock();
        if kind == InterruptKind::Intx && std::mem::replace(&mut state.masked, true) {
            return false;
        }
        let event = state.events.get(&(kind, vector));
        event.is_some_and(|event| rustix::io::write(event, &1_u64.to_ne_bytes()).is_ok())
    }

    /// Returns the vectors of kind `kind` that are connected to an event.
    pub fn vectors(&self, kind: InterruptKind) -> Vec<u32> {
        let state = self.state.lock();
        let keys = state.events.keys();
        let of_kind = keys.filter(|(own, _)| *own == kind);
        of_kind.map(|(_, vector)| *vector).collect()
    }

    /// Returns whether [`Device::set_intx`] was given the event `unmask`, which unmasks the
    /// interrupt pin.
    pub fn is_resampled(&self) -> bool {
        self.state.lock().unmask.is_some()
    }

    /// Returns whether the interrupt pin (INTx) is masked, as it is from the first [`Self::fire`]
    /// of the pin until interrupts are disabled.
    pub fn is_masked(&self) -> bool {
        self.state.lock().masked
    }

    /// Returns how often the device was reset.
    pub fn resets(&self) -> u32 {
        self.state.lock().resets
    }

    /// Makes every later request to set up interrupts fail (`true`) or succeed again (`false`).
    /// Requests to disable interrupts always succeed.
    pub fn refuse_interrupts(&self, refuse: bool) {
        self.state.lock().refuse = refuse;
    }
}

impl Hardware for FakeHardware {
    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn describe(&self) -> io::Result<Description> {
        Ok(self.description.clone())
    }

    fn set_interrupts(&self, kind: InterruptKind, action: Action<'_>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.refuse && !matches!(action, Action::Disable) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match action {
            Action::Signal(events) => {
                for (vector, event) in (0..).zip(events) {
                    state.events.remove(&(kind, vector));
                    if let Some(event) = event {
                        let own = event.try_clone_to_owned()?;
                        state.events.insert((kind, vector), own);
                    }
                }
            }
            Action::UnmaskOn(event) => state.unmask = Some(event.try_clone_to_owned()?),
            Action::Disable => {
                state.events.retain(|(own, _), _| *own != kind);
                state.unmask = None;
                state.masked = false;
            }
        }
        Ok(())
    }

    fn reset(&self, _reach: ResetReach) -> Result<ResetMethod, ResetError> {
        self.state.lock().resets += 1;
        Ok(ResetMethod::Function)
    }
}

/// A range that is mapped for DMA: device address, host address, length in bytes, access rights.
pub type FakeRange = (u64, u64, u64, Access);

/// A fake IOMMU for tests, which records what is mapped for DMA.
#[derive(Debug, Default)]
pub struct FakeTranslation {
    mapped: Mutex<Vec<FakeRange>>,
    unmapped: Mutex<Vec<u64>>,
    refuse: Mutex<Option<i32>>,
}

impl FakeTranslation {
    /// Returns a container that maps memory for DMA in this fake.
    pub fn container(self: &Arc<Self>) -> Arc<Container> {
        let translation = Arc::clone(self) as Arc<dyn Translation>;
        Container::over(Kind::Type1, Host::default(), None, translation)
    }

    /// Returns the ranges that are mapped now, in the order in which they were mapped.
    pub fn mapped(&self) -> Vec<FakeRange> {
        self.mapped.lock().clone()
    }

    /// Returns the device addresses of all ranges that were unmapped so far, in that order.
    pub fn unmapped(&self) -> Vec<u64> {
        self.unmapped.lock().clone()
    }

    /// Makes every later request to map or unmap memory fail with the error number (errno)
    /// `number`, or succeed again if `number` is `None`.
    pub fn refuse(&self, number: Option<i32>) {
        *self.refuse.lock() = number;
    }

    fn check(&self) -> io::Result<()> {
        let number = *self.refuse.lock();
        number.map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
    }
}

impl Translation for FakeTranslation {
    #[allow(unsafe_code)] // By the trait.
    unsafe fn map(&self, iova: u64, host: *mut u8, bytes: u64, access: Access) -> io::Result<()> {
        self.check()?;
        self.mapped.lock().push((iova, host as u64, bytes, access));
        Ok(())
    }

    fn unmap(&self, iova: u64, bytes: u64) -> io::Result<()> {
        self.check()?;
        let mut ranges = self.mapped.lock();
        let found = ranges
            .iter()
            .position(|(at, _, size, _)| (*at, *size) == (iova, bytes));
        let found = found.ok_or(io::ErrorKind::NotFound)?;
        ranges.remove(found);
        self.unmapped.lock().push(iova);
        Ok(())
    }
}
