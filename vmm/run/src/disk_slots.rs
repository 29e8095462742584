//! `--disk-folder DIR[,slots=N]`: disks of Linux guests that get their images while they run.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use causeway_publisher::control::{DiskRefusal, DiskStanding, Disks};
use causeway_terminal::{Failure, shown_path};
use causeway_vmm::virtio::{DiskImage, DiskSlot};
use parking_lot::Mutex;

use crate::disk::DISKS_MAX;
use crate::image_opener::{Opener, OpenerError, chain};

/// Number of disks, unless `slots=` says otherwise.
const SLOTS: usize = 4;
/// What stands before their number.
const KEY: &[u8] = b",slots=";

/// The value of `--disk-folder`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFolder {
    /// The folder, without links in its path.
    pub path: PathBuf,
    /// The same as the user has written it, absolute.
    pub given: PathBuf,
    /// How many disks each VM has for its images.
    pub slots: usize,
}

impl DiskFolder {
    /// Reads the value of `--disk-folder`. Each VM has `others` more disks.
    ///
    /// # Errors
    /// A usage failure if there is no such folder, or if the number of disks is none.
    pub fn parse(text: &OsStr, others: usize) -> Result<Self, Failure> {
        let bytes = text.as_bytes();
        let at = bytes.windows(KEY.len()).rposition(|window| window == KEY);
        let (path, slots) = match at {
            None => (bytes, Some(SLOTS)),
            Some(at) => (&bytes[..at], number(&bytes[at + KEY.len()..])),
        };
        let most = DISKS_MAX.saturating_sub(others);
        if most == 0 {
            return Err(Failure::usage(format!(
                "--disk-folder has no room: a VM has at most {DISKS_MAX} disks, and --disk and \
                 --rootfs take {others}: give fewer"
            )));
        }
        let Some(slots) = slots.filter(|slots| (1..=most).contains(slots)) else {
            return Err(Failure::usage(format!(
                "invalid value {} for --disk-folder: a VM has at most {DISKS_MAX} disks, of which \
                 --disk and --rootfs take {others}: write DIR,slots=N with N from 1 to {most}",
                text.display()
            )));
        };
        let path = Path::new(OsStr::from_bytes(path));
        let refused = |e: io::Error| Failure::usage_from("--disk-folder", &shown_path(path), e);
        let given = std::path::absolute(path).map_err(refused)?;
        let path = given.canonicalize().map_err(refused)?;
        match path.metadata().map_err(refused)?.is_dir() {
            true => Ok(Self { path, given, slots }),
            false => Err(refused(io::ErrorKind::NotADirectory.into())),
        }
    }

