//! Optional text files beside the report.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure, OutputFile, shown_path};

/// Where the text of an option goes that the user may leave out.
pub enum TextFile {
    /// Nowhere.
    None,
    /// To standard output, in place of the table.
    Output,
    /// To the file at this path.
    File(PathBuf, OutputFile),
}

impl TextFile {
    /// Checks that the file at `path`, the value of `option`, can be written. `-` stands for
    /// standard output. Creates no file.
    ///
    /// # Errors
    /// A report failure that names the file and the option.
    pub fn prepare(option: &str, path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::None);
        };
        if path == Path::new("-") {
            return Ok(Self::Output);
        }
        let file = OutputFile::prepare(path).map_err(|e| {
            let message = format!(
                "cannot write {} ({option} takes a file in a writable directory, or - for standard \
                 output)",
                shown_path(path)
            );
            Failure::new(Code::Report, message, e)
        })?;
        Ok(Self::File(path.to_owned(), file))
    }

    /// Returns whether the text goes to standard output. The caller then must not print its table
    /// there.
    pub const fn is_output(&self) -> bool {
        matches!(self, Self::Output)
    }

    /// Writes the output of `content` to the destination, if the option was given.
    ///
    /// # Errors
    /// A report failure if `content` or the file fails.
    pub fn write(
        self,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        match self {
            Self::None => Ok(()),
            Self::Output => {
                let mut bytes = Vec::new();
                content(&mut bytes)
                    .map_err(|e| Failure::new(Code::Report, "cannot write the results", e))?;
                terminal::print_bytes(&bytes)
            }
            Self::File(path, file) => file.write(content).map_err(|e| {
                Failure::new(
                    Code::Report,
                    format!("cannot write {}", shown_path(&path)),
                    e,
                )
            }),
        }
    }
}
