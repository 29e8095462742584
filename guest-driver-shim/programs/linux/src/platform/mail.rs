//! Mail between two processes of one machine, as files in a folder, for programs without a test
//! device.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::NoMail;

/// Time between two looks for a file.
const PERIOD: Duration = Duration::from_millis(2);

/// A folder in which each mailbox is a file.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Returns the mailboxes in the folder `path`, which must exist.
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Puts mail into mailbox number `slot`.
    pub fn post(&self, slot: u32, data: &[u8; 64]) -> std::io::Result<()> {
        // Renamed into place, so that a reader never finds half of it.
        let partial = self.0.join(format!("{slot}.{}", std::process::id()));
        fs::write(&partial, data)?;
        fs::rename(partial, self.0.join(slot.to_string()))
    }

    /// Fetches the mail of mailbox number `slot`. Waits up to `wait` for it.
    ///
    /// # Errors
    /// [`NoMail::SenderFailed`] if the folder was removed, [`NoMail::NotYet`] after `wait`.
    pub fn fetch(&self, slot: u32, wait: Duration) -> Result<[u8; 64], NoMail> {
        let path = self.0.join(slot.to_string());
        let begin = Instant::now();
        loop {
            if let Ok(bytes) = fs::read(&path)
                && let Ok(mail) = bytes.try_into()
            {
                return Ok(mail);
            }
            if !self.0.exists() {
                return Err(NoMail::SenderFailed);
            }
            if begin.elapsed() >= wait {
                return Err(NoMail::NotYet);
            }
            std::thread::sleep(PERIOD);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_arrives_and_without_the_folder_the_sender_has_failed() {
        let path = std::env::temp_dir().join(format!("causeway-mailboxes-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let folder = Folder::new(path.clone());
        assert_eq!(folder.fetch(3, Duration::ZERO), Err(NoMail::NotYet));
        folder.post(3, &[7; 64]).unwrap();
        assert_eq!(folder.fetch(3, Duration::ZERO), Ok([7; 64]));
        fs::remove_dir_all(path).unwrap();
        let wait = Duration::from_secs(60);
        assert_eq!(folder.fetch(3, wait), Err(NoMail::SenderFailed));
    }
}
