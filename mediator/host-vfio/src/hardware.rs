//! The seam below [`crate::Device`]: what the kernel's VFIO device does, or a fake in its place.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use crate::interrupts::{Action, InterruptInfo, InterruptKind};
use crate::region::Region;
use crate::reset::{ResetError, ResetMethod, ResetReach};

/// Regions and interrupts of a device.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// Regions that are not empty.
    pub regions: Vec<Region>,
    /// Interrupts by kind.
    pub interrupts: Vec<InterruptInfo>,
    /// The file by which others can reset the device under its user: sysfs' `reset`.
    pub reset_attribute: Option<PathBuf>,
}

/// A device that is open. Dropping it gives the device back.
///
/// Regions are read, written and mapped through [`Self::file`], at their [`Region::file_offset`].
pub trait Hardware: Send + Sync + Debug {
    /// Returns the device's file.
    fn file(&self) -> BorrowedFd<'_>;

    /// Returns its regions and interrupts.
    ///
    /// # Errors
    /// The kernel's error.
    fn describe(&self) -> io::Result<Description>;

    /// Sets up, masks, unmasks or disables interrupts.
    ///
    /// # Errors
    /// The kernel's error.
    fn set_interrupts(&self, kind: InterruptKind, action: Action<'_>) -> io::Result<()>;

    /// Brings the device into the state that it has after power-up.
    ///
    /// # Errors
    /// [`ResetError`].
    fn reset(&self, reach: ResetReach) -> Result<ResetMethod, ResetError>;
}
