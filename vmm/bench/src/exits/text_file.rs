//! Files beside the report that a person may ask for.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use causeway_terminal::OutputFile;
use causeway_terminal::{Code, Failure};

/// A file that may have been asked for.
pub struct TextFile(Option<(PathBuf, OutputFile)>);

impl TextFile {
    /// Prepares the place that `option` names, and finds out whether it can be written to. Leaves nothing there.
    pub fn prepare(option: &str, path: Option<&Path>) -> Result<Self, Failure> {
        let prepare = |path: &Path| {
            let file = OutputFile::prepare(path).map_err(|e| {
                let message = format!(
                    "cannot write {} ({option} takes a file in a writable directory)",
                    path.display()
                );
                Failure::new(Code::Report, message, e)
            })?;
            Ok((path.to_owned(), file))
        };
        path.map(prepare).transpose().map(Self)
    }

    /// Writes it, if it was asked for.
    pub fn write(
        self,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let Some((path, file)) = self.0 else {
            return Ok(());
        };
        file.write(content)
            .map_err(|e| Failure::new(Code::Report, format!("cannot write {}", path.display()), e))
    }
}
