//! An initramfs: a cpio archive of the format called newc (Linux: Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::io::{self, Write};

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;

/// An archive that is being written.
pub struct Archive<W> {
    to: W,
    entries: u32,
    folders: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    /// Begins an archive.
    pub fn new(to: W) -> Self {
        Self {
            to,
            entries: 0,
            folders: BTreeSet::new(),
        }
    }

    /// Adds a folder and those above it.
    pub fn folder(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || self.folders.contains(path) {
            return Ok(());
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above)?;
        }
        self.folders.insert(path.to_owned());
        self.entry(path, FOLDER, &[])
    }

    /// Adds a regular file, and the folders above it.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        let path = path.trim_matches('/');
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder)?;
        }
        self.entry(path, FILE | permissions, content)
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entries += 1;
        let too_long = |_| io::Error::other(format!("{path} is too long for an archive"));
        let bytes = u32::try_from(content.len()).map_err(too_long)?;
        let name_bytes = u32::try_from(path.len() + 1).map_err(too_long)?;
        let (inode, links) = (self.entries, 1);
        // Inode, mode, owner, group, links, time, length, device and node numbers, length of the name, checksum.
        let fields = [
            inode, mode, 0, 0, links, 0, bytes, 0, 0, 0, 0, name_bytes, 0,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header += &format!("{field:08x}");
        }
        self.to.write_all(header.as_bytes())?;
        self.to.write_all(path.as_bytes())?;
        self.to.write_all(&[0])?;
        self.pad(header.len() + path.len() + 1)?;
        self.to.write_all(content)?;
        self.pad(content.len())
    }

    /// Names with their headers, and contents, end at multiples of four bytes.
    fn pad(&mut self, bytes: usize) -> io::Result<()> {
        self.to.write_all(&[0; 3][..bytes.wrapping_neg() % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_begin_at_multiples_of_four_and_folders_come_first() {
        let mut archive = Archive::new(Vec::new());
        archive.file("/bin/deep/tool", 0o755, b"12345").unwrap();
        archive.file("bin/deep/other", 0o600, b"").unwrap();
        let bytes = archive.finish().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert!(starts.iter().all(|at| at % 4 == 0), "{starts:?}");
        let names: Vec<&str> = starts
            .iter()
            .map(|at| text[at + 110..].split('\0').next().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "bin",
                "bin/deep",
                "bin/deep/tool",
                "bin/deep/other",
                "TRAILER!!!"
            ]
        );
        let mode = |entry: usize| &text[starts[entry] + 14..starts[entry] + 22];
        assert_eq!(
            (mode(0), mode(2), mode(3)),
            ("000041ed", "000081ed", "00008180")
        );
    }
}
