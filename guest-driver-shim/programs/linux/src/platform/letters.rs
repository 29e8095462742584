//! Letters between two processes of one host, as files in a folder: where no test bench carries them.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::NoLetter;

/// How often a folder is looked at.
const PERIOD: Duration = Duration::from_millis(2);

/// A folder of letters.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Letters in this folder, which exists.
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Leaves a letter.
    pub fn post(&self, slot: u32, data: &[u8; 64]) -> std::io::Result<()> {
        // Renamed into place, so that no reader finds half a letter.
        let partial = self.0.join(format!("{slot}.{}", std::process::id()));
        fs::write(&partial, data)?;
        fs::rename(partial, self.0.join(slot.to_string()))
    }

    /// Fetches a letter.
    pub fn fetch(&self, slot: u32, wait: Duration) -> Result<[u8; 64], NoLetter> {
        let path = self.0.join(slot.to_string());
        let begin = Instant::now();
        loop {
            if let Ok(bytes) = fs::read(&path)
                && let Ok(letter) = bytes.try_into()
            {
                return Ok(letter);
            }
            if !self.0.exists() {
                return Err(NoLetter::Hopeless);
            }
            if begin.elapsed() >= wait {
                return Err(NoLetter::NotYet);
            }
            std::thread::sleep(PERIOD);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_arrives_and_a_folder_that_is_gone_is_hopeless() {
        let path = std::env::temp_dir().join(format!("causeway-letters-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let folder = Folder::new(path.clone());
        assert_eq!(folder.fetch(3, Duration::ZERO), Err(NoLetter::NotYet));
        folder.post(3, &[7; 64]).unwrap();
        assert_eq!(folder.fetch(3, Duration::ZERO), Ok([7; 64]));
        fs::remove_dir_all(path).unwrap();
        let wait = Duration::from_secs(60);
        assert_eq!(folder.fetch(3, wait), Err(NoLetter::Hopeless));
    }
}
