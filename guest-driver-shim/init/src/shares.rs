//! Folders of the host in the guest's file system, by virtio-fs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use crate::sources::Share;

/// File system of shares.
const KIND: &str = "virtiofs";

/// Why a share is not mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShareError {
    /// Its folder in the guest does not exist and cannot be made.
    #[error("cannot make the folder {place} for the share {tag}: {source}")]
    Folder {
        tag: String,
        place: String,
        source: io::Error,
    },
    /// The guest's kernel cannot mount shares.
    #[error(
        "the share {0} needs virtio-fs in the guest's kernel: CONFIG_VIRTIO_FS, or its module \
         virtiofs (--module adds it)"
    )]
    Kernel(String),
    /// The kernel does not mount the share.
    #[error("cannot mount the share {tag} on {place}: {source}")]
    Mount {
        tag: String,
        place: String,
        source: io::Error,
    },
}

/// Mounts each share on a folder of the root that has its tag as its name.
pub(crate) fn mount_all(shares: &[Share]) -> Result<(), ShareError> {
    let mut shares = shares.iter();
    shares.try_for_each(|share| mount_at(share, &place(share), share.read_only))
}

fn place(share: &Share) -> PathBuf {
    Path::new("/").join(&share.tag)
}

/// Mounts a share on `place`, only for reading if `read_only` is set.
pub(crate) fn mount_at(share: &Share, place: &Path, read_only: bool) -> Result<(), ShareError> {
    let (tag, shown) = (|| share.tag.clone(), || place.display().to_string());
    fs::create_dir_all(place).map_err(|source| ShareError::Folder {
        tag: tag(),
        place: shown(),
        source,
    })?;
    let flags = match read_only {
        true => MountFlags::RDONLY,
        false => MountFlags::empty(),
    };
    mount(share.tag.as_str(), place, KIND, flags, c"").map_err(|error| match error {
        Errno::NODEV => ShareError::Kernel(tag()),
        error => ShareError::Mount {
            tag: tag(),
            place: shown(),
            source: error.into(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_mounted_on_the_folder_of_its_name() {
        assert_eq!(place(&Share::new("data", true)), Path::new("/data"));
    }
}