    /// Returns the disks of one VM, without images.
    pub fn disks(&self) -> Arc<[Arc<DiskSlot>]> {
        (0..self.slots).map(|_| Arc::default()).collect()
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The disks of the VMs of a run, for its control socket. It keeps nothing of a VM.
pub struct Slots {
    folder: DiskFolder,
    opener: Mutex<Opener>,
    vms: Vec<SlotsOfVm>,
}

struct SlotsOfVm {
    name: String,
    /// In the order in which its guest finds them.
    slots: Vec<Weak<DiskSlot>>,
    /// Where the next image goes, if that disk is free. Disks are used in turn: a guest that has
    /// not closed a disk whose image was removed might write what it kept of it to the next image.
    next: AtomicUsize,
}

impl SlotsOfVm {
    /// Returns the disks, if the VM still has them.
    fn all(&self) -> Vec<Arc<DiskSlot>> {
        self.slots.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the number of the disk whose turn it is, and the disk.
    fn free(&self) -> Option<(usize, Arc<DiskSlot>)> {
        let next = self.next.load(Ordering::Relaxed);
        let slots = self.all();
        let mut turn = (0..slots.len()).map(|at| (next + at) % slots.len());
        let at = turn.find(|&at| slots[at].image().is_none())?;
        Some((at, Arc::clone(&slots[at])))
    }
}

impl Slots {
    /// Returns the disks `vms`, which get the images of `folder` that `opener` opens.
    pub fn new(
        folder: &DiskFolder,
        opener: Opener,
        vms: impl Iterator<Item = (String, Arc<[Arc<DiskSlot>]>)>,
    ) -> Self {
        let of_vm = |(name, slots): (String, Arc<[Arc<DiskSlot>]>)| SlotsOfVm {
            name,
            slots: slots.iter().map(Arc::downgrade).collect(),
            next: AtomicUsize::new(0),
        };
        Self {
            folder: folder.clone(),
            opener: Mutex::new(opener),
            vms: vms.map(of_vm).collect(),
        }
    }

    /// Returns the disks of a VM.
    fn of(&self, vm: &str) -> Vec<Arc<DiskSlot>> {
        let found = self.vms.iter().find(|of| of.name == vm);
        found.map_or_else(Vec::new, SlotsOfVm::all)
    }

    /// Returns the name of an image in the folder, and its path.
    fn named(&self, image: &Path) -> Result<(PathBuf, PathBuf), DiskRefusal> {
        let name = match image.is_absolute() {
            false => image,
            true => {
                let DiskFolder { path, given, .. } = &self.folder;
                let inside = image
                    .strip_prefix(path)
                    .or_else(|_| image.strip_prefix(given));
                inside.map_err(|_| DiskRefusal::Outside(given.clone()))?
            }
        };
        Ok((name.to_owned(), self.folder.path.join(name)))
    }
}

impl Disks for Slots {
    fn look(&self, vm: &str) -> Vec<DiskStanding> {
        let of = |image: Option<Arc<DiskImage>>| match image {
            None => DiskStanding::default(),
            Some(image) => DiskStanding {
                image: Some(image.path().display().to_string()),
                bytes: image.bytes(),
                read_only: image.is_read_only(),
            },
        };
        self.of(vm).iter().map(|slot| of(slot.image())).collect()
    }

    fn add(&self, vm: &str, image: &Path, read_only: bool) -> Result<(), DiskRefusal> {
        let (name, path) = self.named(image)?;
        let of_vm = self.vms.iter().find(|of| of.name == vm);
        let full = || DiskRefusal::Full(self.folder.slots);
        let (of_vm, (at, free)) = of_vm
            .and_then(|of_vm| Some((of_vm, of_vm.free()?)))
            .ok_or_else(full)?;
        let opened = self.opener.lock().open(&name, &path, read_only);
        let opened = opened.map_err(|e| match e {
            OpenerError::Gone(_) | OpenerError::Silent | OpenerError::NoDescriptor => {
                DiskRefusal::Broken(chain(&e))
            }
            e => DiskRefusal::Image(chain(&e)),
        })?;
        // Only the thread of the control socket changes disks.
        free.insert(opened).map_err(|_| full())?;
        of_vm.next.store(at + 1, Ordering::Relaxed);
        Ok(())
    }

    fn remove(&self, vm: &str, image: &Path) -> Result<(), DiskRefusal> {
        let (_, path) = self.named(image)?;
        let slots = self.of(vm);
        let has = |slot: &&Arc<DiskSlot>| slot.image().is_some_and(|image| image.path() == path);
        match slots.iter().find(has) {
            Some(slot) => {
                slot.remove();
                Ok(())
            }
            None => {
                let images = slots.iter().filter_map(|slot| slot.image());
                let shown = |image: Arc<DiskImage>| image.path().display().to_string();
                Err(DiskRefusal::Absent(images.map(shown).collect()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, others: usize) -> Result<DiskFolder, String> {
        DiskFolder::parse(OsStr::new(text), others).map_err(|failure| {
            let cause = std::error::Error::source(&failure).map(|cause| format!(": {cause}"));
            format!("{failure}{}", cause.unwrap_or_default())
        })
    }

    #[test]
    fn a_folder_has_four_disks_or_as_many_as_are_asked_for() {
        let folder = parse("/tmp", 0).unwrap();
        assert_eq!((folder.path, folder.slots), (PathBuf::from("/tmp"), SLOTS));
        assert_eq!(parse("/tmp,slots=16", 0).unwrap().slots, 16);
        assert_eq!(parse("/tmp,slots=1", 15).unwrap().disks().len(), 1);
    }

    #[test]
    fn disks_get_images_in_turn() {
        let file = std::env::temp_dir().join(format!("causeway-turn-{}", std::process::id()));
        std::fs::write(&file, [0; 512]).unwrap();
        let slots: Vec<Arc<DiskSlot>> = (0..3).map(|_| Arc::default()).collect();
        let of_vm = SlotsOfVm {
            name: "vm0".to_owned(),
            slots: slots.iter().map(Arc::downgrade).collect(),
            next: AtomicUsize::new(2),
        };
        assert_eq!(of_vm.free().unwrap().0, 2);
        let image = DiskImage::open(&file, true).unwrap();
        slots[2].insert(image).unwrap();
        assert_eq!(of_vm.free().unwrap().0, 0);
        for slot in &slots[..2] {
            slot.insert(DiskImage::open(&file, true).unwrap()).unwrap();
        }
        assert!(of_vm.free().is_none());
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_folder_behind_a_link_is_known_by_both_names() {
        let link = std::env::temp_dir().join(format!("causeway-link-{}", std::process::id()));
        std::os::unix::fs::symlink("/usr/share", &link).unwrap();
        let folder = parse(link.to_str().unwrap(), 0).unwrap();
        std::fs::remove_file(&link).unwrap();
        assert_eq!(
            (&folder.path, &folder.given),
            (&PathBuf::from("/usr/share"), &link)
        );
    }

    #[test]
    fn too_many_disks_and_other_files_are_refused_with_the_way_out() {
        for (text, others, parts) in [
            ("/tmp,slots=0", 0, ["/tmp,slots=0", "N from 1 to 16"]),
            ("/tmp,slots=x", 3, ["take 3", "N from 1 to 13"]),
            ("/tmp", 13, ["take 13", "N from 1 to 3"]),
            ("/tmp", 16, ["has no room", "give fewer"]),
            ("/nowhere,slots=2", 0, ["/nowhere", "No such file"]),
            ("/proc/version", 0, ["/proc/version", "not a directory"]),
        ] {
            let message = parse(text, others).unwrap_err();
            for part in parts {
                assert!(message.contains(part), "{text}: {message}");
            }
        }
    }
}
