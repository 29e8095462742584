//! What the control socket needs of disks whose images come and go; tests put others in its place.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A disk of a VM that gets its image while the VM runs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskStanding {
    /// Path of the image; null if the disk has none.
    pub image: Option<String>,
    /// Size of the image in bytes; 0 without an image.
    pub bytes: u64,
    /// Whether the image is open for reading only.
    pub read_only: bool,
}

/// Why a disk has not got an image, or not lost it.
#[derive(Debug, thiserror::Error)]
pub enum DiskRefusal {
    /// Each disk has an image.
    #[error(
        "all {0} disks of --disk-folder have images: remove one, or start the run with more \
         (--disk-folder DIR,slots=N)"
    )]
    Full(usize),
    /// No disk has this image. These are the ones that disks have.
    #[error("no disk of this VM has this image: {}", present(.0))]
    Absent(Vec<String>),
    /// The image is not in the folder of the run.
    #[error(
        "the image is not in {}, the folder of --disk-folder: name one in the folder or below",
        .0.display()
    )]
    Outside(PathBuf),
    /// It cannot be opened, for this reason.
    #[error("{0}")]
    Image(String),
    /// What opens images does not answer, for this reason.
    #[error("{0}")]
    Broken(String),
}

fn present(images: &[String]) -> String {
    match images {
        [] => String::from("none has any"),
        images => format!("choose one of {}", images.join(", ")),
    }
}

impl DiskRefusal {
    /// Returns the HTTP status of the answer.
    pub(crate) const fn status(&self) -> &'static str {
        match self {
            Self::Full(_) => "409 Conflict",
            Self::Absent(_) => "404 Not Found",
            Self::Outside(_) | Self::Image(_) => "422 Unprocessable Content",
            Self::Broken(_) => "503 Service Unavailable",
        }
    }
}

/// The disks of the VMs of a run.
pub trait Disks: Send {
    /// Returns the disks of a VM, in the order in which its guest finds them.
    fn look(&self, vm: &str) -> Vec<DiskStanding>;

    /// Gives a disk of a VM an image of the folder: `image` is its name there, or its path. Waits
    /// two seconds at most for it to be opened.
    ///
    /// # Errors
    /// [`DiskRefusal`].
    fn add(&self, vm: &str, image: &Path, read_only: bool) -> Result<(), DiskRefusal>;

    /// Takes an image from the disk of a VM that has it.
    ///
    /// # Errors
    /// [`DiskRefusal`].
    fn remove(&self, vm: &str, image: &Path) -> Result<(), DiskRefusal>;
}
