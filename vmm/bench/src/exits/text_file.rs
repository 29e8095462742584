//! Optional text files beside the report.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use causeway_terminal::OutputFile;
use causeway_terminal::{Code, Failure};

/// The output file of an option that the user may leave out.
pub struct TextFile(Option<(PathBuf, OutputFile)>);

impl TextFile {
    /// Checks that the file at `path`, the value of `option`, can be written. Creates no file.
    ///
    /// # Errors
    /// A report failure that names the file and the option.
    pub fn prepare(option: &str, path: Option<&Path>) -> Result<Self, Failure> {
        let prepare = |path: &Path| {
            let file = OutputFile::prepare(path).map_err(|e| {
                let message = format!(
                    "cannot write {} ({option} needs a file in a writable directory)",
                    path.display()
                );
                Failure::new(Code::Report, message, e)
            })?;
            Ok((path.to_owned(), file))
        };
        path.map(prepare).transpose().map(Self)
    }

    /// Writes the output of `content` to the file, if the option was given.
    ///
    /// # Errors
    /// A report failure if `content` or the file fails.
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
