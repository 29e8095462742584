//! Reads files of the host, up to a limit.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Most bytes that all files of a guest may have together.
pub(crate) const ALL_BYTES_MAX: u64 = 3 << 30;

/// A file of the host that was read.
#[derive(Debug)]
pub(crate) struct HostFile {
    /// Content of the file.
    pub(crate) content: Vec<u8>,
    /// Whether the file's permission bits allow anyone to execute it.
    pub(crate) executable: bool,
}

/// Reads the regular file `path`, which may have at most `limit` bytes.
///
/// # Errors
/// The error of the Linux kernel; or an error that says that the file is not regular, or too large.
pub(crate) fn read_file(path: &Path, limit: u64) -> io::Result<HostFile> {
    // Checked before the file is opened, because opening a pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let too_large = || {
        io::Error::other(format!(
            "it has more than {limit} bytes, which are left of the limit for all files together"
        ))
    };
    if metadata.len() > limit {
        return Err(too_large());
    }
    let mut content = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    // It may grow while it is read.
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(too_large());
    }
    let executable = metadata.mode() & 0o111 != 0;
    Ok(HostFile {
        content,
        executable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let own = Path::new("/proc/self/exe");
        let bytes = std::fs::metadata(own).unwrap().len();
        let read = read_file(own, bytes).unwrap();
        assert!(read.executable && read.content.len() as u64 == bytes);
        let message =
            |path: &str, limit| read_file(Path::new(path), limit).unwrap_err().to_string();
        assert!(message("/proc/self/exe", bytes - 1).contains("left of the limit"));
        assert!(message("/dev/zero", 10).contains("not a regular file"));
        assert!(message("/tmp", 10).contains("not a regular file"));
        assert!(message("/nonexistent", 10).contains("No such file"));
        // Its length is said to be zero.
        assert!(message("/proc/self/status", 10).contains("left of the limit"));
    }
}
