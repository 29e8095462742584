//! What a guest gets from outside: its root file system, and folders of the host; and as whom its
//! program uses them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A folder of the host that the guest reaches by virtio-fs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Name by which the guest's kernel finds it: 1 to [`Self::TAG_BYTES_MAX`] letters, digits,
    /// `.`, `_` or `-`, the first one not a dot.
    pub tag: String,
    /// Whether the guest can only read.
    pub read_only: bool,
}

/// Where a root file system is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// On a block device of the guest.
    Device(PathBuf, Layer),
    /// In a folder of the host.
    Share(Share, Layer),
}

/// Where what the guest writes to its root goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Into the root itself.
    None,
    /// Into the guest's memory, over the root, which stays as it is.
    Memory,
}

const READ_ONLY: &str = ",ro";
const IN_MEMORY: &str = "memory:";
const ON_SHARE: &str = "share:";

impl Share {
    /// Longest tag in bytes (Virtual I/O Device Version 1.2, 5.11.4).
    pub const TAG_BYTES_MAX: usize = 36;

    /// Returns the share with this tag.
    #[must_use]
    pub fn new(tag: &str, read_only: bool) -> Self {
        Self {
            tag: tag.to_owned(),
            read_only,
        }
    }

    /// Returns whether a share can have this tag.
    #[must_use]
    pub fn is_tag(tag: &str) -> bool {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        (1..=Self::TAG_BYTES_MAX).contains(&tag.len())
            && !tag.starts_with('.')
            && tag.bytes().all(known)
    }

    pub(crate) fn render(&self) -> OsString {
        let suffix = if self.read_only { READ_ONLY } else { "" };
        format!("{}{suffix}", self.tag).into()
    }

    pub(crate) fn parse(text: &OsStr) -> Option<Self> {
        let text = text.to_str()?;
        let tag = text.strip_suffix(READ_ONLY);
        let share = Self::new(tag.unwrap_or(text), tag.is_some());
        Self::is_tag(&share.tag).then_some(share)
    }
}

impl Root {
    /// Returns where what the guest writes goes.
    #[must_use]
    pub fn layer(&self) -> Layer {
        match self {
            Self::Device(_, layer) | Self::Share(_, layer) => *layer,
        }
    }

    pub(crate) fn render(&self) -> OsString {
        let mut text = OsString::new();
        if self.layer() == Layer::Memory {
            text.push(IN_MEMORY);
        }
        match self {
            Self::Device(device, _) => text.push(device),
            Self::Share(share, _) => {
                text.push(ON_SHARE);
                text.push(share.render());
            }
        }
        text
    }

    pub(crate) fn parse(text: &OsStr) -> Option<Self> {
        let bytes = text.as_bytes();
        let (layer, bytes) = match bytes.strip_prefix(IN_MEMORY.as_bytes()) {
            Some(rest) => (Layer::Memory, rest),
            None => (Layer::None, bytes),
        };
        match bytes.strip_prefix(ON_SHARE.as_bytes()) {
            Some(share) => Some(Self::Share(Share::parse(OsStr::from_bytes(share))?, layer)),
            None => {
                let device = Path::new(OsStr::from_bytes(bytes));
                device
                    .is_absolute()
                    .then(|| Self::Device(device.to_owned(), layer))
            }
        }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device, _) => write!(f, "{}", device.display()),
            Self::Share(share, _) => write!(f, "the share {}", share.tag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_come_back_as_they_were() {
        let share = Share::new("a.b_c-1", true);
        for layer in [Layer::None, Layer::Memory] {
            for root in [
                Root::Device("/dev/vda1".into(), layer),
                Root::Share(share.clone(), layer),
            ] {
                assert_eq!(Root::parse(&root.render()), Some(root));
            }
        }
        assert_eq!(Share::parse(&share.render()), Some(share));
    }

    #[test]
    fn tags_are_names_of_folders() {
        let longest = "x".repeat(Share::TAG_BYTES_MAX);
        for good in ["data", "a.b", "-", &longest] {
            assert!(Share::is_tag(good), "{good}");
        }
        let longer = "x".repeat(Share::TAG_BYTES_MAX + 1);
        for bad in ["", ".", "..", ".a", "a/b", "a b", "a,ro", "ä", &longer] {
            assert!(!Share::is_tag(bad), "{bad}");
        }
        for bad in [
            "",
            "vda",
            "share:",
            "share:a/b",
            "memory:",
            "memory:share:..",
        ] {
            assert_eq!(Root::parse(OsStr::new(bad)), None, "{bad}");
        }
    }
}
