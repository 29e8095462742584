//! Optional text files beside the report.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use causeway_terminal::OutputFile;
use causeway_terminal::{Code, Failure};

/// An optional output file.
pub struct TextFile(Option<(PathBuf, OutputFile)>);

impl TextFile {
    /// Checks whether the file of `option` can be written to. Leaves no file there.
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

    /// Writes the file, if the option was given.
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
