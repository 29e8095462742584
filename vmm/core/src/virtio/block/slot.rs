//! Disks whose image comes and goes while the guest runs.

use std::sync::Arc;

use parking_lot::Mutex;

use super::image::DiskImage;
use crate::virtio::configuration::Notice;

/// A disk of a guest that has an image only while the operator gives it one. Without one it has no
/// sectors, and each request fails.
///
/// The guest's driver is told of each change by an interrupt (Virtual I/O Device Version 1.2, 2.3
/// and 5.2.4).
#[derive(Default)]
pub struct DiskSlot {
    /// Locked while a change is told, so that changes are told in their order.
    image: Mutex<Option<Arc<DiskImage>>>,
    notice: Notice,
}

debug_by_name!(DiskSlot);

impl DiskSlot {
    /// Returns a disk that always has this image.
    pub(super) fn holding(image: Arc<DiskImage>) -> Self {
        Self {
            image: Mutex::new(Some(image)),
            notice: Notice::default(),
        }
    }

    /// Returns the image that the disk has.
    pub fn image(&self) -> Option<Arc<DiskImage>> {
        self.image.lock().clone()
    }

    /// Gives the disk an image, and tells the guest. If it has one, that stays, and `image` is
    /// returned.
    ///
    /// # Errors
    /// `image`.
    pub fn insert(&self, image: DiskImage) -> Result<(), DiskImage> {
        let mut place = self.image.lock();
        if place.is_some() {
            return Err(image);
        }
        let sectors = image.sectors();
        *place = Some(Arc::new(image));
        self.say(sectors);
        Ok(())
    }

    /// Takes the image from the disk, and tells the guest. The device may still execute one request
    /// on the image. The image is closed when that request has ended and the caller drops it.
    pub fn remove(&self) -> Option<Arc<DiskImage>> {
        let mut place = self.image.lock();
        let image = place.take()?;
        self.say(0);
        Some(image)
    }

    /// Returns what tells the guest.
    pub(super) fn notice(&self) -> &Notice {
        &self.notice
    }

    /// `capacity` is the first field of the configuration structure (5.2.4).
    fn say(&self, sectors: u64) {
        self.notice.say(&sectors.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
