//! Folders of the host in Linux guests: `--share DIR[:TAG][,ro]`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use causeway_init::Share;
use causeway_terminal::{Failure, shown_path};

/// Behind the name of a folder in which the guest can only read.
const READ_ONLY: &[u8] = b",ro";
/// Maximum number of shares of a VM: each has a process.
const SHARES_MAX: usize = 16;
/// Folders of a guest's root that a share would hide: what init mounts, and where programs and
/// their libraries lie.
const TAKEN: [&str; 11] = [
    "bin", "dev", "etc", "init", "lib", "lib64", "proc", "run", "sbin", "sys", "usr",
];
/// How the names of folders and shares of this command itself begin.
const OWN: &str = "causeway";

/// A folder of the host that guests share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFolder {
    /// The folder, without symbolic links.
    pub folder: PathBuf,
    /// How the guest finds it.
    pub share: Share,
}

impl SharedFolder {
    /// Returns the folder with its real path.
    ///
    /// # Errors
    /// What is wrong with it, for a message that names it.
    pub fn new(folder: &Path, share: Share) -> Result<Self, std::io::Error> {
        let folder = folder.canonicalize()?;
        match folder.is_dir() {
            true => Ok(Self { folder, share }),
            false => Err(std::io::Error::other("it is not a folder")),
        }
    }
}

/// Reads the values of `--share`.
///
/// # Errors
/// A usage failure if there are too many, if one is no folder or has no valid tag, or if two have
/// the same tag.
pub fn parse_all(given: &[OsString]) -> Result<Vec<SharedFolder>, Failure> {
    if given.len() > SHARES_MAX {
        return Err(Failure::usage(format!(
            "{} folders are too many for a VM: give --share at most {SHARES_MAX} times",
            given.len()
        )));
    }
    let mut shares: Vec<SharedFolder> = Vec::with_capacity(given.len());
    for text in given {
        let new = parse(text)?;
        if let Some(other) = shares.iter().find(|old| old.share.tag == new.share.tag) {
            return Err(Failure::usage(format!(
                "invalid value {} for --share: {} has the tag {}, too; write DIR:TAG with another \
                 tag",
                text.display(),
                shown_path(&other.folder),
                new.share.tag
            )));
        }
        shares.push(new);
    }
    Ok(shares)
}

fn parse(text: &OsStr) -> Result<SharedFolder, Failure> {
    let bytes = text.as_bytes();
    let (bytes, read_only) = match bytes.strip_suffix(READ_ONLY) {
        Some(bytes) => (bytes, true),
        None => (bytes, false),
    };
    let (folder, tag) = divide(bytes);
    let refuse = |error| Failure::usage_from("--share", &text.to_string_lossy(), error);
    let share = |tag: &str| SharedFolder::new(folder, Share::new(tag, read_only)).map_err(refuse);
    if let Some(tag) = tag {
        return check_tag(text, tag).and_then(|()| share(tag));
    }
    // By its own name, which may be behind a link or `..`.
    let real = folder.canonicalize().map_err(refuse)?;
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    check_tag(text, &name)?;
    share(&name)
}

/// Divides `DIR:TAG`. What stands behind the last colon is only a tag if it has no slash.
fn divide(bytes: &[u8]) -> (&Path, Option<&str>) {
    let path = |bytes| Path::new(OsStr::from_bytes(bytes));
    let colon = bytes.iter().rposition(|byte| *byte == b':');
    let divided = colon.and_then(|at| {
        let tag = std::str::from_utf8(&bytes[at + 1..]).ok()?;
        (!tag.contains('/')).then_some((path(&bytes[..at]), tag))
    });
    match divided {
        Some((folder, tag)) => (folder, Some(tag)),
        None => (path(bytes), None),
    }
}

fn check_tag(text: &OsStr, tag: &str) -> Result<(), Failure> {
    let wrong = match tag {
        tag if tag.starts_with(OWN) => "is for what this command itself puts into guests",
        tag if TAKEN.contains(&tag) => "would hide a folder that every guest needs",
        tag if Share::is_tag(tag) => return Ok(()),
        _ => "must have 1 to 36 letters, digits, `.`, `_` or `-`, and no `.` at its beginning",
    };
    Err(Failure::usage(format!(
        "invalid value {} for --share: the tag `{tag}`, by which the guest mounts the folder on \
         /{tag}, {wrong}; write DIR:TAG",
        text.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folders that go with their test.
    struct Folders(PathBuf);

    impl Folders {
        fn new(test: &str) -> Self {
            let name = format!("causeway-share-{test}-{}", std::process::id());
            let all = std::env::temp_dir().join(name);
            for folder in ["data", "my data", "a:b", "proc"] {
                std::fs::create_dir_all(all.join(folder)).unwrap();
            }
            std::fs::write(all.join("file"), "").unwrap();
            std::os::unix::fs::symlink("data", all.join("link")).unwrap();
            Self(all.canonicalize().unwrap())
        }

        fn parse(&self, texts: &[&str]) -> Result<Vec<SharedFolder>, String> {
            let texts: Vec<_> = texts
                .iter()
                .map(|text| self.0.join(text).into_os_string())
                .collect();
            parse_all(&texts).map_err(|failure| failure.text())
        }

        fn expect(&self, text: &str, folder: &str, tag: &str, read_only: bool) {
            let shared = SharedFolder {
                folder: self.0.join(folder),
                share: Share::new(tag, read_only),
            };
            assert_eq!(self.parse(&[text]), Ok(vec![shared]), "{text}");
        }
    }

    impl Drop for Folders {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_has_its_name_or_the_one_behind_the_colon() {
        let folders = Folders::new("names");
        folders.expect("data", "data", "data", false);
        folders.expect("data,ro", "data", "data", true);
        folders.expect("data:x", "data", "x", false);
        folders.expect("data:x,ro", "data", "x", true);
        folders.expect("my data:mine", "my data", "mine", false);
        folders.expect("link", "data", "data", false);
        folders.expect("a:b:ab", "a:b", "ab", false);
        folders.expect("proc/../data", "data", "data", false);
    }

    #[test]
    fn refusals_name_the_value_and_the_way_out() {
        let folders = Folders::new("refused");
        for (texts, part) in [
            (&["nowhere"][..], "No such file"),
            (&["file:x"], "not a folder"),
            (&["my data"], "write DIR:TAG"),
            (&["data:"], "write DIR:TAG"),
            (&["data:.x"], "write DIR:TAG"),
            (&["proc"], "every guest needs"),
            (&["data:dev"], "every guest needs"),
            (&["data:bin,ro"], "every guest needs"),
            (&["data:causeway-root"], "this command itself"),
            (&["data", "link,ro"], "another tag"),
        ] {
            let message = folders.parse(texts).unwrap_err();
            assert!(message.contains(part), "{texts:?}: {message}");
            let last = texts.last().unwrap();
            assert!(message.contains(last), "{texts:?}: {message}");
        }
        assert!(folders.parse(&["data"; 17]).unwrap_err().starts_with("17"));
    }
}
