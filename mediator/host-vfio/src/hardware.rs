//! The seam below [`crate::Device`]: what the kernel's VFIO device does, or a fake in its place.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use crate::interrupts::{Action, InterruptInfo, InterruptKind};
use crate::region::Region;
use crate::reset::{ResetError, ResetMethod, ResetReach};

/// What the kernel says about a device when it is opened: its regions and interrupts.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// All regions of the device that are not empty.
    pub regions: Vec<Region>,
    /// The device's interrupts, one entry for each kind. The device has no interrupts of a kind
    /// without an entry.
    pub interrupts: Vec<InterruptInfo>,
    /// Path of the file `reset` of the device in sysfs; `None` if the device has no such file. A
    /// process that writes to the file resets the device, even while the device is open here.
    pub reset_attribute: Option<PathBuf>,
}

/// An open PCI device, provided by the kernel's VFIO or by a fake for tests. Dropping it closes the
/// device.
///
/// Regions are read, written and mapped through [`Self::file`]. Each region begins at its
/// [`Region::file_offset`] in that file.
pub trait Hardware: Send + Sync + Debug {
    /// Returns the device's VFIO file.
    fn file(&self) -> BorrowedFd<'_>;

    /// Returns the device's regions and interrupts.
    ///
    /// # Errors
    /// The kernel's error.
    fn describe(&self) -> io::Result<Description>;

    /// Carries out `action` for the interrupts of kind `kind`.
    ///
    /// # Errors
    /// The kernel's error.
    fn set_interrupts(&self, kind: InterruptKind, action: Action<'_>) -> io::Result<()>;

    /// Resets the device into the state that it has after power-up. The reset may affect other
    /// devices as far as `reach` allows.
    ///
    /// # Errors
    /// [`ResetError`]: the device has no reset within `reach`, or the reset failed.
    fn reset(&self, reach: ResetReach) -> Result<ResetMethod, ResetError>;
}
